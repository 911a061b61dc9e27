"""One run of `hog`: numbers the jobs, writes their folders and prints the lines of gpu-hog."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable

from stoker.compat.foreground.entry import write_all, write_notice
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.gpu_slots import FIRST_FREED
from stoker.compat.foreground.jobs import End, Job, JobSource, LineJobs, Summary, wants_zero
from stoker.compat.hog.console import Console, Workers
from stoker.compat.hog.jobs import FAILURE, SUCCESS, Folder, YieldedJobs, open_jobs
from stoker.compat.hog.options import GpuFile, Unusable, gpu_ids, parse
from stoker.errors import Error
from stoker.supervisor.parent_death import send_at_parent_death

# A failing hook prevents the job. Its output goes to a separate file, apart from the job's output.
_WITH_HOOK = '(\n{}\n) >"$HOG_DIR/HOOKS" 2>&1 </dev/null || exit 1\n{}'


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
        return Job(
            self._argv(folder.name, command),
            folder.out,
            folder.err,
            hook_variables(folder, number, command) if options.pre_hook else (),
            keep_children=True,
            key=(number, command),
        )

    def _argv(self, name: str, command: str) -> str | tuple[str, ...]:
        hook = self._options.pre_hook
        if self._function is None:
            if is_empty(command):
                command = f": && {command}"
            return command if hook is None else _WITH_HOOK.format(hook, command)
        words = (
            sys.executable,
            "-P",
            "-m",
            "stoker.compat.hog.user_code",
            "call",
            *self._function,
            name,
            command,
            self._options.output_dir,
        )
        return (
            words
            if hook is None
            else ("/bin/sh", "-c", _WITH_HOOK.format(hook, 'exec "$@"'), "hog", *words)
        )


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
    path = os.path.abspath(folder.path)
    return (
        ("HOG_JOB", str(number)),
        ("HOG_NAME", folder.name),
        ("HOG_DIR", path),
        ("HOG_COMMAND", command),
    )


class Hog(Reporter):
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._console = Console(options.log_file)
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
        self._workers = Workers(self._console.info)
        self._workers.use(slots, Counter())
        run = ForegroundRun(slots, jobs, self, order=FIRST_FREED, passes_interrupts=True)
        start = datetime.datetime.now()
        self._console.info(f"(MAIN): Starting at {start}")
        summary = run.work(lambda: None if file is None else self._check_gpu_file(run, file))
        self._workers.use([], Counter())
        self._wait_for_hooks()
        end = datetime.datetime.now()
        self._console.info(f"(MAIN): {self.ended_count} jobs completed at {end}")
        self._console.info(f"(MAIN): Lapsed Time: {end - start}")
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
        number, command, folder = self._details(job)
        self._console.info(f"(GPU {device}): running {command}")
        self._began[number] = datetime.datetime.now()
        self._try_write(lambda: folder.begin(device, command))

    def ended(self, job: Job, device: str, end: End) -> None:
        number, command, folder = self._details(job)
        self.ended_count += 1
        now = datetime.datetime.now()
        began = self._began.pop(number, now)
        self._try_write(lambda: folder.finish(end.is_good, end.returncode, began, now))
        self._console.info(f"job {number} completed")
        if not end.is_good:
            self._console.warn(f"job {number} failed: {_reason(end)}; see {folder.err}")
        if self._options.post_hook is not None:
            self._run_hook(folder, number, command, device, end)
        self._workers.freed(device)

    def _details(self, job: Job) -> tuple[int, str, Folder]:
        assert isinstance(job.key, tuple)
        number, command = job.key
        return number, command, Folder(self._options.output_dir, f"{self._options.prefix}{number}")

    def _try_write(self, write: Callable[[], None]) -> None:
        """Report a write error without stopping the other jobs."""
        try:
            write()
        except OSError as error:
            self.notice(f"cannot write `{error.filename}`: {error.strerror}")

    def _run_hook(self, folder: Folder, number: int, command: str, device: str, end: End) -> None:
        """Start the post hook in the background, so that a slow one does not keep the GPU idle."""
        env = {
            **os.environ,
            **dict(hook_variables(folder, number, command)),
            "CUDA_VISIBLE_DEVICES": device,
            "HOG_GPU": device,
            "HOG_STATUS": SUCCESS if end.is_good else FAILURE,
            "HOG_EXIT_CODE": str(end.returncode),
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            self._hooks.append(
                os.posix_spawn(
                    "/bin/sh",
                    ["/bin/sh", "-c", self._options.post_hook],
                    env,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, folder.hooks, flags, 0o666),
                        (os.POSIX_SPAWN_DUP2, 1, 2),
                    ],
                )
            )
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


def _reason(end: End) -> str:
    if end.detail is not None:
        return end.detail
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.code}"
