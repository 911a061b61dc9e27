"""Watches the GPU memory of jobs with `--gpu-mem auto` while they run.

- A job whose command profile has no estimate is measured (engine/profiles/live_memory.py); others
  without an estimate start beside it and are paused until then (engine/gpus/measured_group.py).
- The claim of a job that uses more than it reserved follows its use, and its profile is corrected.
- If a GPU runs out of memory because an estimate was wrong, the youngest of these jobs returns to
  the queue before the others fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stoker.engine.daemon.gpus.group_leases import GroupLeases
from stoker.engine.daemon.gpus.memory_actions import (
    ContinueJob,
    MemoryAction,
    MemoryLearned,
    PauseJob,
    RequeueJob,
    SetClaim,
)
from stoker.engine.gpus.measured_group import MAX_PAUSE_SECONDS, Member, advance_group
from stoker.engine.gpus.occupancy import Occupancy
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.gpus.saturation import is_saturated
from stoker.engine.model import Device, DeviceState, RunningJob
from stoker.engine.policy.placement import DeviceRoom, amount_of, capacity, is_measured
from stoker.engine.profiles.live_memory import (
    LiveEstimate,
    MemoryTrack,
    budget_provisionally,
    live_estimate,
    rounded_up,
    update_track,
)
from stoker.text.sizes import format_size

# While a follower may have to be paused, GPUs are sampled this often.
POLL_SECONDS = 0.1
# With less free memory than this, a job returns to the queue if an estimate was wrong.
_LEAST_FREE_BYTES = 1 << 30
_LEAST_FREE_PART = 0.04
# A GPU counts as saturated for some time, because the load drops between epochs.
_SATURATED_SECONDS = 15.0
_LOAD_LAG_SECONDS = 0.5


def is_watched(job: RunningJob) -> bool:
    """Whether the claim of a job follows its use."""
    return job.request.is_auto and job.request.profile != 0 and len(job.devices) == 1


class MemoryWatch:
    def __init__(self, leases: GroupLeases) -> None:
        self._leases = leases
        self._tracks: dict[int, MemoryTrack] = {}  # by attempt
        self._paused: dict[int, float] = {}  # attempt: since when
        self._released: set[int] = set()
        self._stopping: set[int] = set()  # attempts that return to the queue and still run
        self._grown: set[int] = set()  # attempts that used more than was reserved for them
        self._closed: dict[int, set[int]] = {}  # device: attempts that get no more followers
        self._blind: set[int] = set()  # devices whose driver does not show the memory of processes
        self._ended_peaks: dict[int, int] = {}  # profile: peak of a job that ended well
        self._learned: dict[int, MemoryLearned] = {}  # by profile: what was reported last
        self._saturated: dict[int, float] = {}  # device: until when it counts as saturated
        self.is_pending = False  # whether a follower may have to be paused soon

    def begin_sample(self, live: Mapping[int, RunningJob]) -> None:
        """Forget attempts that have ended."""
        for table in (self._tracks, self._paused):
            for attempt in table.keys() - live.keys():
                del table[attempt]
        self._released &= live.keys()
        self._stopping &= live.keys()
        self._grown &= live.keys()
        self._closed = {
            device: left for device, some in self._closed.items() if (left := some & live.keys())
        }
        profiles = {job.profile for job in live.values() if is_measured(job.request)}
        for profile in self._ended_peaks.keys() - profiles:
            del self._ended_peaks[profile]
        busy = {number for job in live.values() for number in job.devices}
        for device in self._saturated.keys() - busy:
            del self._saturated[device]
        self._leases.follow(live)
        self.is_pending = False

    def observe(
        self,
        gpu: GpuSample,
        device: Device,
        occupancy: Occupancy,
        live: Mapping[int, RunningJob],
        at: float,
    ) -> list[MemoryAction]:
        """Return what the sample of one GPU means for the jobs on it."""
        jobs = [job for job in live.values() if device.number in job.devices]
        watched = [job for job in jobs if is_watched(job)]
        self._note_load(gpu, device, jobs, occupancy, at)
        self._note_sight(gpu, device)
        if not watched or not device.memory:
            return []
        active = self._active(jobs, occupancy)
        for job in watched:
            used = occupancy.ours.get(job.attempt, 0)
            if used or job.attempt in self._tracks:
                track = self._tracks.get(job.attempt)
                is_alone = all(one is job for one in active) and not occupancy.has_other_processes
                computes = _computes(job, gpu, occupancy, is_alone)
                self._tracks[job.attempt] = update_track(track, used, at, computes, gpu.load_at)
        is_full = _is_full(gpu)
        actions = list(self._follow_claims(watched, device, occupancy, at))
        group = [job for job in watched if is_measured(job.request)]
        if len(group) > 1 and self._is_blind(device, group, occupancy):
            actions += self._end_group(group, device)
        elif group:
            others = [job for job in jobs if job not in group]
            room = _room_beside(device, occupancy, others)
            actions += self._advance(group, device, occupancy, room, is_full, at)
        if is_full and not any(isinstance(one, RequeueJob) for one in actions):
            actions += self._make_room(watched, jobs, device, occupancy)
        return actions

    def takes_followers(self, device: int, live: Mapping[int, RunningJob]) -> bool:
        """Whether jobs may start beside one that is being measured on the device."""
        if device in self._closed or device in self._blind:
            return False
        # Without the lease of the first (this daemon is not the one that took it), none can join.
        return self._leases.is_open(device) or not any(
            device in job.devices and is_measured(job.request) for job in live.values()
        )

    def is_saturated(self, device: int) -> bool:
        """Whether one job alone uses all of the GPU's compute power."""
        return device in self._saturated

    def _note_load(
        self,
        gpu: GpuSample,
        device: Device,
        jobs: list[RunningJob],
        occupancy: Occupancy,
        at: float,
    ) -> None:
        """Note a GPU that one job saturates. With several jobs, utilization says nothing."""
        active = self._active(jobs, occupancy)
        if len(active) != 1:
            self._saturated.pop(device.number, None)
            return
        track = self._tracks.get(active[0].attempt)
        since = active[0].started if track is None else track.seen_at
        is_own = gpu.load_at is not None and gpu.load_at > since + _LOAD_LAG_SECONDS
        if is_own and is_saturated(gpu):
            self._saturated[device.number] = at + _SATURATED_SECONDS
        elif at > self._saturated.get(device.number, 0.0):
            self._saturated.pop(device.number, None)

    def _active(self, jobs: list[RunningJob], occupancy: Occupancy) -> list[RunningJob]:
        """The jobs that may be computing on their GPU."""
        return [
            job for job in jobs if job.attempt in occupancy.ours and job.attempt not in self._paused
        ]

    def _note_sight(self, gpu: GpuSample, device: Device) -> None:
        if any(process.memory is None for process in gpu.processes if process.compute):
            self._blind.add(device.number)
        else:
            self._blind.discard(device.number)

    def learned(self, profile: int, peak: int) -> None:
        """A job of the profile ended well: its followers need no measurement."""
        self._ended_peaks[profile] = peak

    def resumed(self) -> None:
        """All jobs continue, because the process that had paused them died."""
        self._paused.clear()

    # -- groups that are being measured --------------------------------------------------------

    def _advance(
        self,
        jobs: list[RunningJob],
        device: Device,
        occupancy: Occupancy,
        room: int,
        is_full: bool,
        at: float,
    ) -> Iterator[MemoryAction]:
        members = [self._member(job, occupancy) for job in jobs]
        estimates = self._estimates(members, at)
        step = advance_group(
            members,
            estimates,
            room,
            capacity(device) // device.slots,
            at,
            is_full=is_full and len(members) > 1,
            is_saturated=device.number in self._saturated,
        )
        is_open = any(one.profile not in step.resolved for one in members)
        if is_open and (len(jobs) > 1 or step.leader is not None):
            self.is_pending = True
        by_attempt = {job.attempt: job for job in jobs}
        for attempt in step.pause:
            self._paused[attempt] = at
            leader = by_attempt[step.leader or 0].id
            yield PauseJob(attempt, f"until the GPU memory of job {leader} is known")
        for attempt in step.release:
            self._released.add(attempt)
            if self._paused.pop(attempt, None) is not None:
                # Its memory was steady only because it was paused.
                self._tracks[attempt] = self._tracks[attempt]._replace(
                    seen_at=at, steady_since=at, has_computed=False, may_have_computed=False
                )
                yield ContinueJob(attempt)
        for attempt in step.requeue:
            self._stopping.add(attempt)
            was_released = attempt in self._released
            profile = by_attempt[attempt].profile
            estimate = estimates.get(profile) if profile in step.resolved else None
            yield RequeueJob(attempt, _why(estimate, is_full), not was_released)
        if step.requeue and is_open:
            self._closed[device.number] = {job.attempt for job in jobs}
        for profile, estimate in estimates.items():
            if estimate.is_final:
                yield from self._learn(MemoryLearned(profile, estimate.peak))
            elif estimate.claim <= capacity(device):
                yield from self._learn(MemoryLearned(profile, estimate.peak, estimate.claim))
        claims = {
            job.attempt: min(estimates[job.profile].claim, capacity(device))
            for job in jobs
            if job.profile in step.resolved and job.attempt not in self._stopping
        }
        # While others are being measured, the lease of the group stays as it is.
        if claims and self._leases.resolve(device.number, claims, is_last=not is_open):
            for attempt, memory in claims.items():
                yield SetClaim(attempt, memory)

    def _is_blind(self, device: Device, jobs: list[RunningJob], occupancy: Occupancy) -> bool:
        """Whether the memory of the jobs cannot be seen, so that followers cannot be paused.

        Some drivers do not report the memory of processes, and in some containers they list other
        PIDs. The processes of the jobs then look like those of others.
        """
        if device.number in self._blind:
            return True
        is_seen = any(job.attempt in self._tracks for job in jobs)
        return not is_seen and occupancy.has_other_processes

    def _end_group(self, jobs: list[RunningJob], device: Device) -> Iterator[MemoryAction]:
        """Return all but the oldest job to the queue, and let no others follow it."""
        left = [job for job in jobs if job.attempt not in self._stopping]
        self._closed[device.number] = {job.attempt for job in jobs}
        for job in sorted(left, key=lambda job: job.attempt)[1:]:
            self._stopping.add(job.attempt)
            self._paused.pop(job.attempt, None)
            why = "the driver does not show the memory of the jobs on its GPU"
            yield RequeueJob(job.attempt, why, True)

    def _member(self, job: RunningJob, occupancy: Occupancy) -> Member:
        track = self._tracks.get(job.attempt)
        return Member(
            job.attempt,
            job.profile,
            None if track is None else track.seen_at,
            occupancy.ours.get(job.attempt, 0),
            self._paused.get(job.attempt),
            job.attempt in self._released,
            job.attempt in self._stopping,
        )

    def _estimates(self, members: list[Member], at: float) -> dict[int, LiveEstimate]:
        """The estimate of each profile of a group: from the job that was steady for longest."""
        running = [one for one in members if one.paused_since is None and not one.is_stopping]
        estimates = {}
        for profile in {one.profile for one in members}:
            tracks = [
                self._tracks[one.attempt]
                for one in running
                if one.profile == profile and one.attempt in self._tracks
            ]
            found = [one for track in tracks if (one := live_estimate(track, at)) is not None]
            if profile in self._ended_peaks:
                estimates[profile] = LiveEstimate(self._ended_peaks[profile], True)
            elif found:
                peak = max(track.peak for track in tracks)
                estimates[profile] = LiveEstimate(peak, any(one.is_final for one in found))
        return estimates

    # -- jobs with a claim ---------------------------------------------------------------------

    def _follow_claims(
        self, jobs: list[RunningJob], device: Device, occupancy: Occupancy, at: float
    ) -> Iterator[MemoryAction]:
        for job in jobs:
            track = self._tracks.get(job.attempt)
            if track is None or is_measured(job.request):
                continue
            used = occupancy.ours.get(job.attempt, 0)
            if used > amount_of(job.request, device):
                self.is_pending = True
                self._grown.add(job.attempt)
                yield SetClaim(job.attempt, rounded_up(used))
                provisional = min(capacity(device), budget_provisionally(used))
                yield from self._learn(MemoryLearned(job.profile, used, provisional))
            estimate = live_estimate(track, at)
            if estimate is not None and estimate.is_final:
                peaks = [
                    self._tracks[one.attempt].peak
                    for one in jobs
                    if one.profile == job.profile and one.attempt in self._tracks
                ]
                yield from self._learn(MemoryLearned(job.profile, max(peaks)))

    def _learn(self, new: MemoryLearned) -> Iterator[MemoryAction]:
        """Report an estimate of a profile unless it says nothing new."""
        known = self._learned.get(new.profile)
        if known is not None:
            is_final = known.provisional is None or new.provisional is not None
            if new.peak <= known.peak and is_final:
                return
        self._learned[new.profile] = new
        yield new

    def _make_room(
        self,
        watched: list[RunningJob],
        jobs: list[RunningJob],
        device: Device,
        occupancy: Occupancy,
    ) -> Iterator[MemoryAction]:
        """The GPU is full: if an estimate was wrong, requeue the youngest job with an estimate.

        The oldest job on the GPU stays, and one job at a time leaves.
        """
        self.is_pending = True
        claimed = sum(
            max(amount_of(job.request, device), occupancy.ours.get(job.attempt, 0)) for job in jobs
        )
        is_wrong = any(job.attempt in self._grown for job in jobs)
        if not is_wrong and claimed + occupancy.other_bytes <= capacity(device):
            return
        oldest = min(jobs, key=lambda job: job.attempt)
        leaving = [job for job in watched if job.attempt != oldest.attempt]
        if not leaving or any(job.attempt in self._stopping for job in jobs):
            return
        youngest = max(leaving, key=lambda job: job.attempt)
        self._stopping.add(youngest.attempt)
        yield RequeueJob(youngest.attempt, "the memory of its GPU ran out beside other jobs", False)
        used = occupancy.ours.get(youngest.attempt, 0)
        if is_measured(youngest.request) and used:  # or it would start in the same place again
            provisional = min(capacity(device), budget_provisionally(used))
            yield from self._learn(MemoryLearned(youngest.profile, used, provisional))


def _why(estimate: LiveEstimate | None, is_full: bool) -> str:
    if estimate is not None:
        return f"a job of its kind needs {format_size(estimate.claim)}, and its GPU has no room"
    if is_full:
        return "the memory of its GPU ran out beside other jobs"
    return f"the GPU memory of its kind of job was not known after {MAX_PAUSE_SECONDS:.0f} s"


def _computes(job: RunningJob, gpu: GpuSample, occupancy: Occupancy, is_alone: bool) -> bool | None:
    """Whether a job computes on its GPU; None if that is not known."""
    if occupancy.computing is not None and job.attempt in occupancy.computing:
        return True
    if gpu.utilisation == 0:
        return False
    if is_alone:
        return True
    return None if occupancy.computing is None else False


def _is_full(gpu: GpuSample) -> bool:
    total = gpu.total - gpu.reserved
    return total - gpu.used < max(_LEAST_FREE_BYTES, _LEAST_FREE_PART * total)


def _room_beside(device: Device, occupancy: Occupancy, others: list[RunningJob]) -> int:
    """The bytes that a group of jobs may use beside the others on its GPU."""
    room = DeviceRoom(device, DeviceState(unreserved_bytes=occupancy.other_bytes))
    for job in others:
        room.add(job.request, 0.0, 0.0)
    return room.free
