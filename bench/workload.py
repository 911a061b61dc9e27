"""The input of the tools: a file of command lines, each of which runs the stamp program once.

A "plain" line is a program and its arguments. A "shell" line ends in `; :`, so that it needs a
shell: a scheduler cannot split it into words, and the shell cannot exec its last command (as bash
does even for `: && command`). Every tool gets the same lines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Form = Literal["shell", "plain"]
FORMS: tuple[Form, ...] = ("shell", "plain")

# Length of a line of the stamp program: five fields, four spaces, a newline (see stamp.c).
STAMP_WIDTH = 10 + 20 + 20 + 10 + 4 + 4 + 1


@dataclass(frozen=True)
class Batch:
    """One run of one tool: its lines, its slots, and the file for the stamps."""

    form: Form
    slots: int
    count: int
    lines: Path
    stamps: Path
    folder: Path
    environ: dict[str, str]
    timeout: float

    def ended(self) -> int:
        """Number of jobs that wrote their stamp. Costs one stat call, so it can be polled."""
        try:
            return self.stamps.stat().st_size // STAMP_WIDTH
        except FileNotFoundError:
            return 0


def durations(count: int, seed: int) -> list[int]:
    """Milliseconds between 70 and 130, so that jobs do not end at the same time."""
    source = random.Random(seed)
    return [source.randint(70, 130) for _ in range(count)]


def stamp_lines(
    form: Form, stamp: Path, log: Path, count: int, sleeps: list[int] | None = None
) -> Iterator[str]:
    """The command lines for jobs 0 to count - 1."""
    ending = "; :" if form == "shell" else ""
    for number in range(count):
        sleep = f" {sleeps[number]}" if sleeps else ""
        yield f"{stamp} {log} {number}{sleep}{ending}\n"


def prepare_batch(
    folder: Path,
    environ: dict[str, str],
    *,
    stamp: Path,
    form: Form,
    slots: int,
    count: int,
    sleeps: list[int] | None = None,
    timeout: float = 120.0,
) -> Batch:
    """Write the line file into a new folder."""
    folder.mkdir(parents=True)
    lines, stamps = folder / "lines", folder / "stamps"
    with lines.open("w") as out:
        out.writelines(stamp_lines(form, stamp, stamps, count, sleeps))
    # Tools that write output to TMPDIR must not share a folder between runs.
    environ = {**environ, "TMPDIR": str(folder)}
    return Batch(form, slots, count, lines, stamps, folder, environ, timeout)
