"""One try to send a message, in a process of its own.

A webhook that never answers, a hanging name server or a crash in a plugin of Apprise ends with this
process. The address comes on stdin, so that `ps` does not show it. Runs as
`python -m stoker.features.notify.send_process`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from typing import Any

from stoker.errors import Error
from stoker.features.notify.place_kinds import kind_of, scrubbed
from stoker.features.notify.senders import SendError
from stoker.record import Record

TIMEOUT_SECONDS = 30.0
_SENDERS = {
    "desktop": "desktop",
    "command": "command",
    "webhook": "webhook",
    "e-mail": "mail",
    "apprise": "by_apprise",
}
COMMAND = (sys.executable, "-P", "-m", "stoker.features.notify.send_process")


class Result(Record):
    """How a try ended; `error` is None if the message was accepted."""

    error: str | None = None
    is_final: bool = False


def send(url: str, message: dict[str, Any]) -> Result:
    """Send in this process. Errors contain no secret of the address."""
    try:
        module = import_module(f"stoker.features.notify.senders.{_SENDERS[kind_of(url)]}")
        module.send(url, message)
    except SendError as error:
        return Result(scrubbed(error.message, url), error.is_final)
    except Error as error:
        return Result(error.message, True)
    except Exception as error:  # a defect in a plugin must not lose the message silently
        return Result(scrubbed(f"{type(error).__name__}: {error}", url))
    return Result()


def request(url: str, message: dict[str, Any]) -> bytes:
    """The input of the process."""
    return json.dumps({"url": url, "message": message}).encode()


def read_result(output: bytes, code: int | None) -> Result:
    """The result from the output and exit code of the process; None: it was killed."""
    if code is None:
        return Result(f"no result within {TIMEOUT_SECONDS:g} s")
    try:
        fields = json.loads(output)
        return Result(fields["error"], bool(fields["is_final"]))
    except (ValueError, KeyError, TypeError):
        return Result(f"the sending process failed (exit code {code})")


def send_now(url: str, message: dict[str, Any]) -> Result:
    """Send in a process and wait for it, at most TIMEOUT_SECONDS."""
    try:
        done = subprocess.run(
            COMMAND, input=request(url, message), stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return read_result(b"", None)
    return read_result(done.stdout, done.returncode)


def main() -> None:
    given = json.load(sys.stdin)
    output = os.dup(1)
    os.dup2(2, 1)  # a plugin that prints must not damage the result
    result = send(given["url"], given["message"])
    try:
        os.write(output, json.dumps(result._asdict()).encode())
    except BrokenPipeError:
        pass  # the notifier died; the next one sends the message again


if __name__ == "__main__":
    main()
