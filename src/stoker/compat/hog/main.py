"""`hog --job_file jobs.txt --gpus 0,1`: run many jobs on several GPUs. Compatible with gpu-hog.

As a decorator of a function that yields commands:

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
from typing import ParamSpec

from stoker.compat.foreground.entry import run_and_exit
from stoker.errors import Error

__all__ = ["hog", "job", "main", "run_jobs"]

P = ParamSpec("P")


def main() -> None:
    run_and_exit("stoker.compat.hog.run")


def hog(
    gpus: str | Iterable[int | str], **options: str | int | bool
) -> Callable[[Callable[P, Iterable[object]]], Callable[P, int]]:
    """Decorate a function that yields commands: calling it runs them and returns how many failed.

    The options are those of the command line: output_dir, prefix, resume, function, pre_hook, ...
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
    """Run commands as `hog` does; returns the number of failed ones.

    Raises stoker.Error for invalid options or an output folder that cannot be created, and
    RuntimeError after an interrupt. The scheduler runs in a child process, because it handles
    signals and reaps children; it ends with this process.
    """
    import json  # these are slow to import, and the command does not need them
    import subprocess

    from stoker.compat.hog.options import gpu_ids, parse

    ids = gpus if isinstance(gpus, str) else ",".join(str(gpu) for gpu in gpus)
    words = [f"--gpus={ids}", *(word for pair in options.items() for word in _flag(*pair))]
    gpu_ids(parse(["--job_pipe=0", *words]).gpus)  # raises for invalid options
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
        with open(result, "rb") as response:
            try:
                with open(writing, "wb") as pipe:
                    for command in commands:
                        pipe.write(json.dumps(str(command)).encode() + b"\n")
                        pipe.flush()
            except BrokenPipeError:
                pass  # the child was interrupted or failed; its response has the reason
            return _failed_count(response.read())
    finally:
        process.wait()  # also after an exception in `commands`: run the commands before it


def _failed_count(response: bytes) -> int:
    """The number of failed jobs in the response of the child; raises what it reports."""
    import json

    result = json.loads(response) if response else {}
    if "error" in result:
        raise Error(result["error"], result["hint"])
    if result.get("failed") is None:
        raise RuntimeError("hog was interrupted" if result else "hog was killed")
    return int(result["failed"])


def _flag(name: str, value: str | int | bool) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name.replace('exit_zero', 'exit-zero')}"] if value else []
    return [f"--{name}={value}"]


def job(job_name: str, job_instruction: str, output_dir: str, gpu_id: int | str) -> int:
    """The default job function: runs the command with a shell and returns its exit code.

    A custom `--function` can call it and return its result.
    """
    import subprocess

    return subprocess.run(["/bin/sh", "-c", job_instruction], check=False).returncode


if __name__ == "__main__":
    main()
