"""Explain why a job waits and estimate when it starts, with the policy code of the daemon.

A `QueueView` is a snapshot of the queue with the plan that the policy makes for it. All statements
about waiting jobs come from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from itertools import islice

from stoker.client.views.gpus import GpuView, holder_words, load_gpu_views
from stoker.client.views.job import (
    clock_words,
    gave_way,
    is_asked,
    process_words,
    result_words,
    state_words,
)
from stoker.client.views.job_progress import reported_ends
from stoker.engine.daemon import status
from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.daemon.queue_snapshot import load_snapshot
from stoker.engine.gpus.occupancy import device_state
from stoker.engine.gpus.saturation import is_saturated
from stoker.engine.model import Device, DeviceState, RunningJob, WaitingJob
from stoker.engine.policy.decide import (
    HOST_RESERVED,
    IMPOSSIBLE,
    NO_DEVICE,
    NO_HOST_ROOM,
    RESERVED,
    AnyJob,
    decide,
    limit_waiting_jobs,
    order_of,
)
from stoker.engine.policy.explain import Place, places, reasons_of, with_place
from stoker.engine.policy.forecast import LikelyRun, forecast, likely_runs
from stoker.engine.policy.placement import capacity
from stoker.engine.policy.short_reasons import SEPARATOR, behind, reserved_for, short_reason
from stoker.engine.policy.what_if import WhatIf, what_ifs
from stoker.engine.store import job_queries, meta
from stoker.engine.store.database import Database
from stoker.engine.store.interrupted_jobs import REBOOTED
from stoker.engine.store.job_queries import JobRow
from stoker.features import call
from stoker.record import Record
from stoker.settings import Settings, cpu_slots
from stoker.states import ACTIVE, FINAL
from stoker.text.durations import format_duration

DEPTH = 200  # jobs of each request group that places and forecasts consider
LISTED_DEPTH = 64  # jobs of each request group for lists, which show the first ones
# Reasons that end when there is more room; no change of the job itself ends the others.
_FOR_ROOM = (NO_DEVICE, RESERVED, NO_HOST_ROOM, HOST_RESERVED, IMPOSSIBLE, None)


class QueueView:
    """A snapshot of GPUs and queue, for statements about any number of jobs.

    `gpus`: the result of `load_gpu_views`, to avoid loading it again. `extra`: a job that is added
    to the snapshot if it became eligible since the last tick of the daemon.
    """

    def __init__(
        self,
        db: Database,
        settings: Settings,
        depth: int = DEPTH,
        gpus: tuple[list[GpuView], str | None] | None = None,
        extra: JobRow | None = None,
    ) -> None:
        self._db = db
        self._settings = settings
        gpus = gpus or load_gpu_views(db, settings)
        now, offset = time.monotonic(), time.time() - time.monotonic()
        slots = meta.get_meta(db, "cpu_slots")
        cpus = int(str(slots)) if slots is not None else cpu_slots(settings)
        with db.reading():
            resources = status.known_resources(db, settings)
            deep, cut = load_snapshot(
                db, now, offset, (), None, cpus, depth, resources, of_this_boot=True
            )
        devices, states = _device_states(deep.running, gpus)
        is_known = extra is None or any(job.id == extra.id for job in deep.waiting)
        if extra is not None and not is_known and extra.request_group not in cut:
            # It has just become eligible; the daemon sees it in its next tick.
            waiting = [*deep.waiting, _as_waiting(extra, offset)]
            waiting.sort(key=lambda job: (job.request_group, -job.priority, job.id))
            deep = deep._replace(waiting=tuple(waiting))
        self._deep = deep._replace(devices=devices, states=states)
        self._cut = cut
        self._refusal = meta.refusal(db)
        self._jobs: dict[int, AnyJob] = {job.id: job for job in deep.waiting}
        self._places: dict[int, Place] | None = None
        self._reasons: dict[tuple[int, str | None], tuple[list[str], bool]] = {}
        self._short: dict[tuple[int, str | None], tuple[str, bool]] = {}
        self._starts: dict[int, float] | None = None
        self._ends_in: dict[int, float] = {}
        self.snapshot = limit_waiting_jobs(self._deep)
        self.plan = decide(self.snapshot)

    def starts(self) -> dict[int, float]:
        """Seconds until jobs likely start; empty while the host cannot start any job."""
        if self._starts is None:
            self._starts = {}
            if not self._refusal and job_queries.has_known_end(self._db):
                self._ends_in = reported_ends(self._db, self._settings, self._deep.running)
                self._starts = forecast(self._deep, self._cut, self._ends_in)
        return self._starts

    def runs(self) -> list[LikelyRun]:
        """Where and when jobs likely run; only the running ones while no job can start."""
        ends_in = reported_ends(self._db, self._settings, self._deep.running)
        snapshot = self._deep._replace(draining=self._deep.draining or self._refusal is not None)
        return likely_runs(snapshot, self._cut, ends_in)

    def place(self, row: JobRow) -> Place:
        """How many jobs are ahead of a job."""
        if self._places is None:
            self._places = places(self._deep, self._cut)
        known = self._places.get(row.id)
        if known is not None:
            return known
        # Not in the snapshot: count at least the jobs of its own request group.
        is_only = all(job.request_group == row.request_group for job in self._deep.waiting)
        return Place(job_queries.ahead_in_group(self._db, row), is_only)

    def reasons(self, row: JobRow, *, place_first: bool = False) -> list[str]:
        """Why a job waits that only needs devices; empty if it starts now."""
        if any(start.job == row.id for start in self.plan.starts):
            if self._refusal is not None:
                return [f"no job can start at the moment: {self._refusal}"]
            return []
        # The same for all jobs of a request group.
        key = (row.request_group, self.plan.waits.get(row.id))
        if key not in self._reasons:
            job = self._jobs.get(row.id) or _as_waiting(row, 0.0)
            self._reasons[key] = reasons_of(job, self.snapshot, self.plan)
        return with_place(*self._reasons[key], self.place(row), is_first=place_first)

    def short(self, row: JobRow) -> str:
        """Why a job waits that only needs devices, in a few words; "" if it starts now.

        `behind 4 jobs · GPU 2 reserved for 25`
        """
        if any(start.job == row.id for start in self.plan.starts):
            return "" if self._refusal is None else "no job can start at the moment"
        key = (row.request_group, self.plan.waits.get(row.id))
        if key not in self._short:
            job = self._jobs.get(row.id) or _as_waiting(row, 0.0)
            self._short[key] = short_reason(job, self.snapshot, self.plan)
        words, waits_for_others = self._short[key]
        before = behind(self.place(row)) if waits_for_others else ""
        return SEPARATOR.join(filter(None, (before, words))) or "first in the queue"

    def start_words(self, row: JobRow) -> str:
        """The estimated start of a job as a sentence; "" if it cannot be predicted."""
        seconds = self.starts().get(row.id)
        if seconds is None:
            return ""
        at = time.strftime("%H:%M", time.localtime(time.time() + seconds))
        return f"estimated start at {at}, in {format_duration(seconds)}"

    def what_ifs(self, row: JobRow) -> list[WhatIf]:
        """Changes that would start a waiting job now or much earlier; none that is not certain."""
        job = self._jobs.get(row.id)
        is_for_room = self.plan.waits.get(row.id) in _FOR_ROOM
        if job is None or self._refusal is not None or not is_for_room:
            return []
        profile = job_queries.profile_of(self._db, row.profile)
        return what_ifs(
            job,
            self._deep,
            self._cut,
            starts_in=self.starts().get(row.id),
            ends_in=self._ends_in,
            peak_memory=None if profile is None else profile.memory,
        )

    def reserved_for(self) -> dict[int, int]:
        """The jobs for which GPUs are reserved, by the number of the GPU."""
        return reserved_for(self.snapshot, self.plan)


def _device_states(
    running: Iterable[RunningJob], gpus: tuple[list[GpuView], str | None]
) -> tuple[tuple[Device, ...], dict[int, DeviceState]]:
    """The devices and their states, as the daemon computes them."""
    gpu_views, error = gpus
    running = list(running)
    states = {}
    for gpu in gpu_views:
        closed = error or gpu.closed
        if gpu.occupancy is None:
            states[gpu.device.number] = DeviceState(closed_reason=closed)
        else:
            state = device_state(gpu.device, gpu.occupancy, running, closed)
            if gpu.sample is not None and len(gpu.occupancy.ours) == 1:
                state = state._replace(is_saturated=is_saturated(gpu.sample))
            states[gpu.device.number] = _with_mps(_with_leases(state, gpu), gpu)
    return tuple(gpu.device for gpu in gpu_views), states


def _with_leases(state: DeviceState, gpu: GpuView) -> DeviceState:
    """Count memory leased by others as used, even if it is still free: the lease would fail."""
    own_uid = os.getuid()
    others = [
        one
        for one in gpu.holders
        # Leases of an earlier daemon of this queue are part of the claims of its jobs.
        if one.uid != own_uid or not gpu.jobs or os.path.exists(f"/proc/{one.pid}")
    ]
    if not others or gpu.occupancy is None:
        return state
    whole = capacity(gpu.device)
    leased = sum(whole if one.amount is None else one.amount for one in others)
    note = "; ".join(text for text in (state.note, *map(holder_words, others)) if text)
    return state._replace(
        unreserved_bytes=max(
            state.unreserved_bytes, state.unreserved_bytes - gpu.occupancy.leased + leased
        ),
        has_other_processes=True,
        note=note,
    )


def _with_mps(state: DeviceState, gpu: GpuView) -> DeviceState:
    """Whether jobs can use MPS on a GPU: not if it failed, or if another user computes there."""
    uid = os.getuid()
    other = gpu.occupancy.other_user(user_name(uid)) if gpu.occupancy is not None else None
    holder = next((user_name(one.uid) for one in gpu.holders if one.uid != uid), None)
    problem = gpu.mps.reason if gpu.mps is not None else None
    return state._replace(mps_problem=problem, other_user=holder or other)


def with_reservations(
    db: Database, settings: Settings, gpus: tuple[list[GpuView], str | None]
) -> list[GpuView]:
    """The GPUs of `load_gpu_views` with the jobs for which they are reserved."""
    if not job_queries.jobs_in_states(db, ("queued",), 1):
        return gpus[0]
    reserved = QueueView(db, settings, LISTED_DEPTH, gpus).reserved_for()
    return [gpu._replace(reserved_for=reserved.get(gpu.device.number)) for gpu in gpus[0]]


def likely_starts(db: Database, settings: Settings) -> dict[int, float]:
    """Seconds until the first jobs of each request group likely start."""
    return QueueView(db, settings, LISTED_DEPTH).starts()


def queue_order(db: Database, limit: int) -> list[int]:
    """The ids of jobs that only wait for devices, in the order of the policy."""
    now = time.monotonic()
    snapshot, _ = load_snapshot(db, now, time.time() - now, (), None, 0, limit, of_this_boot=True)
    return [job.id for job in islice(order_of(snapshot), limit)]


def _as_waiting(row: JobRow, offset: float) -> WaitingJob:
    since = row.submitted_at - offset
    return WaitingJob(
        id=row.id,
        priority=row.priority,
        request=row.request,
        time_limit=row.time_limit,
        fair_share_group=row.fair_share_group,
        since=since,
        profile=row.profile,
        request_group=row.request_group,
    )


def why(db: Database, settings: Settings, row: JobRow) -> list[str]:
    """Sentences that explain what a job waits for; empty if it is about to start."""
    found = explain_wait(db, settings, row)
    return [*found.reasons, *(one.sentence() for one in found.what_ifs[:1])]


class WaitExplanation(Record):
    """Why a job waits; `starts_in` is None if its start cannot be predicted."""

    reasons: list[str]
    starts_in: float | None = None
    what_ifs: tuple[WhatIf, ...] = ()  # changes that would start it now or much earlier


def explain_wait(db: Database, settings: Settings, row: JobRow) -> WaitExplanation:
    """Why a job waits, and when it likely starts. Raises NotFound if it was removed."""
    with db.reading():  # its state, its allocation and what it needs belong together
        row = job_queries.job(db, row.id)
        others = _other_reasons(db, settings, row)
    if others is not None:
        return WaitExplanation(others)
    view = QueueView(db, settings, extra=row)
    reasons = view.reasons(row)
    if row.is_interrupted:
        reasons = [f"{REBOOTED} while it ran; it runs again", *reasons]
    if gave_way(row) and reasons:
        at = clock_words(row.asked_at or 0.0, time.time())
        reasons = [f"it gave way to {row.asked_for} at {at}", *reasons]
    if row.request.preemptible and reasons:
        reasons.append("preemptible jobs start when no other job waits for the GPU")
    starts_in = view.starts().get(row.id) if reasons else None
    changes: list[WhatIf] = []
    if reasons:
        reasons += filter(None, [view.start_words(row)])
        changes = view.what_ifs(row)
    problem = status.why_not_running(settings.state_dir) or _reported_problem(settings)
    if problem is not None:  # no change of the job would start it now
        return WaitExplanation([problem, *reasons], starts_in)
    return WaitExplanation(reasons, starts_in, tuple(changes))


def _other_reasons(db: Database, settings: Settings, row: JobRow) -> list[str] | None:
    """Why a job waits that does not wait for GPUs or CPU slots of this host; None if it does."""
    if row.state == "held":
        return [f"it is held; to let it start: stoker release {row.id}"]
    if row.state in ACTIVE and row.request.backend:
        return _why_on_backend(db, row)
    if row.state in ACTIVE:
        devices = ", ".join(map(str, row.devices))
        state = f"it is {row.state}" + (f" on GPU {devices}" if devices else "")
        words = process_words(db, row)
        use = call("running_use", settings, row)
        asked = [f"it is {words}" if is_asked(row) else words] if words else []
        return [state, *asked, *(() if use is None else use.warnings)]
    if row.state in FINAL:
        words = result_words(row, db)
        return [f"it {state_words(row.state)}" + (f": {words}" if words else "")]
    reasons = []
    for needs, condition, met in job_queries.dependencies(db, row.id):
        if not met:
            other = job_queries.job(db, needs)
            must = {"ok": "must succeed", "any": "must finish", "notok": "must fail"}[condition]
            reasons.append(f"job {needs} {must} first; it is {other.state}")
    if row.eligible_at is not None and row.eligible_at > time.time():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.eligible_at))
        what = (
            f"attempt {row.attempts + 1} is due at" if row.attempts else "it may not start before"
        )
        reasons.append(f"{what} {at}")
    if reasons:
        return reasons
    if row.request.backend:
        reasons = _why_on_backend(db, row)
        daemon_problem = status.why_not_running(settings.state_dir)
        return [daemon_problem, *reasons] if daemon_problem is not None else reasons
    return None


def _why_on_backend(db: Database, row: JobRow) -> list[str]:
    return call("why_on_backend", db, row) or []


def host_problems(db: Database, settings: Settings) -> list[str]:
    """Why this host cannot start any job at the moment; empty if it can."""
    problem = _reported_problem(settings)
    if problem is not None:
        return [problem]
    refusal = meta.refusal(db)
    return [] if refusal is None else [f"no job can start at the moment: {refusal}"]


def _reported_problem(settings: Settings) -> str | None:
    problem = status.problem(settings.state_dir)
    return None if problem is None else f"the daemon reports: {problem}"
