"""Options in the comments of a script: `#SBATCH --gres=gpu:2` or `#stoker --gpus 2`.

They are read from the top of a script that is submitted by its path, up to the first command.
text/slurm/slurm_request.py translates the options of Slurm; cli/slurm_script.py prepares the
environment of such a job.
"""

from __future__ import annotations

import os
import shlex

from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.slurm.slurm_options import parse_sbatch
from stoker.text.slurm.slurm_request import SlurmRequest, Translated

_HEAD_BYTES = 64 << 10
_STOKER = ("#stoker", "#STOKER")
_SLURM = "#SBATCH"


class Script(Record):
    """A script with options in its comments, and how to run it."""

    path: str
    words: tuple[str, ...]
    flags: list[str]  # of `stoker submit`
    slurm: Translated | None  # if it has #SBATCH lines

    @property
    def notices(self) -> list[str]:
        ignored = self.slurm.ignored if self.slurm is not None else []
        return [f"ignored #SBATCH options: {', '.join(ignored)}"] if ignored else []


def read_script(words: list[str], is_for_slurm: bool = False) -> Script | None:
    """The script that `words` runs, if it has `#SBATCH` or `#stoker` options; otherwise None.

    `is_for_slurm`: the job goes to a Slurm backend, which gets the options of Slurm.

    Raises UsageError that names the line of a bad option.
    """
    path = words[0]
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if b"\0" in head:
        return None  # a binary
    lines = head.decode("utf-8", "surrogateescape").splitlines()
    flags: list[str] = []
    start = _start(path, lines[0] if lines else "")
    request = SlurmRequest(is_for_slurm)
    has_stoker = has_slurm = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        kind, gap, rest = text.partition(text[7:8]) if text[7:8] in (" ", "\t") else (text, "", "")
        try:
            if kind in _STOKER and gap:
                has_stoker = True
                flags += shlex.split(rest, comments=True)
            elif kind == _SLURM and gap:
                has_slurm = True
                _add(request, shlex.split(rest, comments=True))
        except (UsageError, ValueError) as error:
            known = error if isinstance(error, UsageError) else UsageError(str(error))
            text = f"line {number} of `{path}`: {known.message}"
            raise UsageError(text, known.hint) from None
    if not has_stoker and not has_slurm:
        return None
    slurm = request.translate() if has_slurm else None
    own = slurm.flags if slurm is not None else []
    return Script(path, (*start, *words[1:]), [*own, *flags], slurm)


def _add(request: SlurmRequest, words: list[str]) -> None:
    if words[:1] in (["hetjob"], ["packjob"]):
        raise UsageError("heterogeneous jobs are not supported")
    for name, value in parse_sbatch(words):
        request.add(name, value)


def _start(path: str, first: str) -> list[str]:
    """The command that runs a script, which need not be executable: its `#!` line, or sh."""
    absolute = os.path.abspath(path)
    if first.startswith("#!"):
        return [*first[2:].split(None, 1), absolute]
    return ["/bin/sh", absolute]
