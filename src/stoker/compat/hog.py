"""`hog --job_file jobs.txt --gpus 0,1`: many jobs on several GPUs. Users of gpu-hog know it.

As a decorator, over a function that yields commands:

    from stoker.compat.hog import hog

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

from stoker.compat.door import enter

__all__ = ["hog", "job", "main", "run_jobs"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ParamSpec

    P = ParamSpec("P")

_PR_SET_PDEATHSIG = 1


def main() -> int:
    return enter(run)


def run(arguments: list[str]) -> int:
    from stoker.compat.hog_options import parse
    from stoker.compat.hog_run import Hog

    options = parse(arguments)
    if options.job_pipe is not None:
        _end_with_parent()
    return Hog(options).work()


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

    In a process of its own, which ends with this one: a scheduler takes signals and children for
    itself.
    """
    import subprocess

    from stoker.compat.hog_options import gpu_ids, parse

    ids = gpus if isinstance(gpus, str) else ",".join(str(gpu) for gpu in gpus)
    words = [f"--gpus={ids}", *(word for pair in options.items() for word in _flag(*pair))]
    gpu_ids(parse(["--job_pipe=0", *words]).gpus)  # what makes no sense is raised here
    reading, writing = os.pipe2(os.O_CLOEXEC)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stoker.compat.hog", f"--job_pipe={reading}", *words],
        pass_fds=[reading],
    )
    os.close(reading)
    try:
        with open(writing, "wb") as pipe:
            for command in commands:
                pipe.write(os.fsencode(str(command)) + b"\0")
                pipe.flush()
    except BrokenPipeError:
        pass  # it was told to stop, or had nothing to run with; its exit code says
    code = process.wait()
    if code == 130 or code < 0:
        raise RuntimeError(f"hog ended with {code}")
    return code


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
    sys.exit(main())
