"""One run of `hog`: numbers jobs, keeps their folders, says on the console what gpu-hog said."""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable

from stoker.compat.foreground.entry import write_notice
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.gpu_slots import FIRST_FREED
from stoker.compat.foreground.job_sources import JobSource, LineJobs
from stoker.compat.foreground.jobs import End, Job, Summary
from stoker.compat.hog.gpus import GpuFile, Workers
from stoker.compat.hog.job_files import FAILURE, SUCCESS, Folder
from stoker.compat.hog.jobs import YieldedJobs, open_jobs
from stoker.compat.hog.log import Console
from stoker.compat.hog.options import Unusable, gpu_ids
from stoker.compat.hog.user_module import may_define

# A hook that fails ends the job before it began. Its words go where nobody mistakes them for the
# job's.
_WITH_HOOK = '(\n{}\n) >"$HOG_DIR/HOOKS" 2>&1 </dev/null || exit 1\n{}'


class Maker:
    """Commands become jobs, numbered in the order in which they come."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._number = 0
        self.refused = 0
        self._function = None if options.function is None else _function(options.function)

    def __call__(self, command: str) -> Job | None:
        self._number += 1
        options, number = self._options, self._number
        if "\0" in command:
            self.refused += 1
            write_notice(f"job {number} holds a NUL byte; it is not run and counts as failed")
            return None
        folder = Folder(options.output_dir, f"{options.prefix}{number}")
        if options.resume and folder.has_succeeded(command):
            write_notice(f"job {number} is left out: it succeeded before")
            return None
        return Job(
            self._words(folder.name, command), folder.out, folder.err,
            hook_variables(folder, number, command) if options.pre_hook else (),
            keep_children=True, key=(number, command),
        )  # fmt: skip

    def _words(self, name: str, command: str) -> str | tuple[str, ...]:
        hook = self._options.pre_hook
        if self._function is None:
            if is_nothing(command):
                command = f": && {command}"
            return command if hook is None else _WITH_HOOK.format(hook, command)
        words = (sys.executable, "-P", "-m", "stoker.compat.hog.call", *self._function,
                 name, command, self._options.output_dir)  # fmt: skip
        return words if hook is None else \
            ("/bin/sh", "-c", _WITH_HOOK.format(hook, 'exec "$@"'), "hog", *words)  # fmt: skip


def is_nothing(command: str) -> bool:
    """Whether a shell finds no command there. gpu-hog's put it behind `export ... &&`, and failed.

    >>> is_nothing(""), is_nothing(" # only\\n # remarks"), is_nothing("# a remark\\ntrue")
    (True, True, False)
    """
    lines = [line.strip() for line in command.splitlines()]
    return all(not line or line.startswith("#") for line in lines)


def _function(text: str) -> tuple[str, str]:
    path, _, name = text.partition(":")
    name = name or "job"
    try:
        with open(path, "rb") as file:
            has_it = may_define(file.read(), name)
    except OSError as error:
        if not os.path.exists(path):
            raise Unusable(f"there is no file `{path}` with a function for jobs") from None
        raise Unusable(f"cannot read `{path}`: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise Unusable(f"`{path}` is not a Python file that could be run: {error}") from None
    if not has_it:
        raise Unusable(f"there is no function `{name}` in `{path}`",
                       "--function FILE.py:NAME names another one")  # fmt: skip
    return os.path.abspath(path), name


def hook_variables(folder: Folder, number: int, command: str) -> tuple[tuple[str, str], ...]:
    """What hooks can know of a job. (The GPU is CUDA_VISIBLE_DEVICES, as in the job itself.)"""
    path = os.path.abspath(folder.path)
    return (("HOG_JOB", str(number)), ("HOG_NAME", folder.name), ("HOG_DIR", path),
            ("HOG_COMMAND", command))  # fmt: skip


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
        maker = Maker(options)
        jobs = open_jobs(options, maker)
        try:
            os.makedirs(options.output_dir, exist_ok=True)
        except OSError as error:
            jobs.close()
            raise Unusable(f"cannot make the folder `{options.output_dir}`: "
                           f"{error.strerror}") from None  # fmt: skip
        self._workers = Workers(self._console.say)
        self._workers.use(slots, Counter())
        run = ForegroundRun(slots, jobs, self, order=FIRST_FREED, passes_interrupts=True)
        start = datetime.datetime.now()
        self._console.say(f"(MAIN): Starting at {start}")
        summary = run.work(lambda: None if file is None else self._follow(run, file))
        self._workers.use([], Counter())
        self._wait_for_hooks()
        end = datetime.datetime.now()
        self._console.say(f"(MAIN): {self.ended_count} jobs completed at {end}")
        self._console.say(f"(MAIN): Lapsed Time: {end - start}")
        trouble = _trouble(jobs)
        if trouble is not None and not summary.was_interrupted and not self._is_drained:
            raise Unusable(trouble, "the jobs before that were run")
        return summary._replace(failed=summary.failed + maker.refused)

    def _follow(self, run: ForegroundRun, file: GpuFile) -> float:
        slots = file.news(self.notice)
        if slots is not None:
            self._workers.use(slots, Counter(device for _, device in run.running))
            run.use(slots)
        return file.look_at

    def signalled(self, number: int) -> bool:
        self._is_drained |= number == signal.SIGUSR1
        return False  # what it does is the engine's business

    # -- what happens to jobs ------------------------------------------------------------------

    def starting(self, job: Job, device: str) -> None:
        number, command, folder = self._facts(job)
        self._console.say(f"(GPU {device}): running {command}")
        self._began[number] = datetime.datetime.now()
        self._guarded(lambda: folder.begin(device, command))

    def ended(self, job: Job, device: str, end: End) -> None:
        number, command, folder = self._facts(job)
        self.ended_count += 1
        now = datetime.datetime.now()
        began = self._began.pop(number, now)
        self._guarded(lambda: folder.finish(end.is_good, end.returncode, began, now))
        self._console.say(f"job {number} completed")
        if not end.is_good:
            self._console.warn(f"job {number} failed: {_why(end)}; see {folder.err}")
        if self._options.post_hook is not None:
            self._run_hook(folder, number, command, device, end)
        self._workers.freed(device)

    def _facts(self, job: Job) -> tuple[int, str, Folder]:
        assert isinstance(job.key, tuple)
        number, command = job.key
        return number, command, Folder(self._options.output_dir, f"{self._options.prefix}{number}")

    def _guarded(self, write: Callable[[], None]) -> None:
        """A full disk must not stop the other jobs."""
        try:
            write()
        except OSError as error:
            self.notice(f"cannot write `{error.filename}`: {error.strerror}")

    def _run_hook(self, folder: Folder, number: int, command: str, device: str, end: End) -> None:
        """Not waited for: mail may be slow, and GPUs are not kept waiting."""
        env = {
            **os.environ, **dict(hook_variables(folder, number, command)),
            "CUDA_VISIBLE_DEVICES": device, "HOG_GPU": device,
            "HOG_STATUS": SUCCESS if end.is_good else FAILURE,
            "HOG_EXIT_CODE": str(end.returncode),
        }  # fmt: skip
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            self._hooks.append(os.posix_spawn(
                "/bin/sh", ["/bin/sh", "-c", self._options.post_hook], env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, folder.hooks, flags, 0o666),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
            ))  # fmt: skip
        except OSError as error:
            self.notice(f"the hook of job {number} cannot be run: {error.strerror}")

    def _wait_for_hooks(self) -> None:
        for pid in self._hooks:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass  # the engine has seen it end


def _trouble(jobs: JobSource) -> str | None:
    """Why there were not as many jobs as there should have been."""
    if isinstance(jobs, YieldedJobs) and jobs.trouble is not None:
        return f"the yielder failed: {jobs.trouble}"
    if isinstance(jobs, LineJobs) and jobs.failure is not None:
        return f"the job file cannot be read any further: {jobs.failure}"
    return None


def _why(end: End) -> str:
    if end.detail is not None:
        return end.detail
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.code}"
