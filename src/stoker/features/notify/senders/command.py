"""A command: gets the message as JSON on stdin, and its main facts as environment variables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

from stoker.features.notify.senders import SendError

TIMEOUT_SECONDS = 20.0


def send(url: str, message: dict[str, Any]) -> None:
    """Run the command with /bin/sh. Raises SendError if it fails or takes too long."""
    text = url.partition(":")[2].strip()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", text],
            env={**os.environ, **variables(message)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=os.path.expanduser("~"),
            start_new_session=True,
        )
    except OSError as error:
        raise SendError(f"the command cannot be started: {error.strerror}") from None
    try:
        _, errors = process.communicate(
            f"{json.dumps(message)}\n".encode(), timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise SendError(f"the command took longer than {TIMEOUT_SECONDS:g} s") from None
    if process.returncode:
        words = errors.decode(errors="replace").strip()[-200:]
        how = f"the command failed with exit code {process.returncode}"
        raise SendError(f"{how}: {words}" if words else how)


def variables(message: dict[str, Any]) -> dict[str, str]:
    """The environment variables of a message; those of a single job only if it has one event."""
    found = {
        "STOKER_NOTIFY_ID": message["id"],
        "STOKER_NOTIFY_SUBJECT": message["subject"],
        "STOKER_NOTIFY_BODY": message["body"],
        "STOKER_NOTIFY_COUNT": str(message["count"]),
        "STOKER_NOTIFY_HOST": message["host"],
    }
    if message["count"] == 1:
        event = message["events"][0]
        for key in ("when", "job", "name", "state", "cause", "exit_code", "sweep", "link"):
            if event.get(key) is not None:
                found[f"STOKER_NOTIFY_{key.upper()}"] = str(event[key])
    return found
