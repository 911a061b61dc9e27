"""`--signal USR1@60`: a signal some time before the time limit, as Slurm's users write it."""

from __future__ import annotations

from stoker.core.formats.durations import parse_duration
from stoker.core.record import Record
from stoker.errors import UsageError

# The numbers that Linux gives them on every machine we run on; `signal` costs a start of the CLI.
_SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "ALRM": 14, "TERM": 15, "CONT": 18,
    "URG": 23, "XCPU": 24, "WINCH": 28,
}  # fmt: skip
_DEFAULT_SECONDS = 60.0


class Warning(Record):
    signal: int
    seconds: float
    is_for_shell: bool  # B: the shell that runs the command, and nobody else


def parse_warning(text: str) -> Warning:
    """
    >>> parse_warning("USR1@90"), parse_warning("B:SIGTERM@2m").is_for_shell
    (Warning(signal=10, seconds=90.0, is_for_shell=False), True)
    """
    shell, colon, rest = text.rpartition(":")
    name, at, before = rest.partition("@")
    number = _SIGNALS.get(name.upper().removeprefix("SIG"))
    if number is None and name.isascii() and name.isdigit() and int(name) in _SIGNALS.values():
        number = int(name)
    if number is None or (colon and shell.upper() != "B"):
        raise UsageError(f"`{text}` is no signal and time", "write USR1@60: USR1, 60 s before")
    return Warning(number, parse_duration(before, "s") if at else _DEFAULT_SECONDS, bool(colon))
