"""The process in which a yielder of `hog` runs, so that a slow yielder does not block `hog`.

python -m stoker.compat.hog.yield_process FILE DESCRIPTOR PARENT

It writes lines of JSON: {"is_ready": true} when the file is loaded and its yielder has been called,
each command as a string, and at the end {"is_done": true} or {"failed": "why"}. The process never
outlives `hog`. If it is not killed, it exits normally: exit handlers run and files are flushed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback

from stoker.compat.foreground.entry import write_all
from stoker.compat.hog.user_module import load_module
from stoker.supervisor.parent_death import send_at_parent_death


def main(path: str, writing: int, parent: int) -> None:
    os.set_inheritable(writing, False)  # children of the yielder may outlive it
    send_at_parent_death(signal.SIGKILL)
    if os.getppid() != parent:
        return
    try:
        _yield(path, writing)
        _send(writing, {"is_done": True})
    except BrokenPipeError:
        pass  # hog reads no more commands
    except BaseException:
        _send(writing, {"failed": _describe_error()})
    finally:
        os.close(writing)  # hog need not wait for exit handlers


def _yield(path: str, writing: int) -> None:
    commands = iter(load_module(path).yielder())  # type: ignore[attr-defined]
    _send(writing, {"is_ready": True})
    for command in commands:
        _send(writing, str(command))


def _send(writing: int, item: object) -> None:
    write_all(writing, json.dumps(item).encode() + b"\n")


def _describe_error() -> str:
    """The current exception, and its location in the user's files."""
    lines = traceback.format_exc().strip().splitlines()
    locations = [line.strip() for line in lines if line.startswith('  File "')]
    theirs = [line for line in locations if __file__ not in line and "<frozen" not in line]
    theirs = [line for line in theirs if f'"{load_module.__code__.co_filename}"' not in line]
    return f"{lines[-1]} ({theirs[-1]})" if theirs else lines[-1]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
