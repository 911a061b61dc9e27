"""The API for code inside a job; outside a job the same calls are harmless.

    import stoker

    job = stoker.current()
    for step in range(job.params.get("steps", 100)):
        loss = train_step()
        job.log(loss=loss, step=step)
        if job.should_stop():
            save(job.checkpoint_dir / "last.pt")
            job.requeue()

Everything comes from environment variables: nothing here talks to the daemon, and the import is
cheap.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any, NoReturn, SupportsFloat

REQUEUE_CODE = 75  # EX_TEMPFAIL: temporary failure, run the job again

# Keys of a report line that are not metrics.
_OWN_KEYS = ("at", "attempt", "step")


class Requeue(SystemExit):
    """Ends the process with the exit code that requests another attempt."""

    def __init__(self) -> None:
        super().__init__(REQUEUE_CODE)


class CurrentJob:
    """The job that this process belongs to. Properties read the environment on each access."""

    @property
    def id(self) -> int | None:
        """The number of the job; None outside a job."""
        text = os.environ.get("STOKER_JOB_ID", "")
        return int(text) if text.isdigit() else None

    @property
    def attempt(self) -> int:
        """1 for the first execution, 2 for the first retry; 0 outside a job."""
        text = os.environ.get("STOKER_ATTEMPT", "")
        return int(text) if text.isdigit() else 0

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the trial; empty outside a sweep."""
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
        """The name of the sweep; None outside a sweep."""
        return os.environ.get("STOKER_SWEEP") or None

    @property
    def trial(self) -> int | None:
        """The number of the trial in its sweep; None outside a sweep."""
        text = os.environ.get("STOKER_TRIAL", "")
        return int(text) if text.isdigit() else None

    @property
    def dir(self) -> Path:
        """A folder for output files, the same in every attempt; created on access."""
        return _folder(os.environ.get("STOKER_OUTPUT_DIR"))

    @property
    def checkpoint_dir(self) -> Path:
        """A folder for checkpoints that the next attempt resumes from; created on access."""
        chosen = os.environ.get("STOKER_CHECKPOINT_DIR")
        output = os.environ.get("STOKER_OUTPUT_DIR")
        return _folder(chosen or (os.path.join(output, "checkpoints") if output else None))

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of the job, as in CUDA_VISIBLE_DEVICES; CUDA numbers them from 0."""
        return tuple(name for name in os.environ.get("STOKER_GPUS", "").split(",") if name)

    @property
    def deadline(self) -> float | None:
        """The end of the time limit in seconds since the epoch; None without a limit."""
        return _number("STOKER_DEADLINE")

    def log(
        self,
        values: Mapping[str, object] | None = None,
        /,
        *,
        step: SupportsFloat | None = None,
        **metrics: object,
    ) -> None:
        """Report metrics: `stoker.log(loss=0.3, step=10)` or `stoker.log({"loss": 0.3}, step=10)`.

        Writes one line, atomically. Values are numbers, booleans or strings; NumPy and PyTorch
        scalars count as numbers. Raises TypeError for other values and for invalid names.
        """
        if values is not None:
            if not hasattr(values, "keys"):
                raise TypeError(f"log() takes a dict or keywords, not {values!r}")
            metrics = {**values, **metrics}
        given = metrics.pop("step", None)  # in the dict
        step_value = given if step is None else step
        line: dict[str, object] = {"at": time.time(), "attempt": self.attempt}
        if step_value is not None:
            line["step"] = _plain("step", step_value)
            if isinstance(line["step"], str):
                raise TypeError(f"step is the string {step_value!r}, not a number")
        for name, value in metrics.items():
            if not isinstance(name, str) or not can_name(name):
                raise TypeError(f"{str(name)[:40]!r} is not a valid metric name")
            line[name] = _plain(name, value)
        logged.update(metrics)
        path = os.environ.get("STOKER_METRICS")
        if path:
            import json

            append_line(path, json.dumps(line).encode() + b"\n")

    def log_image(self, name: str, image: object, step: SupportsFloat | None = None) -> None:
        """Save an image under a name: `stoker.log_image("samples", array, step=10)`.

        `image` is an array or tensor (height x width, x 1, 3 or 4 channels, also channels first;
        uint8, bool, or floats from 0 to 1), a Pillow image, a path, or the bytes of a PNG, JPEG,
        GIF or WebP file. The file is media/NAME/STEP.png in the output folder; without a step,
        images are numbered. Raises TypeError and ValueError for other values and invalid names.
        """
        from stoker.functions.media import log_image

        log_image(name, image, step)

    def log_figure(self, name: str, figure: object, step: SupportsFloat | None = None) -> None:
        """Save a figure of Matplotlib as an image: `stoker.log_figure("roc", figure, step=10)`."""
        from stoker.functions.media import log_figure

        log_figure(name, figure, step)

    def log_table(
        self,
        name: str,
        rows: object,
        columns: Sequence[str] | None = None,
        step: SupportsFloat | None = None,
    ) -> None:
        """Save a table as media/NAME/STEP.csv: a list of dicts, a list of rows with `columns`,
        a dict of columns, or a data frame of pandas or polars."""
        from stoker.functions.media import log_table

        log_table(name, rows, columns, step)

    def log_artifact(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Copy a file or folder to artifacts/NAME in the output folder of the job.

        Raises OSError if it cannot be read or written.
        """
        from stoker.functions.media import log_artifact

        log_artifact(path, name)

    def report_progress(
        self, done: SupportsFloat, total: SupportsFloat | None = None, text: str = ""
    ) -> None:
        """Report how much of the work is done: `stoker.report_progress(step, steps)`.

        `stoker`, `stoker ls` and everything that waits for the job show it and compute its end from
        it. `text` stands before the numbers, for example "epoch 3". Only the last report counts.
        """
        parts = [text.replace("\n", " ").strip()] if text else []
        parts.append(f"{float(done):.12g}" + ("" if total is None else f"/{float(total):.12g}"))
        path = os.environ.get("STOKER_PROGRESS_FILE")
        if path:
            _replace_line(path, " ".join(parts).encode() + b"\n")

    def should_stop(self) -> bool:
        """Whether to save and exit: a stop was requested, or the time limit is near."""
        handle_warning_signal()
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
        return deadline is not None and time.monotonic() >= _monotonic(deadline) - warn

    def requeue(self) -> NoReturn:
        """End this attempt and put the job back into the queue. Save a checkpoint first: the next
        attempt starts the program again. Raises RuntimeError outside a job."""
        if self.id is None:
            raise RuntimeError("requeue() can only be called inside a job")
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
logged: set[str] = set()  # names of metrics that this process has reported


def current() -> CurrentJob:
    """The job that this process belongs to; outside a job, an object whose calls are harmless."""
    handle_warning_signal()
    return _CURRENT


_handles_signal = False
_was_warned = False


def handle_warning_signal() -> None:
    """Install a handler for the warning signal of the job, so that `should_stop()` becomes true.
    Without a handler, the signal would kill the process.

    A handler that the program has installed is kept. Only the main thread can install a handler;
    calls from other threads leave it to a later call.
    """
    global _handles_signal
    if _handles_signal:
        return
    number = os.environ.get("STOKER_WARN_SIGNAL", "")
    if not number.isdigit():
        _handles_signal = True
        return
    import signal

    try:
        if signal.getsignal(int(number)) is signal.SIG_DFL:
            signal.signal(int(number), _on_warning)
    except (ValueError, OSError):
        return
    _handles_signal = True


def _on_warning(number: int, frame: object) -> None:
    global _was_warned
    _was_warned = True


def log(
    values: Mapping[str, object] | None = None,
    /,
    *,
    step: SupportsFloat | None = None,
    **metrics: object,
) -> None:
    """`current().log(...)`: report metrics, for example `stoker.log(loss=0.3, step=10)`."""
    _CURRENT.log(values, step=step, **metrics)


def log_image(name: str, image: object, step: SupportsFloat | None = None) -> None:
    """`current().log_image(...)`: save an image, for example `stoker.log_image("x", array)`."""
    _CURRENT.log_image(name, image, step)


def log_figure(name: str, figure: object, step: SupportsFloat | None = None) -> None:
    """`current().log_figure(...)`: save a figure of Matplotlib as an image."""
    _CURRENT.log_figure(name, figure, step)


def log_table(
    name: str,
    rows: object,
    columns: Sequence[str] | None = None,
    step: SupportsFloat | None = None,
) -> None:
    """`current().log_table(...)`: save a table as a CSV file."""
    _CURRENT.log_table(name, rows, columns, step)


def log_artifact(path: str | os.PathLike[str], name: str | None = None) -> None:
    """`current().log_artifact(...)`: copy a file or folder to the output folder of the job."""
    _CURRENT.log_artifact(path, name)


def report_progress(
    done: SupportsFloat, total: SupportsFloat | None = None, text: str = ""
) -> None:
    """`current().report_progress(...)`: report how much of the work is done."""
    _CURRENT.report_progress(done, total, text)


def should_stop() -> bool:
    """`current().should_stop()`: whether to save and exit."""
    return _CURRENT.should_stop()


def requeue() -> NoReturn:
    """`current().requeue()`: end this attempt and put the job back into the queue."""
    _CURRENT.requeue()


def can_name(text: str) -> bool:
    """Whether a metric name is valid: the rule of text/progress/report_line.py, without `re`."""
    return (
        text not in _OWN_KEYS
        and 0 < len(text) <= 200
        and all(c.isalnum() or c in "_./@-" for c in text)
    )


def _plain(name: str, value: object) -> object:
    """Convert a value to a JSON type; raises TypeError if it is not a single value."""
    if isinstance(value, (bool, int, float, str)):
        return value
    item = getattr(value, "item", None)  # scalars of NumPy, PyTorch, JAX
    if callable(item):
        try:
            value = item()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} is not a single value: {error}") from None
        if isinstance(value, (bool, int, float, str)):
            return value
    raise TypeError(
        f"{name} has type {type(value).__name__}; only numbers, booleans and strings can be logged"
    )


def _number(key: str) -> float | None:
    try:
        return float(os.environ[key])
    except (KeyError, ValueError):
        return None


_ends: dict[float, float] = {}  # deadline -> the same on the monotonic clock


def _monotonic(deadline: float) -> float:
    """A deadline as it was at the first call, whatever happens to the wall clock later."""
    return _ends.setdefault(deadline, deadline - time.time() + time.monotonic())


def _folder(path: str | None) -> Path:
    from pathlib import Path

    if path:
        os.makedirs(path, exist_ok=True)
    return Path(path or ".")


def _make_parent(path: str) -> None:
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)


def _replace_line(path: str, line: bytes) -> None:
    """Replace the first line of a file with a single write, so that a reader sees no empty file.

    On a full disk the line is lost, but nothing is raised.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    try:
        _make_parent(path)
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, line)
            os.ftruncate(descriptor, len(line))
        finally:
            os.close(descriptor)
    except OSError:
        pass


_has_warned_about_disk = False


def append_line(path: str, line: bytes) -> None:
    """Append a line with a single write; on a full disk the line is lost, but nothing is raised."""
    global _has_warned_about_disk
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
        if not _has_warned_about_disk:
            _has_warned_about_disk = True
            print(f"stoker: cannot write metrics: {path}: {error.strerror}", file=sys.stderr)
