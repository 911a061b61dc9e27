"""Jobs of a door in the foreground: on the engine, in slots, with a store that goes with it.

run = AttachedRun(["0", "1"], ListedJobs([Job("python train.py")]), Reporter())
summary = run.work()        # blocks until all jobs have ended
return summary.exit_code()

Whatever ends this process, also kill -9, ends its jobs. SIGUSR1 drains: running jobs finish, no
others are started. SIGINT, SIGTERM and SIGHUP cancel; once more kills. With `passes_interrupts` the
first SIGINT is for the jobs, as it would be from a terminal, and no others are started.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable

from stoker.compat.foreground.entry import say, write_all
from stoker.compat.foreground.gpu_slots import LOWEST, slot_cards
from stoker.compat.foreground.job_sources import JobSource
from stoker.compat.foreground.jobs import INHERIT, End, Job, Summary
from stoker.compat.foreground.scratch_folders import here, new_folder, remove_folder
from stoker.core.formats.byte_text import to_system
from stoker.core.model import Context, JobSpec, Outcome, Request
from stoker.core.outcome.retry import Verdict
from stoker.daemon.foreground import Foreground
from stoker.daemon.interfaces import EventListener, Host
from stoker.settings import Settings, load_settings
from stoker.store.database import open_temporary
from stoker.store.meta import store_tag
from stoker.store.submit import Submission
from stoker.supervisor.regular_files import open_for_output

_ONE_SLOT = Request(gpus=1)
_HOST = Host(0, "")  # the books end with this process: no other boot will read them


class Reporter:
    """Who wants to be told. `device` is the device string of the job's slot."""

    def starting(self, job: Job, device: str) -> None:
        """Just before its process is made: what is printed here comes before its own output."""

    def started(self, job: Job, device: str, pid: int | None) -> None:
        """It runs; no pid when it could not be started, which `ended` then tells."""

    def ended(self, job: Job, device: str, end: End) -> None:
        """It is over, and nothing of it is left."""

    def says(self, text: str) -> None:
        """Something that is worth a line."""
        say(text)

    def signalled(self, number: int) -> bool:
        """A signal came and nothing was done about it yet; True when nothing else should be."""
        return False


class ForegroundRun(EventListener):
    """One run of a door: make it, let it work once, forget it."""

    wants_ends_first = True

    def __init__(
        self,
        devices: Iterable[str],
        jobs: JobSource,
        reporter: Reporter,
        *,
        order: str = LOWEST,
        shell: str = "/bin/sh",
        grace: float | None = None,
        passes_interrupts: bool = False,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or load_settings()
        self._reporter = reporter
        self._source = _Source(jobs, _context(settings, shell))
        self._folder = new_folder(settings)
        self._db = open_temporary(self._folder)
        tag = store_tag(self._db)
        self._cards = slot_cards(list(devices), settings, tag, order, reporter.says)
        self._live: dict[int, tuple[Job, str]] = {}
        self._done = self._failed = 0
        self._told = ""
        self._passes_interrupts = passes_interrupts
        ours = settings._replace(state_dir=self._folder, gpu_file=None)
        self._engine = Foreground(
            self._db, self._source, _HOST, self._cards,
            ours if grace is None else ours._replace(grace=grace), self,
            lambda job, number: None, lambda job: os.path.join(self._folder, str(job)),
            cancels_at_once=not passes_interrupts, on_signal=self._on_signal,
        )  # fmt: skip

    def work(self, tick: Callable[[], float | None] = lambda: None) -> Summary:
        """Run all jobs. `tick` is called now and then, and says when it wants to be again."""
        jobs = self._source.jobs
        if jobs.pid is not None:
            self._engine.ignore(jobs.pid)
        try:
            self._engine.work(lambda: self._tick(tick))
        finally:
            jobs.close()
            self._db.close()
            remove_folder(self._folder)
        return Summary(self._done, self._failed, bool(self._engine.interrupts))

    def use(self, devices: Iterable[str]) -> None:
        """Other slots from now on; what runs in those that are gone may finish."""
        self._cards.use(devices)
        self._engine.look_again()

    def drain(self) -> None:
        """Let running jobs finish and start no more."""
        self._engine.drain()

    def stop(self, job: Job, grace: float | None = None) -> None:
        """Ask a running job to end, with all its processes; kill it when its grace is over."""
        for number, (one, _) in self._live.items():
            if one is job:
                self._engine.stop(number, grace)

    @property
    def running(self) -> list[tuple[Job, str]]:
        """What runs now, with the device string of its slot."""
        return list(self._live.values())

    @property
    def waiting(self) -> list[Job]:
        """What was read and has not been started, also when the run is over."""
        return [job for number, job in self._source.known.items() if number not in self._live]

    # -- what the engine tells -----------------------------------------------------------------

    def starting(self, job: int, devices: tuple[int, ...]) -> None:
        self._live[job] = (self._source.known[job], self._cards.devices[devices[0]].visible)
        self._reporter.starting(*self._live[job])

    def started(self, job: int, devices: tuple[int, ...]) -> None:
        self._reporter.started(*self._live[job], self._engine.pid_of(job))

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        what, where = self._live.pop(job)
        if verdict.event == "return":
            return  # it asked to be run again
        del self._source.known[job]
        self._engine.finished_one()
        if verdict.event == "succeed":
            self._done += 1
        else:
            self._failed += 1
        if verdict.cause == "start_failed" and outcome.detail is not None:
            _explain(what, self._source.here.cwd, outcome.detail)
        end = End(verdict.exit_code, verdict.signal, verdict.cause, outcome.detail)
        self._reporter.ended(what, where, end)

    def message(self, text: str) -> None:
        self._reporter.says(text)

    def _on_signal(self, number: int) -> bool:
        if self._reporter.signalled(number):
            return True
        if number == signal.SIGINT and self._passes_interrupts and not self._engine.interrupts:
            for job in self._live:
                pid = self._engine.pid_of(job)
                if pid is not None:  # it has not been reaped, so the group is still its own
                    _interrupt(pid)
        return False

    def _tick(self, tick: Callable[[], float | None]) -> float | None:
        if self._cards.is_monitored and self._source.known and not self._live:
            self._tell_why()
        return tick()

    def _tell_why(self) -> None:
        """Jobs wait and none runs: somebody else has the cards, which nobody would guess."""
        states = self._cards.states.values()
        if any(state.is_brief for state in states):
            return
        closed = [state.closed or state.note or "somebody is on it" for state in states
                  if state.closed is not None or state.has_strangers]  # fmt: skip
        text = "; ".join(dict.fromkeys(closed))
        if len(closed) == len(self._cards.devices) and text != self._told:
            self._told = text
            self._reporter.says(f"waiting for a GPU: {text}")


class _Source:
    """Jobs of a door as the engine wants them."""

    def __init__(self, jobs: JobSource, here: Context) -> None:
        self.jobs = jobs
        self.here = here
        self.known: dict[int, Job] = {}  # by number: waiting or running
        self._elsewhere: dict[str, Context] = {}
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
        context = self.here if job.cwd is None else self._at(job.cwd)
        argv, is_text = self._words(job.command)
        return JobSpec(
            argv, context, is_text, _ONE_SLOT, grace=job.grace, variables=job.env,
            stdout=_absolute(job.stdout, context.cwd), stderr=_absolute(job.stderr, context.cwd),
            keep_children=job.keep_children,
        )  # fmt: skip

    def _words(self, command: str | tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
        if not isinstance(command, str):
            return command, False
        return (command or " ",), True  # to do nothing is a command as well

    def _at(self, cwd: str) -> Context:
        if cwd not in self._elsewhere:
            path = os.path.join(self.here.cwd, cwd)
            self._elsewhere[cwd] = self.here._replace(cwd=path)
        return self._elsewhere[cwd]


def _context(settings: Settings, shell: str) -> Context:
    """What jobs find around them."""
    if "STOKER_JOB_ID" in os.environ:  # a job around us, and what was said to that is not for ours
        from stoker.client.queue import current_context  # much to import for all others

        return current_context(settings, here())._replace(shell=shell)
    mask = os.umask(0o077)
    os.umask(mask)
    env = sorted(pair for pair in os.environ.items() if pair[0] != "_")  # our own path
    return Context(here(), tuple(env), mask, shell)


def _interrupt(group: int) -> None:
    try:
        os.killpg(group, signal.SIGINT)
    except (ProcessLookupError, PermissionError):
        pass


def _absolute(path: str | None, cwd: str) -> str | None:
    return path if path is None or path == INHERIT else os.path.join(cwd, path)


def _explain(job: Job, cwd: str, detail: str) -> None:
    """Where a shell would have said that there is no such program."""
    path = job.stderr if job.stderr is not None else job.stdout
    text = f"/bin/sh: {detail}"
    if path is None or path == INHERIT:
        say(text)
        return
    try:
        where = to_system(os.path.join(cwd, job.cwd or "", path))
        with open(open_for_output(where, truncate=False), "ab", buffering=0) as file:
            write_all(file.fileno(), to_system(f"{text}\n"))
    except OSError:
        pass  # it may be why the job could not be started
