"""The web UI with the real server and daemon."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from tests.finished_sweep import make_sweep
from tests.lab import Lab
from tests.web.cluster_rows import ClusterRows
from tests.web.conftest import free_port
from tests.web_ui.conftest import Scenario


@pytest.mark.parametrize("name", ["real_server", "real_log"])
def test_scenario_passes_with_the_real_server(
    scenario: Scenario, new_lab: Callable[..., Lab], name: str
) -> None:
    _run(scenario, new_lab(devices=2), name)


def test_curves_of_a_finished_sweep_are_drawn_and_compared(
    scenario: Scenario, new_lab: Callable[..., Lab]
) -> None:
    lab = new_lab(devices=2)
    lab.state_dir.mkdir(mode=0o700)
    make_sweep(lab.state_dir, "big", trials=40, steps=50)
    _run(scenario, lab, "real_curves")


def test_jobs_and_nodes_of_backends_are_shown(
    scenario: Scenario, new_lab: Callable[..., Lab]
) -> None:
    """Without an engine and a daemon: the records are those that drivers write."""
    lab = new_lab(devices=2)
    ClusterRows(lab, "far", "ray").set_problem("cannot reach the head node")
    rows = ClusterRows(lab, "lab", "slurm")
    rows.finished("python short.py", name="short", node="n1", node_gpus="3")
    rows.started("python train.py", name="resnet", node="n2", node_gpus="0,1", gpus=2)
    rows.submitted("python train.py --big", name="big-run", gpus=4, nodes=2)
    rows.queued("python soon.py", name="soon")
    lab.ok("submit", "--hold", "--name", "here", "true")
    _run(scenario, lab, "real_backends")


def test_tables_are_filtered_and_exported_by_the_real_server(
    scenario: Scenario, new_lab: Callable[..., Lab]
) -> None:
    lab = new_lab(devices=2)
    lab.ok(
        "sweep", "--name", "s", "--gpus", "0", "--same-fails", "99",
        "echo 'stoker: loss={lr} step=1'; case {lr} in 2) exit 3;; 3) exit 3;;"
        " 4) echo 'CUDA out of memory'; exit 1;; esac", "lr=1,2,3,4,5",
    )  # fmt: skip
    lab.wait_until(lambda: set(lab.states().values()) == {"done", "failed"})
    _run(scenario, lab, "real_tables")


def _run(scenario: Scenario, lab: Lab, name: str) -> None:
    output = lab.ok("web", "--port", free_port())
    link = re.search(r"http://\S+#token=\S+", output)
    assert link is not None, output
    env = {**lab.env, "STOKER_PYTHON": sys.executable, "LOG_FOLDER": str(lab.folder)}
    try:
        scenario(name, link[0], **env)
    finally:
        lab.run("web", "stop")
