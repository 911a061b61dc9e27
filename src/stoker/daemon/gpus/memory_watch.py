"""Watches the GPU memory of jobs with `--gpu-mem auto` while they run.

- A job whose command profile has no estimate is measured (core/profiles/live_memory.py); others of
  its profile start beside it and are paused until then (core/gpus/measured_group.py).
- The claim of a job that uses more than it reserved follows its use, and its profile is corrected.
- If a GPU runs out of memory because an estimate was wrong, the youngest of these jobs returns to
  the queue before the others fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stoker.core.formats.sizes import format_size
from stoker.core.gpus.measured_group import MAX_PAUSE_SECONDS, GroupStep, Member, advance_group
from stoker.core.gpus.occupancy import Occupancy
from stoker.core.gpus.sample import GpuSample
from stoker.core.gpus.saturation import is_saturated
from stoker.core.model import Device, DeviceState, RunningJob
from stoker.core.policy.placement import DeviceRoom, amount_of, capacity, is_measured
from stoker.core.profiles.live_memory import (
    LiveEstimate,
    MemoryTrack,
    budget_provisionally,
    live_estimate,
    rounded_up,
    update_track,
)
from stoker.daemon.gpus.group_leases import GroupLeases
from stoker.daemon.gpus.memory_actions import (
    ContinueJob,
    MemoryAction,
    MemoryLearned,
    PauseJob,
    RequeueJob,
    SetClaim,
)

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
        if not watched or not device.memory:
            return []
        for job in watched:
            used = occupancy.ours.get(job.attempt, 0)
            if used or job.attempt in self._tracks:
                track = self._tracks.get(job.attempt)
                self._tracks[job.attempt] = update_track(
                    track, used, at, gpu.utilisation, gpu.load_at
                )
        is_full = _is_full(gpu)
        actions = list(self._follow_claims(watched, device, occupancy, at))
        groups: dict[int, list[RunningJob]] = {}
        for job in watched:
            if is_measured(job.request):
                groups.setdefault(job.profile, []).append(job)
        for profile, members in groups.items():
            if len(members) > 1 and self._is_blind(gpu, members, occupancy):
                actions += self._end_group(members, device)
                continue
            others = [job for job in jobs if job not in members]
            room = _room_beside(device, occupancy, others)
            actions += self._advance(profile, members, device, occupancy, room, is_full, at)
        if is_full and not any(isinstance(one, RequeueJob) for one in actions):
            actions += self._make_room(watched, jobs, device, occupancy)
        return actions

    def takes_followers(self, device: int, live: Mapping[int, RunningJob]) -> bool:
        """Whether jobs may start beside one that is being measured on the device."""
        if device in self._closed:
            return False
        measured = [j for j in live.values() if device in j.devices and is_measured(j.request)]
        # Without the lease of the first (this daemon is not the one that took it), none can join.
        return all(self._leases.has(device, job.profile) for job in measured)

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
        active = [
            job for job in jobs if job.attempt in occupancy.ours and job.attempt not in self._paused
        ]
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

    def learned(self, profile: int, peak: int) -> None:
        """A job of the profile ended well: its followers need no measurement."""
        self._ended_peaks[profile] = peak

    def resumed(self) -> None:
        """All jobs continue, because the process that had paused them died."""
        self._paused.clear()

    # -- groups that are being measured --------------------------------------------------------

    def _advance(
        self,
        profile: int,
        jobs: list[RunningJob],
        device: Device,
        occupancy: Occupancy,
        room: int,
        is_full: bool,
        at: float,
    ) -> Iterator[MemoryAction]:
        members = [self._member(job, occupancy) for job in jobs]
        estimate = self._estimate(profile, members, at)
        step = advance_group(
            members,
            estimate,
            room,
            at,
            is_full=is_full and len(members) > 1,
            is_saturated=device.number in self._saturated,
        )
        if not step.is_resolved and (len(jobs) > 1 or step.leader is not None):
            self.is_pending = True
        ids = {job.attempt: job.id for job in jobs}
        for attempt in step.pause:
            self._paused[attempt] = at
            leader = ids.get(step.leader or 0)
            yield PauseJob(attempt, f"until the GPU memory of job {leader} is known")
        for attempt in step.release:
            self._released.add(attempt)
            if self._paused.pop(attempt, None) is not None:
                # Its memory was steady only because it was paused.
                self._tracks[attempt] = self._tracks[attempt]._replace(
                    seen_at=at, steady_since=at, has_computed=False
                )
                yield ContinueJob(attempt)
        for attempt in step.requeue:
            self._stopping.add(attempt)
            was_released = attempt in self._released
            yield RequeueJob(attempt, _why(step, estimate, is_full), not was_released)
        if step.requeue and not step.is_resolved:
            self._closed[device.number] = {job.attempt for job in jobs}
        if estimate is not None:
            if estimate.is_final:
                yield from self._learn(MemoryLearned(profile, estimate.peak))
            elif estimate.claim <= capacity(device):
                yield from self._learn(MemoryLearned(profile, estimate.peak, estimate.claim))
            if step.is_resolved:
                yield from self._resolve(profile, jobs, device, estimate)

    def _is_blind(self, gpu: GpuSample, jobs: list[RunningJob], occupancy: Occupancy) -> bool:
        """Whether the memory of the jobs cannot be seen, so that followers cannot be paused.

        Some drivers do not report the memory of processes, and in some containers they list other
        PIDs. The processes of the jobs then look like those of others.
        """
        if any(process.memory is None for process in gpu.processes if process.compute):
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
            None if track is None else track.seen_at,
            occupancy.ours.get(job.attempt, 0),
            self._paused.get(job.attempt),
            job.attempt in self._released,
            job.attempt in self._stopping,
        )

    def _estimate(self, profile: int, members: list[Member], at: float) -> LiveEstimate | None:
        """The estimate for the members of a group: from the job that was steady for longest."""
        if profile in self._ended_peaks:
            return LiveEstimate(self._ended_peaks[profile], True)
        running = [one for one in members if one.paused_since is None and not one.is_stopping]
        tracks = [self._tracks[one.attempt] for one in running if one.attempt in self._tracks]
        found = [one for track in tracks if (one := live_estimate(track, at)) is not None]
        if not found:
            return None
        peak = max(track.peak for track in tracks)
        return LiveEstimate(peak, any(one.is_final for one in found))

    def _resolve(
        self, profile: int, jobs: list[RunningJob], device: Device, estimate: LiveEstimate
    ) -> Iterator[MemoryAction]:
        """Give each member its own claim; the lease of the group shrinks to their sum."""
        left = [job.attempt for job in jobs if job.attempt not in self._stopping]
        claims = dict.fromkeys(left, min(estimate.claim, capacity(device)))
        if claims and self._leases.resolve(device.number, profile, claims):
            for attempt, memory in claims.items():
                yield SetClaim(attempt, memory)

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


def _why(step: GroupStep, estimate: LiveEstimate | None, is_full: bool) -> str:
    if estimate is not None and step.is_resolved:
        return f"a job of its kind needs {format_size(estimate.claim)}, and its GPU has no room"
    if is_full:
        return "the memory of its GPU ran out beside other jobs"
    return f"the GPU memory of its kind of job was not known after {MAX_PAUSE_SECONDS:.0f} s"


def _is_full(gpu: GpuSample) -> bool:
    total = gpu.total - gpu.reserved
    return total - gpu.used < max(_LEAST_FREE_BYTES, _LEAST_FREE_PART * total)


def _room_beside(device: Device, occupancy: Occupancy, others: list[RunningJob]) -> int:
    """The bytes that a group of jobs may use beside the others on its GPU."""
    room = DeviceRoom(device, DeviceState(unreserved_bytes=occupancy.other_bytes))
    for job in others:
        room.add(job.request, 0.0, 0.0)
    return room.free
