"""`hog --job_file jobs.txt --gpus 0,1`: many jobs on several GPUs. Users of gpu-hog know it.

As a decorator, over a function that yields commands:

    from hog import hog

    @hog(gpus="0,1")
    def sweep():
        for lr in (0.1, 0.01):
            yield f"python train.py --lr {lr}"

    failed = sweep()
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

from stoker.compat.foreground.entry import Command, run_and_exit

__all__ = ["hog", "job", "main", "run_jobs"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import NoReturn, ParamSpec

    P = ParamSpec("P")

_PR_SET_PDEATHSIG = 1


def main() -> NoReturn:
    run_and_exit(_load)


def _load() -> Command:
    import stoker.compat.hog.options
    import stoker.compat.hog.run  # noqa: F401

    return run


def run(arguments: list[str]) -> int:
    from stoker.compat.foreground.jobs import wants_zero
    from stoker.compat.hog.options import parse
    from stoker.compat.hog.run import Hog

    options = parse(arguments)
    if options.result_pipe is not None:
        return _serve(options)
    return Hog(options).work().exit_code(wants_zero(options.exit_zero))


def hog(
    gpus: str | Iterable[int | str], **options: str | int | bool
) -> Callable[[Callable[P, Iterable[object]]], Callable[P, int]]:
    """Calling the decorated function runs the commands it yields; returns how many failed.

    Options are those of the command line: output_dir, prefix, resume, function, pre_hook, ...
    """

    def decorate(yielder: Callable[P, Iterable[object]]) -> Callable[P, int]:
        from functools import wraps

        @wraps(yielder)
        def call(*args: P.args, **kwargs: P.kwargs) -> int:
            return run_jobs(yielder(*args, **kwargs), gpus, **options)

        return call

    return decorate


def run_jobs(
    commands: Iterable[object], gpus: str | Iterable[int | str], **options: str | int | bool
) -> int:
    """Run commands as `hog` does; returns how many failed.

    What cannot be done at all is raised: stoker.Error for a folder that cannot be made and the
    like, RuntimeError when it was interrupted. It is done in a process of its own, which ends with
    this one: a scheduler takes signals and children for itself.
    """
    import json
    import subprocess

    from stoker.compat.hog.options import gpu_ids, parse

    ids = gpus if isinstance(gpus, str) else ",".join(str(gpu) for gpu in gpus)
    words = [f"--gpus={ids}", *(word for pair in options.items() for word in _flag(*pair))]
    gpu_ids(parse(["--job_pipe=0", *words]).gpus)  # what makes no sense is raised here
    reading, writing = os.pipe2(os.O_CLOEXEC)
    result, result_end = os.pipe2(os.O_CLOEXEC)
    pipes = [f"--job_pipe={reading}", f"--result_pipe={result_end}"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stoker.compat.hog.main", *pipes, *words],
        pass_fds=[reading, result_end],
    )
    os.close(reading)
    os.close(result_end)
    try:
        with open(result, "rb") as answer:
            try:
                with open(writing, "wb") as pipe:
                    for command in commands:
                        pipe.write(json.dumps(str(command)).encode() + b"\n")
                        pipe.flush()
            except BrokenPipeError:
                pass  # it was told to stop, or had nothing to run with; its answer says
            return _failed(answer.read())
    finally:
        process.wait()  # whatever the commands raised: those before it are run


def _failed(answer: bytes) -> int:
    """How many failed, by what `_serve` said."""
    import json

    from stoker.errors import Error

    said = json.loads(answer) if answer else {}
    if "error" in said:
        raise Error(said["error"], said["hint"])
    if said.get("failed") is None:
        raise RuntimeError("hog was interrupted" if said else "hog was killed")
    return int(said["failed"])


def _serve(options: argparse.Namespace) -> int:
    """Be the process of `run_jobs`, which is told how it went."""
    import json

    from stoker.compat.foreground.entry import write_all
    from stoker.compat.hog.run import Hog
    from stoker.errors import Error

    _end_with_parent()
    said: dict[str, object]
    try:
        summary = Hog(options).work()
        said = {"failed": None if summary.was_interrupted else summary.failed}
    except Error as error:
        said = {"error": error.message, "hint": error.hint}
    try:
        write_all(options.result_pipe, json.dumps(said).encode())
    except BrokenPipeError:
        pass  # nobody wants to know any more
    return 0


def _flag(name: str, value: str | int | bool) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name.replace('exit_zero', 'exit-zero')}"] if value else []
    return [f"--{name}={value}"]


def job(job_name: str, job_instruction: str, output_dir: str, gpu_id: int | str) -> int:
    """What is done for each job unless `--function` says otherwise: a shell runs the command.

    A function of yours can do something before and after it, and return what this returns.
    """
    import subprocess

    return subprocess.run(["/bin/sh", "-c", job_instruction], check=False).returncode


def _end_with_parent() -> None:
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()
