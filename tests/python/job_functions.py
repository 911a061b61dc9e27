"""Functions for jobs. No import of pytest: every job imports this file."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import stoker
from stoker.functions import current_job
from stoker.python.api import job


def add(a: int, b: int = 1) -> int:
    return a + b


def shout(text: str) -> str:
    print(text.upper())
    return text.upper()


def fail(message: str) -> None:
    raise ValueError(message)


class Awkward(Exception):
    """Can be pickled but not unpickled, like many exceptions."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_awkwardly() -> None:
    raise Awkward(1, 2)


def pass_gate(path: str, value: object = None) -> object:
    """Wait until a process writes into the FIFO."""
    with open(path) as file:
        file.read()
    return value


def fail_once(mark: str) -> int:
    """Fails in its first attempt."""
    if not os.path.exists(mark):
        Path(mark).touch()
        raise ValueError("the first time")
    return 2


def fail_then_die(mark: str) -> None:
    if not os.path.exists(mark):
        Path(mark).touch()
        raise ValueError("the first time")
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_die() -> None:
    """The child exits normally, the parent is killed."""
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    os.kill(os.getpid(), signal.SIGKILL)


def die_late() -> int:
    """Returns a value and crashes at exit, as drivers sometimes do."""
    import atexit

    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
    return 1


def requeue_once() -> int:
    """Requests a second attempt."""
    from stoker.functions.current_job import current

    run = current()
    run.log(seen=run.attempt)
    if run.attempt == 1:
        run.requeue()
    return run.attempt


def vanish() -> None:
    os._exit(0)


def leave(code: int) -> None:
    sys.exit(code)


def unsendable() -> object:
    return threading.Lock()


def numbers() -> Iterator[int]:
    yield 1


async def later(value: int) -> int:
    import asyncio

    await asyncio.sleep(0)
    return value * 2


def environment(*names: str) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in names}


def modules() -> list[str]:
    return sorted(sys.modules)


@job(gpus=0, name="doubler")
def double(x: int) -> int:
    """Return twice the number."""
    return 2 * x


@job(gpus=0)
def twice_as_job(x: int) -> int:
    """Refers to another job function, and to itself."""
    assert twice_as_job.__doc__
    return double(x)


class Model:
    def __init__(self, scale: int) -> None:
        self.scale = scale

    def times(self, x: int) -> int:
        return self.scale * x


@job(gpus=0)
def score(x: int, y: int = 0) -> int:
    return x + y


def report(x: int) -> dict[str, object]:
    return {"square": x * x, "note": f"of {x}", "ignored": [1]}


@job(gpus=0)
def train(lr: float) -> None:
    for step in range(3):
        stoker.log(loss=0.5**step, step=step)


@job(gpus=0)
def bowl(x: float, y: float) -> float:
    return (x - 3) ** 2 + (y + 1) ** 2


def patient(offset: float) -> dict[str, object]:
    """Five steps; a trial with a large offset waits until it should stop."""
    for step in range(5):
        stoker.log(loss=offset + 1 / (step + 1), step=step)
    if offset > 50:
        while not stoker.should_stop():
            time.sleep(0.05)
        return {"steps": "stopped"}
    return {"steps": 5}


def stubborn(offset: float) -> float:
    """Requests another attempt when it should stop."""
    for step in range(5):
        stoker.log(loss=offset + 1 / (step + 1), step=step)
    while offset > 50:
        time.sleep(0.05)
        if stoker.should_stop():
            stoker.requeue()
    return offset


def save_when_warned(x: int = 0) -> int:
    """Waits for the warning in the first attempt and resumes in the second."""
    run = stoker.current()
    saved = run.checkpoint_dir / "saved"
    if saved.exists():
        return run.attempt
    while not current_job._was_warned:  # by the signal, not by the time limit
        threading.Event().wait(0.01)
    assert run.should_stop()
    saved.touch()
    stoker.requeue()


@job(gpus=0)
def log_and_return(x: int, as_number: bool = False) -> object:
    """Logs the final loss and returns that of the last batch."""
    stoker.log(loss=x / 10, step=5)
    return 99.0 if as_number else {"loss": 99.0, "other": "x", "no name": 1}


class ExitsWhenRead:
    """Unpickling it outside a job, where the result is read, raises SystemExit."""

    def __reduce__(self) -> tuple[object, ...]:
        return _exit_outside_a_job, ()


class ErrorThatExitsWhenRead(Exception):
    def __reduce__(self) -> tuple[type | object, ...]:
        return _exit_outside_a_job, ()


def _exit_outside_a_job() -> object:
    if "STOKER_JOB_ID" not in os.environ:
        raise SystemExit("unpickled")
    return ValueError("read in the job")


def return_what_exits() -> object:
    return ExitsWhenRead()


def raise_what_exits() -> None:
    raise ErrorThatExitsWhenRead("no data")


class ExitsWhenSent:
    def __reduce__(self) -> str:
        raise SystemExit(0)


def return_what_cannot_be_sent() -> object:
    return ExitsWhenSent()
