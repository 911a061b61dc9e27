"""The process in which a yielder of `hog` runs, so that it may take its time.

python -m stoker.compat.hog.yield_process FILE DESCRIPTOR PARENT

It writes lines of JSON: {"is_ready": true} when the file is loaded and its yielder has been called,
each command as a text, and at the end {"is_done": true} or {"failed": "why"}. In hog's own process
it would keep signals and ended jobs waiting. It ends with hog, whatever happens; left to itself it
ends as any program does, with its files written.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback

from stoker.compat.foreground.entry import write_all
from stoker.compat.hog.user_module import load_module

_PR_SET_PDEATHSIG = 1


def main(path: str, writing: int, parent: int) -> None:
    os.set_inheritable(writing, False)  # what the yielder starts may outlive it
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    try:
        _yield(path, writing)
        _send(writing, {"is_done": True})
    except BrokenPipeError:
        pass  # hog wants no more
    except BaseException:
        _send(writing, {"failed": _why()})
    finally:
        os.close(writing)  # jobs need not wait for what is done at exit


def _yield(path: str, writing: int) -> None:
    commands = iter(load_module(path).yielder())  # type: ignore[attr-defined]
    _send(writing, {"is_ready": True})
    for command in commands:
        _send(writing, str(command))


def _send(writing: int, item: object) -> None:
    write_all(writing, json.dumps(item).encode() + b"\n")


def _why() -> str:
    """What was raised, and where in the user's files."""
    lines = traceback.format_exc().strip().splitlines()
    where = [line.strip() for line in lines if line.startswith('  File "')]
    theirs = [line for line in where if __file__ not in line and "<frozen" not in line]
    theirs = [line for line in theirs if f'"{load_module.__code__.co_filename}"' not in line]
    return f"{lines[-1]} ({theirs[-1]})" if theirs else lines[-1]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
