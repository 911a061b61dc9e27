"""The state of the machine during a measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench import machine
from bench.lab import Lab
from bench.table import table

BUSY = 0.10
SLOW_FILE_US = 100
HEADINGS = (
    "repeat",
    "CPU used by other processes before",
    "load before",
    "load after",
    "file creation, µs",
)


@dataclass(frozen=True)
class Conditions:
    repeat: int
    busy_before: float
    load_before: float
    load_after: float
    file_us: float

    def row(self) -> tuple[str, ...]:
        return (
            str(self.repeat + 1),
            f"{self.busy_before:.0%}",
            f"{self.load_before:.1f}",
            f"{self.load_after:.1f}",
            f"{self.file_us:.0f}",
        )


@contextmanager
def observed(lab: Lab, repeat: int, log: list[Conditions]) -> Iterator[None]:
    """Record the conditions before and after one repeat."""
    busy, load = machine.busy_share(), machine.load()
    file_us = machine.file_creation_us(lab.fresh_folder())
    yield
    log.append(Conditions(repeat, busy, load, machine.load(), file_us))


def conditions_text(conditions: Sequence[Conditions]) -> str:
    """A table, with warnings if the machine was busy or slow."""
    parts = [table(HEADINGS, [one.row() for one in conditions])]
    if any(one.busy_before > BUSY for one in conditions):
        parts.append("**The machine was busy with other work: use ratios only, with care.**")
    if any(one.file_us > SLOW_FILE_US for one in conditions):
        parts.append(
            "**File creation was slow, perhaps because many files were deleted in the last "
            "minutes: tools that keep files look slower than they are.**"
        )
    return "\n\n".join(parts)
