"""The state of each GPU for tables and JSON: sample, jobs, other processes, leases."""

from __future__ import annotations

from stoker.engine.daemon.gpus.gpu_file import NOT_NAMED, read_gpu_file
from stoker.engine.daemon.gpus.process_owners import (
    leased_on,
    mps_servers,
    owners,
    user_name,
    user_of,
)
from stoker.engine.daemon.status import daemon_pid, known_devices
from stoker.engine.devices.discovery import as_device, has_driver
from stoker.engine.devices.driver_client import sample_once
from stoker.engine.devices.leases.holders import Holder
from stoker.engine.devices.leases.lease import holders, other_lock
from stoker.engine.gpus.occupancy import Occupancy, describe, occupancy_of
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.model import MPS, SIMULATED, TIME, Device
from stoker.engine.policy.eligible import is_named
from stoker.engine.store import device_settings, job_queries, meta
from stoker.engine.store.database import Database
from stoker.engine.store.device_settings import load_devices
from stoker.engine.store.job_queries import JobRow
from stoker.errors import Conflict, Error, NoPermission
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import ACTIVE
from stoker.text.commands.shell_words import display
from stoker.text.sizes import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MpsView(Record):
    """NVIDIA's MPS on one GPU."""

    state: str  # starting, running, failed or stopped
    reason: str | None  # why it failed; jobs then share the GPU by time slices
    server: int  # PID; 0 if it does not run
    deaths: int  # how often its processes died

    def words(self) -> str:
        died = f"; it was restarted {self.deaths} times" if self.deaths > 1 else ""
        died = "; it was restarted once" if self.deaths == 1 else died
        if self.reason is not None:
            return f"MPS is not used, jobs share by time slices: {self.reason}"
        pid = f" (pid {self.server})" if self.server else ""
        return f"MPS is {self.state}{pid}{died}"


class GpuView(Record):
    """One GPU with everything that is known about it now."""

    device: Device
    sample: GpuSample | None  # None: simulated
    jobs: tuple[JobRow, ...]
    occupancy: Occupancy | None
    holders: tuple[Holder, ...]  # of leases, without the daemon of this queue
    state: str
    closed: str | None  # why no job starts on it
    mps: MpsView | None = None  # None: MPS is not used
    reserved_for: int | None = None  # the waiting job for which the policy keeps it

    def memory_words(self) -> str:
        if self.sample is None:
            return "-"
        total = self.sample.total - self.sample.reserved
        return f"{self.sample.used / 2**30:.1f}/{format_size(total)}"

    def load_words(self) -> str:
        sample = self.sample
        return "-" if sample is None or sample.utilisation is None else f"{sample.utilisation}%"

    def temperature_words(self) -> str:
        """`45 C 320 W`: temperature and power."""
        sample = self.sample
        if sample is None or sample.temperature is None:
            return "-"
        power = "" if sample.power is None else f" {sample.power:.0f} W"
        return f"{sample.temperature} C{power}"

    def user_words(self) -> list[str]:
        """A line for each job, other process and lease on the GPU."""
        lines = [
            f"{job.id} {job.name or display(job.argv, job.shell)}{self._share_of(job)}"
            for job in self.jobs
        ]
        mps = [self.mps.words()] if self.mps is not None and self.mps.state != "stopped" else []
        held = [self.reserved_words()] if self.reserved_for is not None else []
        return lines + mps + self.others_words() + held

    def reserved_words(self) -> str:
        """`reserved for 25`; "" if no job waits for this GPU in particular."""
        return "" if self.reserved_for is None else f"reserved for {self.reserved_for}"

    def others_words(self) -> list[str]:
        """A line for each process and lease that is not of this queue."""
        others = self.occupancy.other_processes if self.occupancy is not None else ()
        return [
            *(f"other process: {describe(one)}" for one in others),
            *(holder_words(one) for one in self.holders),
        ]

    def _share_of(self, job: JobRow) -> str:
        words = []
        if self.occupancy is not None and job.attempt in self.occupancy.ours:
            words.append(f"uses {format_size(self.occupancy.ours[job.attempt])}")
        if job.claim is not None:
            words.append(f"reserved {format_size(job.claim)}")
        return f"  ({', '.join(words)})" if words else ""

    def _memory_of(self, job: JobRow) -> int | None:
        """The memory that a job uses on this GPU; None if it is not known."""
        return self.occupancy.ours.get(job.attempt or 0) if self.occupancy else None

    def as_json(self) -> dict[str, Any]:
        device = self.device
        sample = self.sample
        return {
            "index": device.number,
            "uuid": device.uuid,
            "visible": device.visible,
            "model": device.model,
            "pci": device.pci,
            "slice_of": device.slice_of,
            "numa_node": device.numa,
            "near_cpus": device.cpus,
            "nvlink": list(device.links),
            "slots": device.slots,
            "share": device.share or TIME,
            "mps": None if self.mps is None else self.mps._asdict(),
            "state": self.state,
            "reserved_for": self.reserved_for,
            "memory_bytes": device.memory,
            "simulated": device.uuid.startswith(SIMULATED),
            "memory_used_bytes": sample.used if sample else None,
            "utilisation_percent": sample.utilisation if sample else None,
            "power_watts": sample.power if sample else None,
            "temperature_celsius": sample.temperature if sample else None,
            "jobs": [
                {"id": job.id, "claim_bytes": job.claim, "memory_bytes": self._memory_of(job)}
                for job in self.jobs
            ],
            "other_processes": [
                {
                    "pid": one.pid or None,
                    "user": one.user,
                    "memory_bytes": one.memory,
                    "compute": one.compute,
                }
                for one in (self.occupancy.other_processes if self.occupancy else ())
            ],
            "holders": [
                {"uid": one.uid, "pid": one.pid, "amount_bytes": one.amount} for one in self.holders
            ],
        }


def load_gpu_views(db: Database, settings: Settings) -> tuple[list[GpuView], str | None]:
    """All GPUs in their present state, and the error of the driver or None."""
    active = job_queries.jobs_in_states(db, ACTIVE, 1000)
    decisions = {uuid: rest for uuid, *rest in device_settings.device_settings(db)}
    shares = device_settings.device_shares(db)
    if settings.devices or not has_driver():
        devices = known_devices(db, settings)
        return [_make_view(d, None, active, None, (), decisions) for d in devices], None
    sample = sample_once()
    if sample.gpus is None:
        devices = load_devices(db)
        return [_make_view(d, None, active, None, (), decisions) for d in devices], sample.error
    known = {device.uuid: device for device in load_devices(db)}
    own_pid = daemon_pid(settings.state_dir)
    attempts, users = owners(sample.gpus, meta.tag_base(db))
    servers = mps_servers(users)
    shown = []
    for gpu in sample.gpus:
        device = known.get(gpu.uuid) or as_device(gpu, by_uuid=settings.gpus_by_uuid)
        leased = leased_on(gpu, users, own_pid) if settings.leases else set()
        occupancy = occupancy_of(gpu, attempts, users, leased, servers)
        device = device._replace(share=shares.get(device.uuid, settings.gpu_share))
        others, problem = _leases(gpu, own_pid)
        blocked = problem.message if problem is not None and settings.leases else None
        view = _make_view(device, gpu, active, occupancy, others, decisions, blocked)
        shown.append(view._replace(mps=load_mps_view(device, active)))
    if sample.error is not None:  # a GPU cannot be opened
        sampled = {gpu.uuid for gpu in sample.gpus}
        for uuid in known.keys() - sampled:
            lost = _make_view(known[uuid], None, active, None, (), decisions)
            closed = lost.closed or sample.error
            shown.append(lost._replace(state=closed, closed=closed))
        shown.sort(key=lambda one: one.device.number)
    return _allowed(shown, settings), None


def _leases(gpu: GpuSample, own_pid: int | None) -> tuple[tuple[Holder, ...], Error | None]:
    """Leases on a GPU, without those of process `own_pid`, and why no job can lease it."""
    place = (gpu.uuid, gpu.pci, gpu.slice_of is not None)
    try:
        held = tuple(one for one in holders([place]) if one.pid != own_pid)
        pid = other_lock(place)
    except Error as error:
        return (), NoPermission(f"cannot be leased: {error.message}", error.hint)
    if pid is None or pid == own_pid:
        return held, None
    why = f"its lease is locked by {user_of(pid)} (pid {pid}), which is not a job of Stoker"
    return held, Conflict(why, f"ask {user_of(pid)} to end process {pid}; jobs wait until then")


def lease_problem(gpu: GpuSample, settings: Settings) -> Error | None:
    """Why no job can lease a GPU although no job has it; None if there is no such reason."""
    return _leases(gpu, daemon_pid(settings.state_dir))[1] if settings.leases else None


def load_mps_view(device: Device, active: list[JobRow]) -> MpsView | None:
    """The state of MPS on a GPU; None if this user does not use it there."""
    from stoker.features import SHARE_VIEWS, load

    view: MpsView | None = load(SHARE_VIEWS[MPS])(device, active) if MPS in SHARE_VIEWS else None
    return view


def _allowed(shown: list[GpuView], settings: Settings) -> list[GpuView]:
    """The same GPUs; those that the GPU file does not name are closed."""
    try:
        names = None if settings.gpu_file is None else read_gpu_file(settings.gpu_file)
    except (OSError, ValueError, Error):
        names = None
    if names is None:
        return shown
    return [
        one._replace(state=NOT_NAMED, closed=NOT_NAMED)
        if one.closed is None and not is_named(one.device, names)
        else one
        for one in shown
    ]


def _make_view(
    device: Device,
    sample: GpuSample | None,
    active: list[JobRow],
    occupancy: Occupancy | None,
    leases: tuple[Holder, ...],
    decisions: dict[str, list[Any]],
    blocked: str | None = None,
) -> GpuView:
    drained, slots, quarantine = decisions.get(device.uuid, (False, None, None))
    device = device._replace(slots=slots or device.slots)  # also while no daemon runs
    jobs = tuple(job for job in active if device.number in job.devices)
    closed = None
    if sample is not None and sample.error is not None:
        closed = sample.error
    elif quarantine:
        closed = f"in quarantine: {quarantine}"
    elif drained:
        closed = "drained"
    elif blocked is not None:
        closed = blocked
    elif not jobs and any(one.amount is None for one in leases):
        closed = f"leased to {holder_name(leases[0])}"
    is_taken = (occupancy is not None and occupancy.has_other_processes) or bool(leases)
    state = closed or ("busy" if jobs else "taken" if is_taken else "free")
    return GpuView(
        device=device,
        sample=sample,
        jobs=jobs,
        occupancy=occupancy,
        holders=leases,
        state=state,
        closed=closed,
    )


def holder_name(holder: Holder) -> str:
    return f"{user_name(holder.uid)} (pid {holder.pid})"


def holder_words(holder: Holder) -> str:
    amount = "all memory" if holder.amount is None else format_size(holder.amount)
    return f"{amount} leased to {holder_name(holder)}"
