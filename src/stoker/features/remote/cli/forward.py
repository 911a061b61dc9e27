"""Run a command on another machine: find the box, and the way in which the command runs there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from stoker.cli.main import ALIASES, VERBS, load
from stoker.errors import Error, Unavailable, UsageError
from stoker.features.remote.boxes import Box, chosen_box
from stoker.features.remote.cli.recover import note_versions
from stoker.features.remote.connection import Connection, Killed, Lost, RemoteProcess
from stoker.text.command_line import Parsed, parse

# Commands of this machine, whatever the box.
_LOCAL = ("context", "completion")
# Commands that change nothing by themselves; repeating one is harmless.
_READS = (
    "status",
    "top",
    "ls",
    "show",
    "why",
    "log",
    "wait",
    "results",
    "plot",
    "report",
    "simulate",
    "doctor",
)
_SHOWN_BY = {"gpus": "gpus", "daemon": "daemon status", "sweep": "sweep ls", "web": "web status"}


def forward(words: list[str], host: str | None) -> int | None:
    """Run a command on the chosen box and return its exit code; None if this machine is chosen.

    Raises Unavailable if the connection fails, and the errors of the commands.
    """
    box = chosen_box(host)
    if box is None:
        return None
    if words and words[0] in ("-V", "--version", "version"):
        return remote_run(Connection(box), ["--version"], "status")
    if not words or words[0].startswith("-"):
        words = ["status", *words]
    name = ALIASES.get(words[0], words[0])
    if name in _LOCAL or (name in VERBS and _wants_help(name, words[1:])):
        return None
    if name == "box":
        return 1  # its actions are for the box itself
    program = "stoker" if host is None else f"stoker --host {host}"  # in hints
    special = _special(box, name, words[1:], program) if name in VERBS else None
    return special() if special is not None else remote_run(Connection(box), words, name)


def _wants_help(name: str, words: list[str]) -> bool:
    try:
        return bool(parse(load(name).VERB, words)["help"])
    except UsageError:
        return False  # the box may be newer: it reports the error


def _special(box: Box, name: str, words: list[str], program: str) -> Callable[[], int] | None:
    """The function for a command that does not just run on the box, or None."""
    if name not in ("submit", "sweep", "log", "wait", "results", "plot", "report", "pull", "web"):
        return None
    parsed = parse(load(name).VERB, words)
    parsed.values["program"] = program
    if name == "submit" or (name == "sweep" and not _is_sweep_action(parsed)):
        from stoker.features.remote.cli.submit import remote_submit

        return lambda: remote_submit(box, name, words, parsed)
    if name == "log" and parsed["follow"] and not parsed["path"]:
        from stoker.features.remote.cli.follow import remote_follow

        return lambda: remote_follow(box, words, parsed)
    if name == "wait":
        from stoker.features.remote.cli.wait import remote_wait

        return lambda: remote_wait(box, words, parsed)
    if name in ("results", "plot", "report") and (parsed["output"] or parsed["parquet"]):
        from stoker.features.remote.cli.pull import remote_output_file

        return lambda: remote_output_file(box, name, words, parsed)
    if name == "pull":
        from stoker.features.remote.cli.pull import remote_pull

        return lambda: remote_pull(box, parsed)
    if name == "web" and not parsed.words:
        from stoker.features.remote.cli.web_tunnel import web_tunnel

        return lambda: web_tunnel(box, words, parsed)
    return None


def _is_sweep_action(parsed: Parsed) -> bool:
    from stoker.features.sweeps.verbs.sweep import ACTIONS

    return bool(parsed.words) and parsed.words[0] in ACTIONS and not parsed.dashed


def remote_run(connection: Connection, words: list[str], name: str) -> int:
    """Run a command on the box as it is, with the terminal of this machine if there is one.

    Returns its exit code. Raises Unavailable if the connection fails.
    """
    has_terminal = os.isatty(0) and os.isatty(1)
    reads_stdin = has_terminal or name == "run"
    is_read = name in _READS or words[:2] in (["sweep", "ls"], ["sweep", "show"])
    process = connection.start(
        words,
        tty=has_terminal,
        hangs_up=is_read or name in ("run", "gpus", "shell", "attach"),
        stdin=None if reads_stdin else subprocess.DEVNULL,
    )
    try:
        return exit_code(connection, process)
    except Lost as error:
        raise lost(connection.box, name, error, is_read=is_read) from None


def exit_code(connection: Connection, process: RemoteProcess) -> int:
    """Wait for a command on the box; Ctrl-C ends it there too. Raises Lost."""
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.end()
        raise
    if code == UsageError.exit_code:
        note_versions(connection)
    return code


def lost(box: Box, name: str, error: Lost, *, is_read: bool = False) -> Unavailable:
    """The error for a command that was interrupted and is not repeated."""
    what = f"the connection to {box.name} was lost"
    if isinstance(error, Killed):
        what = f"the command was killed on {box.name}"
    if is_read:
        return Unavailable(what, "repeat the command")
    return Unavailable(
        f"{what}, so the result of `stoker {name}` is unknown",
        f"see what happened: stoker --host {box.name} {_SHOWN_BY.get(name, 'ls')}",
    )


_SECONDS = 4.0


def remote_words(box: Box, kind: str, current: str, given: list[str]) -> list[tuple[str, str]]:
    """Return words and descriptions that the box offers. Asks no password; empty if that fails."""
    connection = Connection(box, is_batch=True)
    try:
        connection.open(is_quiet=True)
        words = ["box", "words", "{}", kind, current, *given]
        done = connection.capture(words, timeout=_SECONDS)
    except (Error, Lost, subprocess.TimeoutExpired):
        return []
    if done.code != 0:
        return []
    lines = done.out.decode("utf-8", "replace").splitlines()
    return [(word, text) for word, _, text in (line.partition("\t") for line in lines)]
