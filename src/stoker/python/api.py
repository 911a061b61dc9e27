"""The Python API: submit commands and function calls as jobs.

    import stoker

    job = stoker.submit("python train.py --lr 0.1", gpus=2)     # a command; options as keywords
    job = stoker.submit(["python", "train.py"], gpus=2)         # a list of words, without a shell
    job = stoker.submit(evaluate, "model.pt", split="test")     # a call with its arguments

    @stoker.job(gpus=1, gpu_mem="20G", retries=1)
    def train(lr: float, seed: int = 0) -> float: ...

    train(0.1)                                  # an ordinary call in this process
    train.submit(0.1, seed=3).result()          # a job
    train.map([0.1, 0.01, 0.001], seed=3)       # three jobs
    train.options(gpus=2).submit(0.1)
    stoker.job(evaluate, gpus=0).submit("model.pt")             # options for any function

Options of a job and arguments of a function never share a parameter list: after a function come
only its arguments, and options are given with `job(...)` or `.options(...)`.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from stoker.errors import UsageError
from stoker.functions.payload import importable_name, label
from stoker.python.function_arguments import check_calls, check_parameters
from stoker.python.job import Job, deadline, seconds_left
from stoker.python.wait import DoneAndNotDone, as_completed, wait

if TYPE_CHECKING:
    from typing import Unpack

    from stoker.client.queue import Queue as StoredQueue
    from stoker.client.submit.parsed_options import ParsedOptions
    from stoker.engine.model import JobSpec
    from stoker.python.options import Options
    from stoker.python.sweep import Params, Sweep
    from stoker.settings import Settings

__all__ = ["JobFunction", "Queue", "as_completed", "job", "submit", "sweep", "wait"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Which: TypeAlias = Job[Any] | int | str

_UNFINISHED = ("waiting", "active")


class JobFunction(Generic[P, R]):
    """A function that can also run as a job; the result of `@job`."""

    if TYPE_CHECKING:
        __name__: str
        __qualname__: str

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.__stoker_function__ = function
        self._options = dict(options)
        self._parsed: ParsedOptions | None = None
        if options:
            self._parsed_options()  # raise errors where the options are written

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in this process."""
        return self.__stoker_function__(*args, **kwargs)

    @overload
    def submit(
        self: JobFunction[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Job[T]: ...
    @overload
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    def submit(self, *args: Any, **kwargs: Any) -> Job[Any]:
        """Submit a call with these arguments. Raises TypeError if they do not fit."""
        return Queue()._call(self, [(args, kwargs)])[0]

    def map(self, *iterables: Iterable[Any], **kwargs: Any) -> list[Job[R]]:
        """Submit one job for each item, or each tuple of items like the built-in map.

        All jobs are submitted together and get the same keyword arguments.

        >>> train.map([0.1, 0.01], seed=3)                   # doctest: +SKIP
        """
        return Queue().map(self, *iterables, **kwargs)

    def sweep(self, params: Params, **sweep_options: Any) -> Sweep:
        """Start a sweep over values of its arguments (see python/sweep.py).

        >>> train.sweep({"lr": [0.1, 0.01], "seed": "range(3)"})     # doctest: +SKIP
        """
        return Queue().sweep(self, params, **sweep_options)

    def options(self, **changes: Unpack[Options]) -> JobFunction[P, R]:
        """Return the same function with changed options."""
        return JobFunction(self.__stoker_function__, {**self._options, **changes})

    def _parsed_options(self) -> ParsedOptions:
        if self._parsed is None:
            from stoker.client.submit.parsed_options import read_options

            self._parsed = read_options(self._options)
        return self._parsed

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._options.items())
        return f"<job function {label(self)}({options})>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name if the name refers to this object, else by value."""
        function = self.__stoker_function__
        if importable_name(function) is not None and _at(function) is self:
            return function.__qualname__
        return JobFunction, (function, self._options)


@overload
def job(function: Callable[P, R], /, **options: Unpack[Options]) -> JobFunction[P, R]: ...
@overload
def job(**options: Unpack[Options]) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...
def job(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function submittable: `@job`, `@job(gpus=2)` or `job(f, gpus=2)`.

    >>> @job(gpus=0, retries=1)
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> double(21)
    42
    """
    if function is None:
        return lambda function: job(function, **options)
    if isinstance(function, JobFunction):
        return function.options(**options)
    _check_function(function)
    return JobFunction(function, options)


def _check_function(function: object) -> None:
    if isinstance(function, (staticmethod, classmethod)) or not callable(function):
        raise UsageError(
            f"{function!r} is not a function and cannot be a job", "put @job directly above a def"
        )
    name = getattr(function, "__qualname__", "")
    around = name.rpartition(".")[0]
    is_in_class = around and not around.endswith("<locals>") and isinstance(function, FunctionType)
    if is_in_class and importable_name(function) is None:
        raise UsageError(
            f"`{name}` is a method, but @job works only for functions",
            "write a function outside the class that creates the object and calls the method",
        )


def _at(function: Callable[..., Any]) -> object:
    """The object that the function's module and name refer to."""
    found: object = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found


class Queue:
    """The job queue of this user on this host; `state_dir` selects another queue."""

    def __init__(self, state_dir: str | os.PathLike[str] | None = None) -> None:
        from stoker.settings import load_settings

        settings = load_settings()
        if state_dir is not None:
            settings = settings._replace(state_dir=os.path.abspath(os.fsdecode(state_dir)))
        self._settings: Settings = settings

    @property
    def state_dir(self) -> str:
        return self._settings.state_dir

    # -- submit ------------------------------------------------------------------------------

    @overload
    def submit(
        self,
        command: str | Sequence[str],
        /,
        *,
        array: str | Sequence[int],
        **options: Unpack[Options],
    ) -> list[Job[int]]: ...
    @overload
    def submit(self, command: str | Sequence[str], /, **options: Unpack[Options]) -> Job[int]: ...
    @overload
    def submit(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Job[R]: ...
    @overload
    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    def submit(self, what: Any, /, *args: Any, **kwargs: Any) -> Job[Any] | list[Job[Any]]:
        """Submit a command (shell text or a list of words) or a call; see the module docstring.

        With `array="0-9"`, returns the jobs of the array.
        """
        if callable(what):
            return self._call(what, [(args, kwargs)])[0]
        if args:
            raise UsageError(
                f"a command takes no further arguments ({args[0]!r})",
                'pass the words as a list: submit(["python", "train.py"])',
            )
        jobs = self._command(what, kwargs)
        return jobs if kwargs.get("array") is not None else jobs[0]

    def map(
        self, function: Callable[..., R], *iterables: Iterable[Any], **kwargs: Any
    ) -> list[Job[R]]:
        """Submit one job for each item (or tuple of items) with the same keyword arguments."""
        if not iterables:
            raise UsageError("map needs at least one iterable", "train.map([0.1, 0.01])")
        return self._call(function, [(args, kwargs) for args in zip(*iterables, strict=False)])

    def sweep(
        self,
        what: str | Sequence[str] | Callable[..., Any],
        params: Params,
        **options: Any,
    ) -> Sweep:
        """Start a sweep of a command or a function: see `stoker.sweep`."""
        from stoker.python import sweep

        if callable(what):
            function = what if isinstance(what, JobFunction) else JobFunction(what, {})
            check_parameters(function.__stoker_function__, params)
            own = {key: value for key, value in function._options.items() if key != "name"}
            return sweep.start(self._settings, function, params, {**own, **options})
        return sweep.start(self._settings, what, params, options)

    def sweeps(self) -> list[Sweep]:
        """All sweeps of this queue."""
        from stoker.features.sweeps import store as sweeps
        from stoker.python.sweep import Sweep

        return [Sweep(self._settings, row.name) for row in sweeps.all_sweeps(self._open().db)]

    def find_sweep(self, name: str) -> Sweep:
        """Return the sweep with this name; raises NotFound."""
        from stoker.features.sweeps import store as sweeps
        from stoker.python.sweep import Sweep

        sweeps.get(self._open().db, name)
        return Sweep(self._settings, name)

    # -- find and change ---------------------------------------------------------------------

    def job(self, id: int) -> Job[Any]:
        """Return the job with this number; raises NotFound."""
        from stoker.engine.store import job_queries

        handle: Job[Any] = Job(self._settings, id)
        job_queries.job(self._open().db, id)
        return handle

    def jobs(self, *which: Which) -> list[Job[Any]]:
        """Return the jobs for these selectors, as on the command line; by default unfinished jobs.

        >>> Queue().jobs("failed"), Queue().jobs("3-9", "@")     # doctest: +SKIP
        """
        return [Job(self._settings, id) for id in self._ids(which or _UNFINISHED)]

    def cancel(self, *which: Which, grace: float | None = None) -> int:
        """Cancel jobs; return how many had not finished."""
        return sum(self._open().cancel(self._ids(which), grace))

    def hold(self, *which: Which) -> int:
        return self._open().hold(self._ids(which))

    def release(self, *which: Which) -> int:
        return self._open().release(self._ids(which))

    def rerun(self, *which: Which, same_code: bool = False) -> list[Job[Any]]:
        """Submit new jobs with the same command and options.

        With `same_code`, they run in the same snapshot; without one, Conflict is raised if the code
        in their folder has changed.
        """
        new = self._open().rerun(self._ids(which), same_code=same_code)
        return [Job(self._settings, id) for id in new]

    def wait(
        self, *which: Which, timeout: float | None = None, progress: bool | None = None
    ) -> DoneAndNotDone[Job[Any]]:
        """Wait for jobs as `stoker wait` does, by default for all unfinished jobs: a name means its
        unfinished jobs, else the newest one; a sweep, all its trials."""
        from stoker.engine.store.waited_jobs import select_waited
        from stoker.python.sweep import Sweep

        queue, end = self._open(), deadline(timeout)
        waited = select_waited(queue.db, self._words(which or _UNFINISHED))
        for name in waited.sweeps:
            Sweep(self._settings, name).wait(seconds_left(end), progress=progress)
        jobs: list[Job[Any]] = [Job(self._settings, id) for id in waited.ids(queue.db)]
        return wait(jobs, seconds_left(end), progress=progress)

    def __repr__(self) -> str:
        return f"Queue({self.state_dir!r})"

    # -- inside ------------------------------------------------------------------------------

    def _open(self) -> StoredQueue:
        from stoker.client.queue_connections import thread_queue

        return thread_queue(self._settings)

    def _ids(self, which: Iterable[Which]) -> list[int]:
        return self._open().select(self._words(which))

    def _words(self, which: Iterable[Which]) -> list[str]:
        words = []
        for item in which:
            if isinstance(item, Job):
                if item.state_dir != self.state_dir:
                    raise UsageError(f"job {item.id} is in another queue (`{item.state_dir}`)")
                item = item.id
            words.append(str(item))
        return words

    def _command(self, what: object, options: Mapping[str, Any]) -> list[Job[int]]:
        from stoker.client.submit.parsed_options import check_words, read_options, text_words

        if isinstance(what, str):
            words: tuple[str, ...] = (what,)
        elif isinstance(what, Iterable) and not isinstance(what, bytes):
            words = text_words(what)
        else:
            raise UsageError(
                f"{what!r} is neither a command nor a function",
                'submit("python train.py"), submit(["python", "train.py"]) or submit(train, 0.1)',
            )
        check_words(words)
        spec = self._spec(read_options(options))
        return self._add([spec._replace(argv=words, shell=isinstance(what, str))])

    def _spec(self, options: ParsedOptions) -> JobSpec:
        from stoker.client.submit.parsed_options import make_spec

        return make_spec(options, self._settings, self._open().devices())

    def _call(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
        options: Mapping[str, Any] | None = None,
        fair_share_group: str = "",
    ) -> list[Job[Any]]:
        """Submit calls of one function. Raises before any job is submitted if the arguments do not
        fit or cannot be pickled."""
        import hashlib

        from stoker.functions import call, payload_files
        from stoker.functions.payload import Packer, call_text
        from stoker.python.function_arguments import python_for

        if not isinstance(function, JobFunction):
            function = JobFunction(function, options or {})
        elif options:
            function = JobFunction(function.__stoker_function__, {**options, **function._options})
        parsed = function._parsed_options()
        if parsed.array is not None:
            raise UsageError(
                "`array` is for commands, not for functions",
                "submit one call for each value with map: train.map(range(10))",
            )
        if len(calls) != 1 and parsed.fields["dedupe"] is not None:
            raise UsageError(
                "`dedupe` is a key for a single job, but map submits several",
                "submit them one by one",
            )
        if not sys.executable:
            raise UsageError("sys.executable is empty, so Python cannot be started again")
        check_calls(function.__stoker_function__, calls)
        if not calls:
            return []
        packer = Packer(function)
        pieces = [packer.shared]
        pieces += [packer.call(args, kwargs) for args, kwargs in calls]
        spec = self._spec(parsed)._replace(fair_share_group=fair_share_group)
        if spec.name is None:
            spec = spec._replace(name=packer.label.rpartition(".")[2])
        python = python_for(spec)
        files_dir = self._open().files_dir(spec.request.backend)
        folder = payload_files.new_folder(files_dir)
        try:
            payload_files.write(folder, payload_files.CALL, pieces)
        except BaseException:
            payload_files.remove_folder(folder)
            raise
        shared = hashlib.sha256(packer.shared)
        specs, offset = [], len(packer.shared)
        for piece, (args, kwargs) in zip(pieces[1:], calls, strict=True):
            digest = shared.copy()
            digest.update(piece)
            slices = [(0, len(packer.shared)), (offset, len(piece))]
            offset += len(piece)
            text = call_text(packer.label, args, kwargs)
            words = call.words(python, text, folder, digest.hexdigest(), slices)
            specs.append(spec._replace(argv=words, shell=False))
        return self._add(specs, folder)

    def _add(self, specs: list[JobSpec], folder: str | None = None) -> list[Job[Any]]:
        from stoker.client.queue import CHUNK

        queue = self._open()
        submission = queue.submission()
        ids: list[int] = []
        added = 0
        try:
            for start in range(0, len(specs), CHUNK):
                receipt = submission.add(specs[start : start + CHUNK], time.time())
                ids += receipt.ids
                added += receipt.added
        finally:
            if folder is not None and not added:  # refused, or a job with its dedupe key exists
                from stoker.functions import payload_files

                payload_files.remove_folder(folder)
        if not specs[0].held:
            queue.ensure_daemon()
        return [Job(self._settings, id, ids) for id in ids]


@overload
def submit(
    command: str | Sequence[str], /, *, array: str | Sequence[int], **options: Unpack[Options]
) -> list[Job[int]]: ...
@overload
def submit(command: str | Sequence[str], /, **options: Unpack[Options]) -> Job[int]: ...
@overload
def submit(
    function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> Job[R]: ...
@overload
def submit(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
def submit(what: Any, /, *args: Any, **kwargs: Any) -> Job[Any] | list[Job[Any]]:
    """Submit a command (`submit("python train.py", gpus=2)`) or a call (`submit(train, 0.1)`).

    For a command, keywords are options; with `array="0-9"`, the result is a list of jobs. For a
    function, all arguments are passed to it; give options with `job`:
    `job(train, gpus=2).submit(0.1)`.
    """
    found: Job[Any] | list[Job[Any]] = Queue().submit(what, *args, **kwargs)
    return found


def sweep(what: str | Sequence[str] | Callable[..., Any], params: Params, **options: Any) -> Sweep:
    """Start a sweep of a command or a function; the same sweep again runs only what is missing.

    `sweep("python train.py --lr {lr}", {"lr": [1e-3, 1e-4]}, gpus=1, max_parallel=4)`

    Options of the sweep: name, method, trials, seed, metric ("val_loss" or "acc:max"), early_stop,
    max_parallel, max_fails, same_fails; all others are those of `submit`.
    """
    return Queue().sweep(what, params, **options)
