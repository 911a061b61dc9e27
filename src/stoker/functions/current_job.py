"""What code can know and do inside a job, and what does no harm outside of one.

    import stoker

    run = stoker.current()
    for step in range(run.params.get("steps", 100)):
        loss = train_step()
        run.log(loss=loss, step=step)
        if run.should_stop():
            save(run.checkpoint_dir / "last.pt")
            run.requeue()

The environment is the protocol: nothing here talks to the daemon, and importing it costs nothing.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, NoReturn, SupportsFloat

REQUEUE_CODE = 75  # EX_TEMPFAIL: not a failure, try again

# Keys of a line of metrics that are not metrics.
_OWN_KEYS = ("at", "attempt", "step")


class Requeue(SystemExit):
    """Ends the process with the code that asks for another attempt."""

    def __init__(self) -> None:
        super().__init__(REQUEUE_CODE)


class CurrentJob:
    """The job that this process belongs to. Everything is read from the environment when asked."""

    @property
    def id(self) -> int | None:
        """Its number; None outside of a job."""
        text = os.environ.get("STOKER_JOB_ID", "")
        return int(text) if text.isdigit() else None

    @property
    def attempt(self) -> int:
        """1 for the first execution, 2 for the first retry; 0 outside of a job."""
        text = os.environ.get("STOKER_ATTEMPT", "")
        return int(text) if text.isdigit() else 0

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that a sweep chose for it; empty without a sweep."""
        text = os.environ.get("STOKER_PARAMS")
        if not text:
            return {}
        import json

        try:
            params = json.loads(text)
        except ValueError:
            params = None
        if not isinstance(params, dict):
            raise ValueError(f"STOKER_PARAMS is not a JSON object: {text[:80]!r}")
        return params

    @property
    def sweep(self) -> str | None:
        """The name of the sweep that it belongs to."""
        return os.environ.get("STOKER_SWEEP") or None

    @property
    def trial(self) -> int | None:
        """Its number in that sweep."""
        text = os.environ.get("STOKER_TRIAL", "")
        return int(text) if text.isdigit() else None

    @property
    def dir(self) -> Path:
        """A folder for its own files, the same in every attempt; made when asked for."""
        return _folder(os.environ.get("STOKER_OUTPUT_DIR"))

    @property
    def checkpoint_dir(self) -> Path:
        """A folder for what the next attempt goes on from; made when asked for."""
        chosen = os.environ.get("STOKER_CHECKPOINT_DIR")
        output = os.environ.get("STOKER_OUTPUT_DIR")
        return _folder(chosen or (os.path.join(output, "checkpoints") if output else None))

    @property
    def gpus(self) -> tuple[str, ...]:
        """Its devices, as in CUDA_VISIBLE_DEVICES; inside the process they count from 0."""
        return tuple(name for name in os.environ.get("STOKER_GPUS", "").split(",") if name)

    @property
    def deadline(self) -> float | None:
        """When its time limit ends, in seconds since the epoch."""
        return _number("STOKER_DEADLINE")

    def log(self, *, step: SupportsFloat | None = None, **metrics: object) -> None:
        """Record values: `run.log(loss=0.3, step=10)`. One line, added in one piece.

        Values are numbers, booleans or text; scalars of NumPy and PyTorch count as numbers.
        """
        line: dict[str, object] = {"at": time.time(), "attempt": self.attempt}
        if step is not None:
            line["step"] = _plain("step", step)
            if isinstance(line["step"], str):
                raise TypeError(f"step is the text {step!r}, not a number")
        for name, value in metrics.items():
            if not can_name(name):
                raise TypeError(f"a metric cannot have the name {name[:40]!r}")
            line[name] = _plain(name, value)
        logged.update(metrics)
        path = os.environ.get("STOKER_METRICS")
        if path:
            import json

            _append(path, json.dumps(line).encode() + b"\n")

    def should_stop(self) -> bool:
        """Whether to save and leave: somebody asked for it, or the time limit is near."""
        heed_warning()
        if _was_warned:
            return True
        path = os.environ.get("STOKER_STOP_FILE")
        if path:
            try:
                os.stat(path)
                return True
            except OSError:
                pass
        warn = _number("STOKER_WARN_SECONDS")
        if not warn:
            return False
        deadline = self.deadline
        return deadline is not None and time.time() >= deadline - warn

    def requeue(self) -> NoReturn:
        """End this attempt and let the job wait for another one. Save first: it begins anew."""
        if self.id is None:
            raise RuntimeError("requeue() works only inside a job")
        path = os.environ.get("STOKER_REQUEUE_FILE")
        if not path and os.environ.get("STOKER_OUTPUT_DIR"):
            path = os.path.join(os.environ["STOKER_OUTPUT_DIR"], ".requeue")
        if path:
            _make_parent(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            try:
                os.write(descriptor, b"%d\n" % self.attempt)
            finally:
                os.close(descriptor)
        raise Requeue

    def __repr__(self) -> str:
        return "<no job>" if self.id is None else f"<job {self.id}, attempt {self.attempt}>"


_CURRENT = CurrentJob()
logged: set[str] = set()  # names that this process has reported


def current() -> CurrentJob:
    """The job that this process belongs to; outside of one, an object that does no harm."""
    heed_warning()
    return _CURRENT


_heeds = False
_was_warned = False


def heed_warning() -> None:
    """Let the signal that the job asked for mean `should_stop()`; by default it would end us.

    A handler of the program's own stays, and so does Ctrl-C. Only the main thread can do this; a
    later call from there does it then.
    """
    global _heeds
    if _heeds:
        return
    number = os.environ.get("STOKER_WARN_SIGNAL", "")
    if not number.isdigit():
        _heeds = True
        return
    import signal

    try:
        if signal.getsignal(int(number)) is signal.SIG_DFL:
            signal.signal(int(number), _note_warning)
    except (ValueError, OSError):
        return
    _heeds = True


def _note_warning(number: int, frame: object) -> None:
    global _was_warned
    _was_warned = True


def log(*, step: SupportsFloat | None = None, **metrics: object) -> None:
    """`current().log(...)`: record values such as `stoker.log(loss=0.3, step=10)`."""
    _CURRENT.log(step=step, **metrics)


def should_stop() -> bool:
    """`current().should_stop()`: whether to save and leave."""
    return _CURRENT.should_stop()


def requeue() -> NoReturn:
    """`current().requeue()`: end this attempt and let the job wait for another one."""
    _CURRENT.requeue()


def can_name(text: str) -> bool:
    """Whether a metric can have this name: the rule of core/metrics/report_line.py without `re`."""
    return (
        text not in _OWN_KEYS
        and 0 < len(text) <= 200
        and all(c.isalnum() or c in "_./@-" for c in text)
    )


def _plain(name: str, value: object) -> object:
    """A value as JSON knows it."""
    if isinstance(value, (bool, int, float, str)):
        return value
    item = getattr(value, "item", None)  # scalars of NumPy, PyTorch, JAX
    if callable(item):
        try:
            value = item()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} is no single value: {error}") from None
        if isinstance(value, (bool, int, float, str)):
            return value
    raise TypeError(f"{name} is of type {type(value).__name__}; a number, a boolean or text can be "
                    "logged")  # fmt: skip


def _number(key: str) -> float | None:
    try:
        return float(os.environ[key])
    except (KeyError, ValueError):
        return None


def _folder(path: str | None) -> Path:
    from pathlib import Path

    if path:
        os.makedirs(path, exist_ok=True)
    return Path(path or ".")


def _make_parent(path: str) -> None:
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)


_complained = False


def _append(path: str, line: bytes) -> None:
    """One write of one line; a full disk costs the line, never the training."""
    global _complained
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            _make_parent(path)
            descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not _complained:
            _complained = True
            print(f"stoker: metrics are lost: {path}: {error.strerror}", file=sys.stderr)
