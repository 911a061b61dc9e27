"""`stoker --host BOX wait`: keeps waiting after a lost connection, for the same jobs."""

from __future__ import annotations

import json
import os
import subprocess
import time

from stoker.cli.verbs.wait import UNFINISHED
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.forward import exit_code
from stoker.features.remote.cli.recover import check_support, recover
from stoker.features.remote.connection import Connection, Lost
from stoker.text.command_line import Parsed


def remote_wait(box: Box, words: list[str], parsed: Parsed) -> int:
    """Wait until jobs on a box finish. Returns the exit code; raises Unavailable.

    `--notify` notifies this machine, where the user is.
    """
    if parsed["notify"] is None:
        return _wait_for_jobs(box, words, parsed)
    from stoker.features.notify.foreground import WaitNotification

    notification = WaitNotification(parsed["notify"])
    others = [word for word in words if word.partition("=")[0] != "--notify"]
    code = _wait_for_jobs(box, others, parsed)
    how = "all succeeded" if code == 0 else f"exit code {code}"
    notification.send(f"the jobs on {box.name} finished: {how}")
    return code


def _wait_for_jobs(box: Box, words: list[str], parsed: Parsed) -> int:
    connection = Connection(box)
    deadline = None if parsed["timeout"] is None else time.monotonic() + parsed["timeout"]
    settings: dict[str, object] = {}
    while True:
        try:
            if "jobs" not in settings:
                # Later, the same selectors could match other jobs.
                found = _select(connection, parsed)
                if isinstance(found, int):
                    return found
                if found:
                    settings["jobs"] = found
            if deadline is not None:
                settings["timeout"] = max(0.0, deadline - time.monotonic())
            return _wait(connection, words, settings)
        except Lost as error:
            recover(connection, error)


def _wait(connection: Connection, words: list[str], settings: dict[str, object]) -> int:
    process = connection.start(
        ["box", "wait", json.dumps(settings), *words],
        hangs_up=True,
        tty=os.isatty(0) and os.isatty(1),
        stdin=None if os.isatty(0) and os.isatty(1) else subprocess.DEVNULL,
    )
    return exit_code(connection, process)


def _select(connection: Connection, parsed: Parsed) -> list[str] | int:
    """The ids that selectors match now; an exit code if the box reports an error."""
    given = [] if parsed["all"] else parsed.words or (UNFINISHED if parsed["any"] else [])
    words = [*(["--json"] if parsed["json"] else []), "--", *given]
    done = connection.capture(["box", "select", "{}", *words])
    check_support(connection, done)
    if done.code != 0:
        for stream, data in ((1, done.out), (2, done.err)):
            os.write(stream, data)
        return done.code
    found: list[str] = json.loads(done.out)["jobs"]
    return found
