"""Hand ready jobs over to a backend: divide them into chunks and request allocations.

The order of steps makes a crash at any point harmless:

1. write the chunk files       without the records of step 2, they are removed later
2. record the allocations, and mark the jobs as submitted
3. request the allocations     repeated with the same token after a crash
4. record the engine's ids
"""

from __future__ import annotations

import math
import os
import uuid

from stoker.boot import boot_id
from stoker.engine.daemon.interfaces import Clock
from stoker.engine.model import ReadyJob, Request
from stoker.engine.store import arrays, attempts, contexts, meta, profiles, ready_jobs
from stoker.engine.store.attempts import Claim
from stoker.engine.store.database import Database
from stoker.engine.store.ready_jobs import RequestGroup
from stoker.engine.store.request_groups import group_limits
from stoker.features.backends import store_allocations as allocations
from stoker.features.backends.chunk_files import (
    VERSION,
    Header,
    chunk_job,
    remove_folder,
    to_line,
    write_chunk,
)
from stoker.features.backends.chunks import LONG_SECONDS, MOST_SECONDS, Candidate, Chunk, divide
from stoker.features.backends.nodes import UP, Node
from stoker.features.backends.options import FIRST_NODE
from stoker.features.backends.protocol import AllocationRequest, Backend, Batch, Rejected
from stoker.features.backends.store_allocations import Allocation
from stoker.features.code import store as code_states
from stoker.features.code.check_files import write_check
from stoker.fields import to_fields
from stoker.record import Record
from stoker.settings import Settings
from stoker.testing.failpoints import failpoint

_READ = 20_000  # jobs of a request group that are considered at a time
_UNKNOWN_SLOTS = 8  # of a backend whose nodes are not known
_MAX_FAILED_STARTS = 4  # tries in a row, after 0, 2, 4 and 8 seconds
_MAX_PAUSE = 60.0  # seconds between two attempts to submit jobs that were refused


class _NotReady(Exception):
    """A job was cancelled, held or changed since it was read."""


class _Refusal(Record):
    """The engine refused the jobs of a request group."""

    problem: str
    times: int
    until: float  # when they are submitted again
    is_limit: bool


class HandOver:
    def __init__(
        self,
        db: Database,
        settings: Settings,
        backend: Backend,
        files: str,
        folder: str,
        clock: Clock,
    ) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock
        self._backend = backend
        self._files = files  # where logs and outputs of jobs lie
        self._folder = folder  # of the chunks
        self.nodes: list[Node] = []
        self._profile_seconds: dict[int, float | None] = {}
        self._profiles_version: tuple[int, int] | None = None
        self._slow: set[int] = set()  # profiles whose jobs proved to be longer than expected
        self._refusals: dict[int, _Refusal] = {}  # by request group
        self._most_tasks: int | None = None  # a batch of this size may fit in the engine's limits
        self._failed_starts = 0  # tries in a row in which no worker ran a job
        self._failed_at = 0.0  # when the last of them failed (wall clock)
        self._paused_until = 0.0
        self._start_problem: str | None = None
        self._boot = boot_id()

    def submit_ready(self, now: float) -> bool:
        """Hand over what the backend takes now; returns whether jobs were handed over.

        If the engine refuses the jobs of a request group, `problem` says why; the other groups are
        not affected, and the refused jobs are submitted again later.
        """
        if now < self._paused_until or meta.is_draining(self._db):
            return False
        is_changed = False
        limits = group_limits(self._db)
        ready = ready_jobs.ready_groups(self._db, self._backend.name)
        self._refusals = {id: one for id, one in self._refusals.items() if id in ready}
        for id in ready:
            if id in self._refusals and now < self._refusals[id].until:
                continue
            try:
                is_changed |= self._submit_group(ready_jobs.load_group(self._db, id), limits)
                self._refusals.pop(id, None)
            except Rejected as error:
                self._refused(id, error, now)
        return is_changed

    def _refused(self, group: int, error: Rejected, now: float) -> None:
        earlier = self._refusals.get(group)
        times = 1 if earlier is None else earlier.times + 1
        words = "does not accept more jobs now" if error.is_limit else "refused the jobs"
        self._refusals[group] = _Refusal(
            problem=f"the backend {words}: {error}",
            times=times,
            until=now + min(_MAX_PAUSE, 2.0 ** min(times, 6)),
            is_limit=error.is_limit,
        )

    @property
    def problem(self) -> str | None:
        """Why jobs are not handed over, or None."""
        found = sorted(self._refusals.values(), key=lambda one: one.is_limit)
        return found[0].problem if found else self._start_problem

    @property
    def next_due(self) -> float | None:
        """When refused jobs are submitted again."""
        due = [one.until for one in self._refusals.values()]
        return min(due + ([self._paused_until] if self._start_problem else []), default=None)

    def worker_started(self) -> None:
        self._failed_starts, self._paused_until, self._start_problem = 0, 0.0, None

    def worker_failed(self, problem: str, created_at: float, now: float) -> None:
        """An allocation ended before its worker ran a job: wait before more are requested.

        After some tries, the jobs wait until the user has done something: `try_again`.
        """
        if created_at >= self._failed_at:  # allocations that were requested together are one try
            self._failed_starts += 1
            self._failed_at = self._clock.wall()
        self._paused_until = now + min(_MAX_PAUSE, 2.0 ** min(self._failed_starts, 6))
        self._start_problem = problem
        if self.has_given_up:
            self._paused_until = math.inf
            self._start_problem += (
                f"; Stoker tried {self._failed_starts} times and does not try again until"
                f" `stoker backend test {self._backend.name}`"
            )

    @property
    def has_given_up(self) -> bool:
        return self._failed_starts >= _MAX_FAILED_STARTS

    def try_again(self) -> None:
        """Try once more after giving up."""
        if self.has_given_up:
            self._failed_starts = _MAX_FAILED_STARTS - 1
            self._paused_until, self._start_problem = 0.0, None

    def allocation_ended(self) -> None:
        """The engine may accept jobs again that exceeded a limit."""
        for id, one in self._refusals.items():
            if one.is_limit:
                self._refusals[id] = one._replace(until=0.0)

    def _room(self, group: RequestGroup, limits: dict[str, int]) -> int:
        """How many jobs of a request group may be handed over now."""
        room, name, array = _READ, group.fair_share_group, group.request.array
        if name in limits:
            active = allocations.active_by_group(self._db, [name])[name]
            room = max(0, limits[name] - active)
        for most in arrays.limits(self._db, [array]).values():
            room = min(room, max(0, most - arrays.active(self._db, array)))
        return room

    def _submit_group(self, group: RequestGroup, limits: dict[str, int]) -> bool:
        known = allocations.open_allocations(self._db, self._backend.name)
        room = self._backend.room(_wanted(group.request), known)
        if room <= 0 or self._has_plenty(group.request, known, room):
            return False
        allowed = self._room(group, limits)
        count = min(allowed, self._jobs_to_read(group, room))
        jobs = ready_jobs.first(self._db, group, count)
        if not jobs:
            return False
        has_more = len(jobs) == count < allowed
        return self._submit(group.request, jobs, room, has_more)

    def _has_plenty(self, request: Request, known: list[Allocation], room: int) -> bool:
        """Whether to wait until more allocations have ended, and request many at once."""
        waiting = sum(one.state != allocations.RUNNING for one in known)
        return waiting > self._slots(request) // 2 and room < len(known) // 10

    def _jobs_to_read(self, group: RequestGroup, room: int) -> int:
        """How many jobs `room` allocations can take, at most."""
        first = ready_jobs.first(self._db, group, 1)
        seconds = self._candidate(first[0]).seconds if first else None
        if seconds is None:
            return _READ
        return min(_READ, room * max(1, int(MOST_SECONDS / max(seconds, 0.01))))

    def _submit(self, request: Request, jobs: list[ReadyJob], room: int, has_more: bool) -> bool:
        limits = self._backend.limits()
        candidates = [self._candidate(job) for job in jobs]
        chunks = divide(
            candidates,
            self._slots(request),
            backlog=self._backlog(has_more),
            grace=self._settings.grace,
            is_single=request.nodes > 1 or _is_script(request.options),
            most_seconds=self._backend.most_seconds(_wanted(request)),
        )[:room]
        by_id = {job.id: job for job in jobs}
        is_changed = False
        by_limit: dict[float | None, list[Chunk]] = {}
        for chunk in chunks:  # the allocations of one batch have equal time limits
            by_limit.setdefault(chunk.time_limit, []).append(chunk)
        for limit, alike in by_limit.items():
            while alike:
                size = min(len(alike), limits.tasks, self._most_tasks or limits.tasks)
                try:
                    is_changed |= self._submit_batch(request, limit, alike[:size], by_id)
                except Rejected as error:
                    if not error.is_limit or size == 1:
                        raise
                    self._most_tasks = size // 2  # fewer may fit in the limit
                    continue
                alike = alike[size:]
                if self._most_tasks is not None:
                    self._most_tasks *= 2
        return is_changed

    def _backlog(self, has_more: bool) -> float:
        """Seconds of work that the backend has, or that follows the jobs that were read."""
        if has_more:
            return 1e9
        return allocations.submitted_seconds(self._db, self._backend.name)

    def _candidate(self, job: ReadyJob) -> Candidate:
        seconds = self._seconds_of(job.profile)
        if (seconds is None and job.profile in self._slow) or job.settings.signal is not None:
            seconds = LONG_SECONDS
        return Candidate(id=job.id, seconds=seconds, time_limit=job.time_limit)

    def _seconds_of(self, profile: int) -> float | None:
        """The expected duration of a command; read again after each change of the database."""
        version = self._db.version()
        if version != self._profiles_version:
            self._profiles_version = version
            self._profile_seconds.clear()
        if profile not in self._profile_seconds:
            self._profile_seconds[profile] = profiles.seconds_of(self._db, profile)
        return self._profile_seconds[profile]

    def _slots(self, request: Request) -> int:
        """How many jobs with this request the backend can run at the same time."""
        up = [node for node in self.nodes if node.state == UP]
        if not up:
            return _UNKNOWN_SLOTS
        if not request.gpus:
            return max(1, sum((node.cpus or 1) // max(1, request.cpus) for node in up))
        return max(1, sum(node.gpus // request.gpus for node in up))

    def _submit_batch(
        self,
        request: Request,
        limit: float | None,
        chunks: list[Chunk],
        by_id: dict[int, ReadyJob],
    ) -> bool:
        token = uuid.uuid4().hex[:16]
        wanted = _wanted(request, limit, _name(by_id[chunks[0].jobs[0]]))
        folder = os.path.join(self._folder, token)
        found: list[Allocation] = []
        for task, chunk in enumerate(chunks):
            one = self._record(token, task, chunk, wanted, [by_id[id] for id in chunk.jobs])
            if one is not None:
                found.append(one)
        if not found:
            remove_folder(folder)
            return False
        failpoint("driver.before_submit")
        batch = Batch(
            token=token, folder=folder, tasks=tuple(one.task for one in found), request=wanted
        )
        try:
            ids = self._backend.submit(batch)
        except Rejected:
            self.withdraw(found)
            raise
        failpoint("driver.after_submit")
        self.record_ids(found, ids)
        return True

    def _record(
        self, token: str, task: int, chunk: Chunk, wanted: AllocationRequest, jobs: list[ReadyJob]
    ) -> Allocation | None:
        """Write the files of a chunk and record it; None if one of its jobs is not ready now."""
        folder = os.path.join(self._folder, token, str(task))
        with self._db.transaction():
            first = allocations.take_attempt_ids(self._db, len(jobs))
        header = Header(
            version=VERSION,
            files=self._files,
            grace=self._settings.grace,
            log_limit=self._settings.log_limit,
            is_single=chunk.is_single,
            seconds=wanted.seconds,
            unknown_seconds=chunk.unknown_seconds,
            nodes=wanted.nodes,
            launches_everywhere=wanted.nodes > 1 and not _is_script(wanted.options),
            is_script=_is_script(wanted.options),
        )
        used = {job.context for job in jobs}
        made = {id: contexts.load_context(self._db, id) for id in used}
        lines = [
            to_line(chunk_job(job, first + place, self._seconds_of(job.profile)))
            for place, job in enumerate(jobs)
        ]
        write_chunk(folder, header, made, lines)
        self._write_code(folder, jobs)
        failpoint("driver.after_files")
        try:
            id = self._claim(token, task, wanted, jobs, first)
        except _NotReady:
            remove_folder(folder)
            return None
        failpoint("driver.after_claim")
        return allocations.load(self._db, id)

    def _write_code(self, folder: str, jobs: list[ReadyJob]) -> None:
        """Write the recorded code of jobs, with which the worker compares their folders."""
        for code in {job.code for job in jobs if job.code is not None and job.snapshot is None}:
            state = code_states.load(self._db, code)
            if state is not None and state.problem is None:
                diff = code_states.diff_of(self._db, code)
                write_check(folder, code, state.root, state.commit, diff)

    def _claim(
        self, token: str, task: int, wanted: AllocationRequest, jobs: list[ReadyJob], first: int
    ) -> int:
        """Record an allocation and the attempts of its jobs; returns its id."""
        now = self._clock.wall()
        with self._db.transaction():
            id = allocations.add(self._db, self._backend.name, token, task, to_fields(wanted), now)
            for place, job in enumerate(jobs):
                claim = Claim(
                    attempt=first + place,
                    job=job.id,
                    number=job.attempts + 1,
                    devices=(),
                    memory=job.request.memory,
                    at=now,
                    boot=self._boot,
                )
                if not attempts.claim(self._db, claim, id):
                    raise _NotReady
        return id

    def record_ids(self, found: list[Allocation], ids: dict[int, str]) -> None:
        with self._db.transaction():
            for one in found:
                if one.task in ids:
                    allocations.update(
                        self._db, one.id, engine_id=ids[one.task], state=allocations.SUBMITTED
                    )

    def withdraw(self, found: list[Allocation]) -> None:
        """The engine refused a batch: its jobs return to the queue."""
        now = self._clock.wall()
        with self._db.transaction():
            for one in found:
                allocations.withdraw(self._db, one.id, now)
        others = allocations.open_allocations(self._db, self._backend.name)
        kept = {one.token for one in others}
        for one in found:
            task = [str(one.task)] if one.token in kept else []
            remove_folder(os.path.join(self._folder, one.token, *task))

    def was_drained(self, one: Allocation) -> None:
        """A worker returned jobs that it could not start in time: treat them as long."""
        self._slow.update(allocations.profiles_of(self._db, one.id))


def _wanted(request: Request, seconds: float | None = None, name: str = "") -> AllocationRequest:
    return AllocationRequest(
        gpus=request.gpus,
        nodes=request.nodes,
        seconds=seconds,
        options=request.options,
        model=request.model,
        name=name,
        cpus=request.cpus,
        memory=request.host_memory,
    )


def _is_script(options: tuple[str, ...]) -> bool:
    """Whether the job is a batch script that starts programs on other nodes itself."""
    return FIRST_NODE in options


def _name(job: ReadyJob) -> str:
    """The name of a Slurm job, for people who look at Slurm's own listing."""
    text = job.name or f"job {job.id}"
    return "".join(char if char.isprintable() else "?" for char in text)[:60]
