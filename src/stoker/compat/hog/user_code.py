"""The processes that run Python files of users.

python -m stoker.compat.hog.user_code call FILE NAME JOB_NAME JOB_INSTRUCTION OUTPUT_DIR

calls a function instead of a shell (`hog --function`).

python -m stoker.compat.hog.user_code yield FILE DESCRIPTOR PARENT

runs a yielder, so that a slow one does not block `hog`. It writes lines of JSON: {"is_ready": true}
when the file is loaded and its yielder has been called, each command as a string, and at the end
{"is_done": true} or {"failed": "why"}. The process never outlives `hog`. If it is not killed, it
exits normally: exit handlers run and files are flushed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location

from stoker.compat.foreground.entry import write_all
from stoker.engine.supervisor.parent_death import send_at_parent_death


def _load(path: str) -> object:
    """Load a module from its path, even if another module has the same name."""
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _call(path: str, name: str, job_name: str, job_instruction: str, output_dir: str) -> int:
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    function = getattr(_load(path), name)
    result = function(job_name, job_instruction, output_dir, int(gpu) if gpu.isdigit() else gpu)
    if isinstance(result, int) and not isinstance(result, bool):
        return result  # an exit code
    return 1 if result is False else 0


def _supply(path: str, writing: int, parent: int) -> None:
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
    commands = iter(_load(path).yielder())  # type: ignore[attr-defined]
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
    return f"{lines[-1]} ({theirs[-1]})" if theirs else lines[-1]


if __name__ == "__main__":
    if sys.argv[1] == "call":
        sys.exit(_call(*sys.argv[2:]))
    _supply(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
