"""Metrics for operators, read by Prometheus's own parser: from the command and the web server."""

from __future__ import annotations

import json
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.cli.helpers import refused
from tests.engine.gpus.host import GpuHost
from tests.fake_nvml import GIB
from tests.lab import Lab, wait_until
from tests.web.site import Site

_DASHBOARD = Path(__file__).parents[3] / "examples" / "grafana.json"


def _values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each value, by the name of its metric and its labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _names(text: str) -> set[str]:
    return {name for name, _ in _values(text)}


def test_metrics_show_jobs_gpus_and_other_users(host: GpuHost) -> None:
    lab = host.lab()
    job = lab.submit("-n", 'a "name"', 'echo "0 5000000000" > "$FAKE_NVML_PROCS/$$"; exec sleep 60')
    lab.wait_until(lambda: lab.gpu(0)["memory_used_bytes"] >= 5_000_000_000)
    host.other_process(1, 5 * GIB)
    values = _values(lab.ok("status", "--prometheus"))

    def value(metric: str, **labels: str) -> float:
        return values[metric, frozenset(labels.items())]

    assert value("stoker_jobs", state="running") == 1
    assert value("stoker_daemon_up") == 1
    assert value("stoker_job_gpu_memory_bytes", gpu="0", job=str(job), name='a "name"') == 5e9
    [other] = [v for (name, _), v in values.items() if name == "stoker_other_gpu_memory_bytes"]
    assert other == 5 * GIB
    used = {
        dict(labels)["gpu"]: v
        for (name, labels), v in values.items()
        if name == "stoker_gpu_memory_used_bytes"
    }
    assert used["0"] >= 5e9 and used["1"] >= 5 * GIB


def test_metrics_of_the_web_server_need_its_token(site: Site) -> None:
    assert site.ask("GET", "/metrics", token=None).status == 401
    assert site.ask("GET", "/metrics", token="wrong").status == 401
    reply = site.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert _names(reply.body.decode()) == _names(site.lab.ok("status", "--prometheus"))


def test_stopped_daemon_is_shown(lab: Lab) -> None:
    lab.wait(lab.submit("true"))
    lab.ok("daemon", "stop")
    wait_until(
        lambda: "stoker_daemon_up 0" in lab.ok("status", "--prometheus").splitlines(),
        what="its end",
    )


def test_metrics_file_is_replaced_as_a_whole(lab: Lab) -> None:
    path = lab.folder / "stoker.prom"
    path.write_text("old")
    assert lab.ok("status", f"--prometheus={path}") == ""
    assert "stoker_jobs" in _names(path.read_text())
    assert [one.name for one in lab.folder.glob("stoker.prom*")] == ["stoker.prom"]
    refused(
        lab.run("status", "--prometheus=missing/x.prom"), 2,
        "cannot write `missing/x.prom`: No such file or directory",
    )  # fmt: skip
    refused(
        lab.run("status", "--prometheus", "--watch"), 2,
        "`--prometheus` and `--watch` exclude each other",
    )  # fmt: skip


def test_dashboard_uses_only_metrics_that_exist(host: GpuHost) -> None:
    lab = host.lab()
    lab.submit('echo "0 5000000000" > "$FAKE_NVML_PROCS/$$"; exec sleep 60')
    lab.wait_until(lambda: lab.gpu(0)["memory_used_bytes"] >= 5_000_000_000)
    host.other_process(1, 5 * GIB)
    known = _names(lab.ok("status", "--prometheus")) | {"stoker_gpu_idle_reason_seconds"}
    panels = json.loads(_DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {word for text in expressions for word in _words(text) if word.startswith("stoker_")}
    assert len(used) > 8 and used <= known


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
