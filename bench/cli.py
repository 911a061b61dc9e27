"""Duration of one command, from start to exit, compared with the start of a bare Python.

Calls take turns, so that all of them run under the same conditions. Queues are held: no job runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from bench import process
from bench.bulk import write_lines
from bench.conditions import Conditions, observed
from bench.lab import Lab
from bench.report import Section
from bench.table import number, table
from bench.tools.base import missing_program
from bench.tools.gflow import gflow_daemon, gflow_program
from bench.tools.spooler import spooler
from bench.tools.stoker import (
    Daemon,
    stoker_command,
    stoker_daemon,
    stoker_interpreter,
    stoker_missing,
)

HEADINGS = ("command", "queued", "p50 ms", "min ms", "ratio to a bare Python start")
BARE = "python -c pass"


@dataclass(frozen=True)
class Call:
    """A command to time, with its environment and folder."""

    label: str
    command: Sequence[str]
    environ: dict[str, str]
    folder: Path


@dataclass(frozen=True)
class Timing:
    label: str
    queued: int | None
    p50_ms: float
    min_ms: float
    ratio: float

    def row(self) -> tuple[str, ...]:
        queued = "" if self.queued is None else f"{self.queued:,}"
        figures = (number(self.p50_ms, 1), number(self.min_ms, 1), number(self.ratio, 2))
        return (f"`{self.label}`", queued, *figures)


def measure_cli(lab: Lab, sizes: Sequence[int], samples: int) -> Section:
    conditions: list[Conditions] = []
    missing = stoker_missing()
    with observed(lab, 0, conditions), contextlib.ExitStack() as stack:
        calls = _peers(lab, stack)
        if missing:
            timings = time_in_turns(lab, calls, samples, None)
        else:
            daemon = stack.enter_context(stoker_daemon(lab.fresh_folder(), lab.environ, 4))
            submit = _stoker(daemon, "submit", "-q", "--hold", "true")
            in_git = replace(submit, label=f"{submit.label} # in git", folder=_repository(lab))
            timings = time_in_turns(lab, [submit, in_git, *calls], samples, None)
            timings += _lists(lab, daemon, sizes, samples)
    text = table(HEADINGS, [timing.row() for timing in timings])
    if missing:
        text += f"\n\nStoker was not timed: {missing}"
    return Section("cli", "Single commands", text, [asdict(one) for one in timings], conditions)


def time_in_turns(
    lab: Lab, calls: Sequence[Call], samples: int, queued: int | None
) -> list[Timing]:
    """Time each call `samples` times, with a bare Python start in every round."""
    bare = Call(BARE, [stoker_interpreter(), "-c", "pass"], lab.environ, lab.root)
    rounds = [
        [process.wall_ms(call.command, call.environ, call.folder) for call in (bare, *calls)]
        for _ in range(samples)
    ]
    timings = []
    for place, call in enumerate((bare, *calls)):
        spent = [one[place] for one in rounds]
        ratio = median(one[place] / one[0] for one in rounds)
        timings.append(Timing(call.label, queued, median(spent), min(spent), ratio))
    return timings


def _stoker(daemon: Daemon, *words: str) -> Call:
    command = [*stoker_command(), *words]
    return Call(" ".join(("stoker", *words)), command, daemon.environ, daemon.folder)


def _repository(lab: Lab) -> Path:
    """A git work tree with 1,000 files in one commit, of which one has changed."""
    folder = lab.fresh_folder()
    for index in range(1000):
        (folder / f"file{index}.py").write_text(f"x = {index}\n")
    name = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "."], [*name, "commit", "-q", "-m", "files"]):
        process.run(["git", *words], lab.environ, folder=folder)
    (folder / "file0.py").write_text("x = -1\n")
    return folder


def _lists(lab: Lab, daemon: Daemon, sizes: Sequence[int], samples: int) -> list[Timing]:
    """Time `stoker ls` with growing queues, starting with the jobs from the timed submits."""
    timings: list[Timing] = []
    queued = samples
    for size in sorted(sizes):
        _fill(daemon, size - queued)
        queued = max(queued, size)
        timings += time_in_turns(lab, [_stoker(daemon, "ls")], samples, queued)
    return timings


def _fill(daemon: Daemon, count: int) -> None:
    """Submit more held jobs."""
    if count > 0:
        lines = write_lines(daemon.folder / "fill", count)
        daemon.call("submit", "--file", "-", "-q", "--hold", stdin=lines)


def _peers(lab: Lab, stack: contextlib.ExitStack) -> list[Call]:
    """Single submits of other tools, each with a queue that starts no jobs."""
    calls = []
    if missing_program("tsp") is None:
        folder = lab.fresh_folder()
        environ = {**lab.environ, "TMPDIR": str(folder)}
        environ = stack.enter_context(spooler(folder, environ, slots=1))
        process.run(["tsp", "sleep", "100000"], environ, folder=folder)
        calls.append(Call("tsp true", ["tsp", "true"], environ, folder))
    if missing_program("gflowd", "gbatch", "tmux") is None:
        folder = lab.fresh_folder()
        environ = stack.enter_context(gflow_daemon(folder, lab.environ, "process"))
        words = ["--begin", "now+1d", "true"]
        command = [gflow_program("gbatch"), *words]
        calls.append(Call(" ".join(("gbatch", *words)), command, environ, folder))
    return calls
