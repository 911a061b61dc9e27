"""One run of `hog`: numbers the jobs, writes their folders and prints the lines of gpu-hog."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from stoker.compat.foreground.entry import write_all, write_line, write_notice
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.gpu_slots import FIRST_FREED
from stoker.compat.foreground.jobs import End, Job, JobSource, LineJobs, Summary, wants_zero
from stoker.compat.hog.jobs import FAILURE, HOOKS, SUCCESS, Folder, YieldedJobs, open_jobs
from stoker.compat.hog.options import GpuFile, Unusable, gpu_ids, parse
from stoker.engine.supervisor.parent_death import send_at_parent_death
from stoker.errors import Error
from stoker.record import Record

# A failing hook prevents the job. Its output goes to a separate file, apart from the job's output.
_WITH_HOOK = '(\n{}\n) >"$HOG_DIR/HOOKS" 2>&1 </dev/null || exit 1\n{}'

LOGGER = logging.getLogger("hog")


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.result_pipe is not None:
        return _serve(options)
    return Hog(options).work().exit_code(wants_zero(options.exit_zero))


def _serve(options: argparse.Namespace) -> int:
    """The child process of `run_jobs` in main.py; writes the result to `--result_pipe`."""
    send_at_parent_death(signal.SIGTERM)
    result: dict[str, object]
    try:
        summary = Hog(options).work()
        result = {"failed": None if summary.was_interrupted else summary.failed}
    except Error as error:
        result = {"error": error.message, "hint": error.hint}
    try:
        write_all(options.result_pipe, json.dumps(result).encode())
    except BrokenPipeError:
        pass  # the caller is gone
    return 0


class _Key(Record):
    number: int
    command: str
    folder: Folder


class JobFactory:
    """Creates jobs from commands and numbers them in order of arrival."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._number = 0
        self.refused = 0
        self._function = None if options.function is None else _find_function(options.function)

    def __call__(self, command: str) -> Job | None:
        self._number += 1
        options, number = self._options, self._number
        if "\0" in command:
            self.refused += 1
            write_notice(f"job {number} contains a NUL byte; it is not run and counts as failed")
            return None
        folder = Folder(options.output_dir, f"{options.prefix}{number}")
        if options.resume and folder.has_succeeded(command):
            write_notice(f"job {number} skipped: it succeeded in an earlier run")
            return None
        variables = hook_variables(folder, number, command) if options.pre_hook else ()
        argv = self._argv(folder.name, command)
        key = _Key(number, command, folder)
        return Job(argv, folder.out, folder.err, variables, keep_children=True, key=key)

    def _argv(self, name: str, command: str) -> str | tuple[str, ...]:
        hook = self._options.pre_hook
        if self._function is None:
            if is_empty(command):
                command = f": && {command}"
            return command if hook is None else _WITH_HOOK.format(hook, command)
        call = (sys.executable, "-P", "-m", "stoker.compat.hog.user_code", "call", *self._function)
        words = (*call, name, command, self._options.output_dir)
        if hook is None:
            return words
        return ("/bin/sh", "-c", _WITH_HOOK.format(hook, 'exec "$@"'), "hog", *words)


def is_empty(command: str) -> bool:
    """Whether a command has only comments. In gpu-hog, `export ... &&` makes it a syntax error.

    >>> is_empty(""), is_empty(" # only\\n # comments"), is_empty("# a comment\\ntrue")
    (True, True, False)
    """
    lines = [line.strip() for line in command.splitlines()]
    return all(not line or line.startswith("#") for line in lines)


def _find_function(text: str) -> tuple[str, str]:
    """The file and the name of `--function`. The file is not run: that may allocate GPU memory."""
    path, _, name = text.partition(":")
    name = name or "job"
    try:
        with open(path, "rb") as file:
            source = file.read()
        compile(source, path, "exec", dont_inherit=True)
    except FileNotFoundError:
        raise Unusable(f"there is no function file `{path}`") from None
    except OSError as error:
        raise Unusable(f"cannot read `{path}`: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise Unusable(f"`{path}` is not a valid Python file: {error}") from None
    if name.encode() not in source and b"*" not in source:
        raise Unusable(
            f"there is no function `{name}` in `{path}`",
            "use another function with --function FILE.py:NAME",
        )
    return os.path.abspath(path), name


def hook_variables(folder: Folder, number: int, command: str) -> tuple[tuple[str, str], ...]:
    """The variables of hooks. (The GPU is in CUDA_VISIBLE_DEVICES, as for the job itself.)"""
    path = os.path.abspath(os.path.dirname(folder.out))
    names = ("HOG_JOB", "HOG_NAME", "HOG_DIR", "HOG_COMMAND")
    return tuple(zip(names, (str(number), folder.name, path, command), strict=True))


class Hog(Reporter):
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        _configure_logging(options.log_file)
        self._began: dict[int, datetime.datetime] = {}
        self._hooks: list[int] = []
        self._is_drained = False
        self.ended_count = 0

    def work(self) -> Summary:
        options = self._options
        file = None if options.gpu_file is None else GpuFile(options.gpu_file, options.jobs_per_gpu)
        slots = gpu_ids(options.gpus, options.jobs_per_gpu) if file is None else file.read()
        make_job = JobFactory(options)
        jobs = open_jobs(options, make_job)
        try:
            os.makedirs(options.output_dir, exist_ok=True)
        except OSError as error:
            jobs.close()
            raise Unusable(
                f"cannot create the folder `{options.output_dir}`: {error.strerror}"
            ) from None
        self._workers = Workers(LOGGER.info)
        self._workers.use(slots, Counter())
        run = ForegroundRun(slots, jobs, self, order=FIRST_FREED, passes_interrupts=True)
        start = datetime.datetime.now()
        LOGGER.info(f"(MAIN): Starting at {start}")
        summary = run.work(lambda: None if file is None else self._check_gpu_file(run, file))
        self._workers.use([], Counter())
        self._wait_for_hooks()
        end = datetime.datetime.now()
        LOGGER.info(f"(MAIN): {self.ended_count} jobs completed at {end}")
        LOGGER.info(f"(MAIN): Lapsed Time: {end - start}")
        source_error = _source_error(jobs)
        if source_error is not None and not summary.was_interrupted and not self._is_drained:
            raise Unusable(source_error, "the jobs before the error were run")
        return summary._replace(failed=summary.failed + make_job.refused)

    def _check_gpu_file(self, run: ForegroundRun, file: GpuFile) -> float:
        slots = file.read_if_changed(self.notice)
        if slots is not None:
            self._workers.use(slots, Counter(device for _, device in run.running))
            run.use(slots)
        return file.next_poll

    def signalled(self, number: int) -> bool:
        self._is_drained |= number == signal.SIGUSR1
        return False  # the foreground run handles it

    # -- callbacks of the run ------------------------------------------------------------------

    def starting(self, job: Job, device: str) -> None:
        number, command, folder = _key(job)
        LOGGER.info(f"(GPU {device}): running {command}")
        self._began[number] = datetime.datetime.now()
        self._try_write(lambda: folder.begin(device, command))

    def ended(self, job: Job, device: str, end: End) -> None:
        number, _, folder = _key(job)
        self.ended_count += 1
        now = datetime.datetime.now()
        began = self._began.pop(number, now)
        self._try_write(lambda: folder.finish(end, began, now))
        LOGGER.info(f"job {number} completed")
        if not end.is_good:
            signal_or_code = f"exit {end.code}" if end.signal is None else f"signal {end.signal}"
            reason = signal_or_code if end.detail is None else end.detail
            LOGGER.warning(f"job {number} failed: {reason}; see {folder.err}")
        if self._options.post_hook is not None:
            self._run_hook(job, device, end)
        self._workers.freed(device)

    def _try_write(self, write: Callable[[], None]) -> None:
        """Report a write error without stopping the other jobs."""
        try:
            write()
        except OSError as error:
            self.notice(f"cannot write `{error.filename}`: {error.strerror}")

    def _run_hook(self, job: Job, device: str, end: End) -> None:
        """Start the post hook in the background, so that a slow one does not keep the GPU idle."""
        number, command, folder = _key(job)
        env = {
            **os.environ,
            **dict(hook_variables(folder, number, command)),
            "CUDA_VISIBLE_DEVICES": device,
            "HOG_GPU": device,
            "HOG_STATUS": SUCCESS if end.is_good else FAILURE,
            "HOG_EXIT_CODE": str(end.returncode),
        }
        words = ["/bin/sh", "-c", self._options.post_hook]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, folder.file(HOOKS), flags, 0o666),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        try:
            self._hooks.append(os.posix_spawn(words[0], words, env, file_actions=actions))
        except OSError as error:
            self.notice(f"cannot run the post hook of job {number}: {error.strerror}")

    def _wait_for_hooks(self) -> None:
        for pid in self._hooks:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass  # already reaped by the scheduling loop


def _source_error(jobs: JobSource) -> str | None:
    """The error that ended the job source early, if any."""
    if isinstance(jobs, YieldedJobs) and jobs.error is not None:
        return f"the yielder failed: {jobs.error}"
    if isinstance(jobs, LineJobs) and jobs.failure is not None:
        return f"cannot read more of the job file: {jobs.failure}"
    return None


def _key(job: Job) -> _Key:
    assert isinstance(job.key, _Key)
    return job.key


# -- the console: stdout as in the original, and a log file with times -----------------------------


class _Stdout(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            write_line(record.getMessage())
        else:  # not on stdout, which scripts parse
            write_notice(record.getMessage())


class _File(logging.FileHandler):
    def __init__(self, path: str) -> None:
        # The encoding with which commands were decoded, so that their bytes stay unchanged.
        super().__init__(path, encoding=sys.getfilesystemencoding(), errors="surrogateescape")

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore write errors: jobs continue on a full disk, without a traceback per line."""


def _configure_logging(log_file: str | None) -> None:
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    LOGGER.handlers = [_Stdout()]
    if log_file is not None:
        try:
            file = _File(log_file)
        except OSError as error:
            raise Unusable(f"cannot write the log file `{log_file}`: {error.strerror}") from None
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        LOGGER.addHandler(file)


class Workers:
    """Prints the lines of gpu-hog when workers start and exit."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._slots: list[str] = []
        self._leaving: Counter[str] = Counter()  # workers that exit when their job ends

    def use(self, slots: Sequence[str], busy: Counter[str]) -> None:
        present, wanted = Counter(self._slots) + self._leaving, Counter(slots)
        for slot in dict.fromkeys(self._slots):
            removed = max(0, Counter(self._slots)[slot] - wanted[slot])
            at_once = min(removed, present[slot] - busy[slot])
            for _ in range(at_once):
                self._write(f"(GPU {slot}): exiting")
            self._leaving[slot] += removed - at_once
        unmatched = Counter(self._slots)
        for slot in slots:
            if unmatched[slot]:
                unmatched[slot] -= 1
            elif self._leaving[slot]:
                self._leaving[slot] -= 1  # it was added again before its job ended
            else:
                self._write(f"Worker {slot} starting")
        self._slots = list(slots)

    def freed(self, slot: str) -> None:
        if self._leaving[slot]:
            self._leaving[slot] -= 1
            self._write(f"(GPU {slot}): exiting")
