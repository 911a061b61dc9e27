"""`--signal USR1@60`: a signal before the time limit, in the syntax of Slurm."""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.durations import parse_duration

# Signal numbers of Linux on x86-64 and ARM; importing `signal` would slow down the CLI.
_SIGNALS = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
    "CONT": 18,
    "URG": 23,
    "XCPU": 24,
    "WINCH": 28,
}
_DEFAULT_SECONDS = 60.0


class Warning(Record):
    signal: int
    seconds: float
    is_for_shell: bool  # `B:`: sent only to the shell that runs the command


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
    hint = "write USR1@60 for SIGUSR1 60 seconds before the time limit"
    if colon and shell.upper() != "B":
        raise UsageError(f"unknown prefix `{shell}:` in `{text}`", f"{hint}, or B:USR1@60")
    if number is None:
        raise UsageError(f"unknown signal `{name}`", hint)
    return Warning(number, parse_duration(before, "s") if at else _DEFAULT_SECONDS, bool(colon))


def seconds_to_save(grace: float, warn: str | None) -> float:
    """Return how long a job that is asked to give way may take to save its work.

    That is its grace period, or the time of its `--signal` if that is longer.

    >>> seconds_to_save(10.0, None), seconds_to_save(10.0, "USR1@90"), seconds_to_save(120.0, "INT")
    (10.0, 90.0, 120.0)
    """
    return grace if warn is None else max(grace, parse_warning(warn).seconds)
