"""Options inside a script: `#SBATCH --gres=gpu:2`, or our own as `#stoker --gpus 2`.

Read from the comments at the top of a script that is submitted by its path, up to the first line
that does something. Of Slurm's options those are honoured that mean something on one host; those
that only say where in a cluster are passed over with a notice, and what we could not keep (several
nodes, arrays) is refused.
"""

from __future__ import annotations

import os
import shlex

from stoker.core.record import Record
from stoker.errors import UsageError

_HEAD_BYTES = 64 << 10
_OURS = ("#stoker ", "#STOKER ")
_SLURM = "#SBATCH "
_SHORT = {
    "-J": "--job-name", "-t": "--time", "-G": "--gpus", "-o": "--output", "-e": "--error",
    "-D": "--chdir", "-d": "--dependency", "-b": "--begin", "-H": "--hold", "-c": "--cpus-per-task",
    "-p": "--partition", "-A": "--account", "-q": "--qos", "-N": "--nodes", "-n": "--ntasks",
    "-a": "--array", "-C": "--constraint", "-w": "--nodelist", "-x": "--exclude",
}  # fmt: skip
_SWITCHES = ("--hold", "--requeue", "--no-requeue", "--exclusive", "--parsable", "--verbose")
# They say where in a cluster, whom to charge or how to tell; one host has no use for them.
_PASSED_OVER = (
    "--partition", "--account", "--qos", "--cpus-per-task", "--mem", "--mem-per-cpu",
    "--mem-per-gpu", "--ntasks", "--ntasks-per-node", "--constraint", "--nodelist", "--exclude",
    "--mail-type", "--mail-user", "--comment", "--reservation", "--tasks-per-node", "--threads",
    "--cpus-per-gpu", "--open-mode", "--parsable", "--verbose", "--no-requeue", "--cluster",
    "--wckey", "--hint", "--tmp", "--licenses", "--export-file", "--gpu-bind", "--distribution",
)  # fmt: skip


class Script(Record):
    """A script with directives, and how to run it."""

    words: tuple[str, ...]
    flags: list[str]  # as `stoker submit` knows them
    notices: list[str]


def read_script(words: list[str]) -> Script | None:
    """The script that the words begin with, if it is one that says something to us."""
    path = words[0]
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if b"\0" in head:
        return None  # a program
    lines = head.decode("utf-8", "surrogateescape").splitlines()
    flags: list[str] = []
    notices: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        try:
            if text.startswith(_OURS):
                flags += shlex.split(text[len(_OURS[0]) :], comments=True)
            elif text.startswith(_SLURM):
                flags += _slurm(shlex.split(text[len(_SLURM) :], comments=True), notices)
        except (UsageError, ValueError) as error:
            known = error if isinstance(error, UsageError) else UsageError(str(error))
            text = f"line {number} of `{path}`: {known.message}"
            raise UsageError(text, known.hint) from None
    if not flags and not notices:
        return None
    return Script((*_start(path, lines[0]), *words[1:]), flags, notices)


def _start(path: str, first: str) -> list[str]:
    """How a script is run that need not be executable: by what its first line says."""
    absolute = os.path.abspath(path)
    if first.startswith("#!"):
        return [*first[2:].split(None, 1), absolute]
    return ["/bin/sh", absolute]


def _slurm(words: list[str], notices: list[str]) -> list[str]:
    flags: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word[:2] != "--":
            name, equals, value = _SHORT.get(word[:2], word[:2]), word[2:], word[2:].lstrip("=")
        if name in _SWITCHES:
            value = ""
        elif not equals:
            if not rest:
                raise UsageError(f"`{word}` needs a value")
            value = rest.pop(0)
        flags += _translated(name, value, notices)
    return flags


def _translated(name: str, value: str, notices: list[str]) -> list[str]:
    if name in _PASSED_OVER:
        notices.append(f"{name} means nothing on one host and is passed over")
        return []
    plain = {
        "--job-name": "--name", "--chdir": "--cwd", "--output": "--stdout", "--error": "--stderr",
        "--begin": "--begin", "--priority": "--priority",
    }.get(name)  # fmt: skip
    if plain is not None:
        return [plain, value]
    if name in ("--hold", "--exclusive"):
        return [name]
    if name == "--requeue":
        return ["--restartable"]
    if name == "--time":
        return ["--time-limit", _time(value)]
    if name in ("--gpus", "--gpus-per-node", "--gpus-per-task"):
        return _cards(value)
    if name == "--gres":
        return [flag for part in value.split(",") for flag in _gres(part, notices)]
    if name == "--nice":
        return ["--priority", str(-int(value or 100))]
    if name == "--signal":
        signal, at, seconds = value.partition("@")
        return ["--signal", f"{signal}@{seconds}s" if at else signal]
    if name == "--dependency":
        return _dependency(value)
    if name == "--export":
        return [flag for part in value.split(",") if "=" in part for flag in ("--env", part)]
    if name == "--nodes":
        if value.split("-")[0] == "1":
            return []
        raise UsageError(f"{value} nodes are asked for, and this queue has one host")
    if name == "--array":
        raise UsageError("an array of jobs", "stoker sweep 'COMMAND {i}' 'i=range(10)'")
    raise UsageError(f"`{name}` is not among the options of Slurm that are understood",
                     "see docs/coming-from/queues.md")  # fmt: skip


def _time(value: str) -> str:
    """Slurm's D-HH and D-HH:MM as well, which nobody else writes."""
    days, dash, rest = value.partition("-")
    if dash and rest.count(":") < 2:
        rest += ":00" * (2 - rest.count(":"))
    return f"{days}-{rest}" if dash else value


def _cards(value: str) -> list[str]:
    """`2`, or `h200:2`."""
    model, colon, count = value.rpartition(":")
    return ["--gpus", count, *(["--gpu-model", model] if colon else [])]


def _gres(part: str, notices: list[str]) -> list[str]:
    kind, _, rest = part.partition(":")
    if kind != "gpu":
        notices.append(f"--gres={part} means nothing here and is passed over")
        return []
    if not rest:
        return ["--gpus", "1"]
    return _cards(rest if rest[-1].isdigit() and rest.rpartition(":")[2].isdigit() else f"{rest}:1")


def _dependency(value: str) -> list[str]:
    """`afterok:7:8,afterany:9`."""
    known = {"after": "any", "afterany": "any", "afterok": "ok", "afternotok": "notok"}
    flags: list[str] = []
    for part in value.replace("?", ",").split(","):
        kind, *jobs = part.split(":")
        if kind not in known or not jobs:
            raise UsageError(f"`{part}` is not a dependency that is understood",
                             "afterok:7, afterany:7 or afternotok:7")  # fmt: skip
        for job in jobs:
            flags += ["--after", f"{job.partition('+')[0]}:{known[kind]}"]
    return flags
