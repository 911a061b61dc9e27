"""The search continues after its driver or the search process is killed."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.engine.supervisor import job_processes
from tests.lab import Lab

SEARCH = ("-m", "tpe", "--seed", "1", "--metric", "y:min", "--gpus", "0", "--max-parallel", "2")
COMMAND = ("echo stoker: y={x}", "x=interval(0,1)")


@pytest.fixture
def quick(new_lab: Callable[..., Lab]) -> Lab:
    """A lab in which restarts happen immediately."""
    return new_lab(devices=0, STOKER_RETRY_DELAY="0.01")


def shown(lab: Lab) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(lab.ok("sweep", "show", "s", "--json"))
    return answer


def ended(lab: Lab) -> int:
    return int(shown(lab)["trials"].get("done", 0))


def points(lab: Lab) -> list[object]:
    return [row["x"] for row in json.loads(lab.ok("results", "s", "--json"))["rows"]]


def helpers(lab: Lab, module: str) -> list[int]:
    """PIDs of the sweep driver or of its child, the search process."""
    parents = [lab.daemon_pid() or 0]
    parents += [pid for parent in parents for pid in job_processes.children(parent)]
    found = {pid for parent in parents for pid in job_processes.children(parent)}
    return [pid for pid in found if module.encode() in cmdline(pid)]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    "module",
    ["stoker.features.sweeps.control.sweep_driver", "stoker.features.sweeps.search.search_process"],
)
def test_search_continues_after_repeated_kills(quick: Lab, module: str) -> None:
    last = quick.folder / "last"  # later trials wait
    last.write_text("0\n")
    hold = f"while test $STOKER_TRIAL -gt $(cat {last}); do sleep 0.05; done; {COMMAND[0]}"
    quick.ok("sweep", "-n", "s", "-N", "12", *SEARCH, hold, COMMAND[1])
    for finished in (0, 2, 4, 8):
        quick.wait_until(lambda n=finished: ended(quick) == n)  # type: ignore[misc]
        # Two trials that this process proposed are running, so it is there.
        quick.wait_until(lambda n=finished: len(quick.states()) == n + 2)  # type: ignore[misc]
        quick.wait_until(lambda: helpers(quick, module))
        for pid in helpers(quick, module):
            os.kill(pid, signal.SIGKILL)
        replace(last, f"{finished + (2 if finished < 4 else 4)}\n")
    quick.wait_until(lambda: ended(quick) == 12)
    assert (shown(quick)["stopped"], shown(quick)["paused"]) == (None, None)
    assert len(set(points(quick))) == 12
    quick.wait_until(lambda: "finished" in quick.ok("sweep", "ls"))


def replace(path: Path, text: str) -> None:
    """Write a file that jobs read at the same time."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


@pytest.mark.parametrize("point", ["begin:1", "ask:1", "ask:3", "tell:1", "tell:4"])
def test_search_process_killed_at_any_request_loses_no_trial(quick: Lab, point: str) -> None:
    once = quick.folder / "once"
    once.touch()
    quick.env |= {"STOKER_FAILPOINT": f"searcher.{point}", "STOKER_FAILPOINT_ONCE": str(once)}
    quick.ok("sweep", "-n", "s", "-N", "6", *SEARCH, *COMMAND)
    quick.wait_until(lambda: ended(quick) == 6)
    assert not once.exists(), f"{point} was never passed"
    assert len(set(points(quick))) == 6 and shown(quick)["stopped"] is None


def test_search_process_killed_while_it_prunes_loses_no_trial(quick: Lab) -> None:
    once = quick.folder / "once"
    once.touch()
    quick.env |= {"STOKER_FAILPOINT": "searcher.report:2", "STOKER_FAILPOINT_ONCE": str(once)}
    quick.ok("sweep", "-n", "s", "--gpus", "0", "--metric", "y:min", "--early-stop", "median",
             f"while test -e {once}; do echo stoker: y={{x}} step=$((i+=1)); sleep 0.05; done",
             "x=1,2,3")  # fmt: skip
    quick.wait_until(lambda: ended(quick) == 3)
    assert shown(quick)["stopped"] is None


@pytest.mark.timeout(300)  # the pause doubles with each failure
def test_repeatedly_failing_search_pauses_with_a_reason_and_recovers(quick: Lab) -> None:
    broken = quick.folder / "optuna"
    broken.mkdir()
    (broken / "__init__.py").write_text("import os; os._exit(7)\n")
    quick.env["PYTHONPATH"] = str(quick.folder)
    quick.ok("sweep", "-n", "s", "-N", "4", *SEARCH, *COMMAND)
    quick.wait_until(lambda: shown(quick)["paused"])
    assert "the search failed" in shown(quick)["paused"]
    assert "times in a row (the search process died)" in shown(quick)["paused"]
    assert "  paused    the search failed" in quick.ok("sweep", "show", "s")
    assert "paused" in quick.ok("sweep", "ls")
    broken.rename(quick.folder / "away")
    quick.wait_until(lambda: ended(quick) == 4)
    quick.wait_until(lambda: shown(quick)["paused"] is None)


def test_repeatedly_dying_driver_is_shown_as_paused(quick: Lab) -> None:
    quick.env |= {"STOKER_FAILPOINT": "driver.after_ask"}
    quick.ok("sweep", "-n", "s", "-N", "4", *SEARCH, *COMMAND)
    quick.wait_until(lambda: shown(quick)["paused"])
    words = r"the sweep driver was killed by signal 9 \d+ times in a row"
    assert re.search(words, shown(quick)["paused"])
    quick.ok("daemon", "stop")
    del quick.env["STOKER_FAILPOINT"]
    quick.ok("daemon", "start")
    quick.wait_until(lambda: ended(quick) == 4)
    quick.wait_until(lambda: shown(quick)["paused"] is None)


def test_search_uses_the_python_that_submitted_the_sweep(lab: Lab) -> None:
    """The daemon was started with another Python, which has no Optuna."""
    bare = lab.folder / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    python = str(bare / "bin" / "python")
    (site,) = (bare / "lib").glob("python*/site-packages")
    (site / "stoker.pth").write_text(str(Path(stoker.__file__).parents[1]))
    lab.command, command = [python, "-m", "stoker"], lab.command
    done = lab.run("sweep", "echo {x}", "x=1,2", "-m", "tpe", "--metric", "y:min")
    assert "need the package optuna, which is not installed" in done.stderr
    lab.ok("daemon", "start")
    lab.command = command
    assert f"python  Python {platform.python_version()} at {python}" in lab.ok("daemon", "status")
    assert f"the daemon uses Python {platform.python_version()} at {python}\n" in lab.ok("doctor")
    lab.ok("sweep", "-n", "s", "--gpus", "0", "-m", "tpe", "-N", "2", "--metric", "y:min",
           "echo stoker: y={x}", "x=1,2,3")  # fmt: skip
    lab.wait_until(lambda: shown(lab)["trials"] == {"done": 2} or shown(lab)["stopped"])
    assert shown(lab)["stopped"] is None
