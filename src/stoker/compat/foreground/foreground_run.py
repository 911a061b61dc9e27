"""Run the jobs of a compatible command in the foreground, with a temporary database.

run = ForegroundRun(["0", "1"], LineJobs(0, Job), Reporter())
summary = run.work()        # blocks until all jobs have finished
return summary.exit_code()

Jobs never outlive this process, not even after SIGKILL. Signals:

- SIGUSR1 drains: running jobs finish, no others are started.
- SIGINT, SIGTERM and SIGHUP cancel the jobs; a second one kills them.
- With `passes_interrupts` the first SIGINT is sent to the jobs, as a terminal would send it, and no
  others are started.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable

from stoker.compat.foreground.entry import write_all, write_notice
from stoker.compat.foreground.gpu_slots import LOWEST, make_slots
from stoker.compat.foreground.jobs import End, Job, JobSource, Summary, working_directory
from stoker.engine.daemon.foreground import Foreground
from stoker.engine.daemon.interfaces import EventListener, Host
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import Context, JobSpec, Outcome, Request
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store.database import open_temporary
from stoker.engine.store.meta import tag_base
from stoker.engine.store.output_columns import literal_path
from stoker.engine.store.submit import Submission
from stoker.engine.supervisor.regular_files import open_for_output
from stoker.errors import NoPermission
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.text.byte_text import to_system

_ONE_SLOT = Request(gpus=1)
_PREFIX = "compat"  # of the folder of a run
_HOST = Host(0, "")  # the database is removed with this process, so the boot ID is never compared


class Reporter:
    """Callbacks of a run. `device` is the device string of the job's slot."""

    def starting(self, job: Job, device: str) -> None:
        """Called before the process is created, so that text printed here precedes its output."""

    def ended(self, job: Job, device: str, end: End) -> None:
        """Called when the job is over and none of its processes is left."""

    def notice(self, text: str) -> None:
        """Print a message of the run."""
        write_notice(text)

    def signalled(self, number: int) -> bool:
        """Called before the run reacts to a signal; return True to suppress the reaction."""
        return False


class ForegroundRun(EventListener):
    """One run of a compatible command. `work` may be called once."""

    wants_ends_first = True

    def __init__(
        self,
        devices: Iterable[str],
        jobs: JobSource,
        reporter: Reporter,
        *,
        order: str = LOWEST,
        passes_interrupts: bool = False,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or load_settings()
        self._reporter = reporter
        self._source = _Source(jobs, _context(settings))
        self._folder = _new_folder(settings)
        self._db = open_temporary(self._folder)
        base = tag_base(self._db)
        self._slots = make_slots(list(devices), settings, base, order, reporter.notice)
        self._live: dict[int, tuple[Job, str]] = {}
        self._done = self._failed = 0
        self._last_wait_reason = ""
        self._passes_interrupts = passes_interrupts
        own_settings = settings._replace(state_dir=self._folder, gpu_file=None)
        self._foreground = Foreground(
            self._db,
            self._source,
            _HOST,
            self._slots,
            own_settings,
            self,
            lambda job, number: None,
            lambda job: os.path.join(self._folder, str(job)),
            cancels_at_once=not passes_interrupts,
            on_signal=self._on_signal,
        )

    def work(self, before_wait: Callable[[], float | None] = lambda: None) -> Summary:
        """Run all jobs. `before_wait` is called regularly and returns when it is next due."""
        jobs = self._source.jobs
        if jobs.pid is not None:
            self._foreground.ignore(jobs.pid)
        try:
            self._foreground.work(lambda: self._before_wait(before_wait))
        finally:
            jobs.close()
            self._db.close()
            _remove_folder(self._folder)
        return Summary(self._done, self._failed, bool(self._foreground.interrupts))

    def use(self, devices: Iterable[str]) -> None:
        """Replace the slots; jobs in removed slots may finish."""
        self._slots.use(devices)
        self._foreground.devices_changed()

    @property
    def running(self) -> list[tuple[Job, str]]:
        """The running jobs, each with the device string of its slot."""
        return list(self._live.values())

    @property
    def waiting(self) -> list[Job]:
        """The jobs that were read and never started; also valid after `work` returned."""
        return [job for number, job in self._source.known.items() if number not in self._live]

    # -- callbacks of the scheduling loop ------------------------------------------------------

    def starting(self, job: int, devices: tuple[int, ...]) -> None:
        self._live[job] = (self._source.known[job], self._slots.devices[devices[0]].visible)
        self._reporter.starting(*self._live[job])

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        finished_job, device = self._live.pop(job)
        if verdict.event == "return":
            return  # the job asked to be requeued
        del self._source.known[job]
        self._foreground.finished_one()
        if verdict.event == "succeed":
            self._done += 1
        else:
            self._failed += 1
        if verdict.cause == "start_failed" and outcome.detail is not None:
            _report_failed_start(finished_job, self._source.context.cwd, outcome.detail)
        end = End(verdict.exit_code, verdict.signal, verdict.cause, outcome.detail)
        self._reporter.ended(finished_job, device, end)

    def message(self, text: str) -> None:
        self._reporter.notice(text)

    def _on_signal(self, number: int) -> bool:
        if self._reporter.signalled(number):
            return True
        if number == signal.SIGINT and self._passes_interrupts and not self._foreground.interrupts:
            for job in self._live:
                pid = self._foreground.pid_of(job)
                if pid is not None:  # not reaped yet, so the process group ID is still in use
                    _interrupt(pid)
        return False

    def _before_wait(self, before_wait: Callable[[], float | None]) -> float | None:
        if self._slots.is_monitored and self._source.known and not self._live:
            self._report_wait_reason()
        return before_wait()

    def _report_wait_reason(self) -> None:
        """Print why no job runs although jobs wait, if other processes use all GPUs of the run."""
        states = self._slots.states.values()
        if any(state.closes_briefly for state in states):
            return
        closed = [
            state.closed_reason or state.note or "used by another process"
            for state in states
            if state.closed_reason is not None or state.has_other_processes
        ]
        text = "; ".join(dict.fromkeys(closed))
        if len(closed) == len(self._slots.devices) and text != self._last_wait_reason:
            self._last_wait_reason = text
            self._reporter.notice(f"waiting for a GPU: {text}")


class _Source:
    """Converts the jobs of a compatible command to job specs for the scheduling loop."""

    def __init__(self, jobs: JobSource, context: Context) -> None:
        self.jobs = jobs
        self.context = context
        self.known: dict[int, Job] = {}  # waiting and running jobs by job ID
        self._read: list[Job] = []

    @property
    def descriptor(self) -> int | None:
        return self.jobs.descriptor

    @property
    def at_end(self) -> bool:
        return self.jobs.at_end

    @property
    def is_ready(self) -> bool:
        return not self.jobs.at_end

    def read(self) -> list[JobSpec]:
        self._read = self.jobs.read()
        return [self._spec(job) for job in self._read]

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        first = submission.add(specs, time.time()).first
        self.known.update(enumerate(self._read, first))

    def _spec(self, job: Job) -> JobSpec:
        command, context = job.command, self.context
        is_text = isinstance(command, str)
        return JobSpec(
            (command or " ",) if isinstance(command, str) else command,  # an empty text is valid
            context,
            is_text,
            _ONE_SLOT,
            settings=JobSettings(keep_children=job.keep_children),
            variables=job.env,
            stdout=_absolute(job.stdout, context.cwd),
            stderr=_absolute(job.stderr, context.cwd),
        )


def _context(settings: Settings) -> Context:
    """The working directory, environment, umask and shell of the jobs."""
    if "STOKER_JOB_ID" in os.environ:  # inside a job, whose STOKER_* variables must not leak
        from stoker.client.context import current_context  # imports a lot, and is rarely needed

        return current_context(settings, working_directory())._replace(shell="/bin/sh")
    mask = os.umask(0o077)
    os.umask(mask)
    env = sorted(pair for pair in os.environ.items() if pair[0] != "_")  # set by the shell
    return Context(working_directory(), tuple(env), mask, "/bin/sh")


def _interrupt(group: int) -> None:
    try:
        os.killpg(group, signal.SIGINT)
    except (ProcessLookupError, PermissionError):
        pass


def _absolute(path: str | None, cwd: str) -> str | None:
    """The path as it is stored; in the original tools, `%j` in it has no meaning."""
    return None if path is None else literal_path(os.path.join(cwd, path))


def _report_failed_start(job: Job, cwd: str, detail: str) -> None:
    """Write why a program could not be started to the job's stderr, as a shell would."""
    path = job.stderr if job.stderr is not None else job.stdout
    text = f"/bin/sh: {detail}"
    if path is None:
        write_notice(text)
        return
    try:
        file_path = to_system(os.path.join(cwd, path))
        with open(open_for_output(file_path, truncate=False), "ab", buffering=0) as file:
            write_all(file.fileno(), to_system(f"{text}\n"))
    except OSError:
        pass  # the same error may have prevented the start


# -- the folder of a run, created when the first file is written -----------------------------------


def _new_folder(settings: Settings) -> str:
    """A path for the folder of this run, which does not exist yet.

    It is inside the state folder if that exists and is usable. A network file system is fine, since
    only one process uses the folder and no locks are needed. A missing state folder is not created:
    a job that creates its own folder would create it too, readable by every user.
    """
    if os.path.isdir(settings.state_dir):
        try:
            prepare_state_dir(settings)
            runs = os.path.join(settings.state_dir, "runs")
            _remove_leftovers(runs)
            return os.path.join(runs, f"{_PREFIX}-{os.getpid()}-{time.time_ns()}")
        except (NoPermission, OSError):
            pass
    # Unpredictable, so that no other user can create it first.
    return os.path.join(
        _temporary_folder(), f"stoker-{_PREFIX}-{os.getpid()}-{os.urandom(8).hex()}"
    )


def _temporary_folder() -> str:
    """Like `tempfile.gettempdir`, without the slow import of `tempfile`."""
    path = os.environ.get("TMPDIR", "")
    return path if os.path.isabs(path) and os.access(path, os.W_OK) else "/tmp"


def _remove_folder(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            os.rmdir(os.path.join(folder, name))  # output folders of jobs, usually empty
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError:
        import shutil  # slow to import

        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(runs: str) -> None:
    """Remove the folders of runs that were killed."""
    for name in os.listdir(runs) if os.path.isdir(runs) else ():
        prefix, *numbers = name.split("-")  # PREFIX-PID-TIME; other names are of `stoker run`
        if len(numbers) != 2 or prefix != _PREFIX or not numbers[0].isdigit():
            continue
        if not os.path.exists(f"/proc/{numbers[0]}"):
            _remove_folder(os.path.join(runs, name))
