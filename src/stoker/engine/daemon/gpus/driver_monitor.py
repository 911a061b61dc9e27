"""Updates the loop's GPUs from driver samples, the GPU file and leases of other users."""

from __future__ import annotations

import os

from stoker.engine.daemon.gpus.fixed_gpus import FixedGpus
from stoker.engine.daemon.gpus.gpu_file import read_gpu_file
from stoker.engine.daemon.gpus.gpus import ChangingGpus, Gpus
from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.engine.daemon.interfaces import EventListener
from stoker.engine.daemon.loop import Loop
from stoker.engine.devices.discovery import has_driver, simulated
from stoker.engine.devices.driver_client import DriverClient
from stoker.engine.gpus.sample import Sample
from stoker.engine.policy.eligible import is_named
from stoker.errors import Error
from stoker.settings import Settings

_FILE_SECONDS = 2.0


def find_gpus(settings: Settings, tag_base: int) -> Gpus:
    """The host's GPUs: simulated ones if configured, else those that the driver reports."""
    if settings.devices:
        return FixedGpus(simulated(settings.devices))
    if has_driver():
        return MonitoredGpus(
            tag_base,
            settings.leases,
            settings.gpus_by_uuid,
            share=settings.gpu_share,
            mps_idle=settings.mps_idle,
        )
    return FixedGpus(())


class DriverMonitor:
    """Runs the driver process for one loop. It does nothing for GPUs that never change."""

    def __init__(self, gpus: Gpus, gpu_file: str | None = None) -> None:
        self._gpus = gpus
        self._driver = DriverClient() if isinstance(gpus, ChangingGpus) else None
        self._gpu_file = gpu_file
        self._file_seen: tuple[int, int] | None = None
        self._read_file_at = 0.0
        self._request_at: float | None = None
        self._reported: str | None = None  # the problem that was logged last
        self._reported_mps: dict[str, str] = {}  # by GPU
        self.newest: Sample | None = None

    def descriptors(self) -> set[int]:
        """File descriptors to poll, in addition to the loop's."""
        if self._driver is None or not isinstance(self._gpus, ChangingGpus):
            return set()
        found = {self._driver.fileno()}
        if self._gpus.leases.waiter is not None:
            found.add(self._gpus.leases.waiter.fileno())
        return found

    def helpers(self) -> set[int]:
        """PIDs of helper processes, which are not jobs."""
        if self._driver is None or not isinstance(self._gpus, ChangingGpus):
            return set()
        waiter = self._gpus.leases.waiter
        pids = {self._driver.pid, None if waiter is None else waiter.pid}
        return {pid for pid in pids if pid is not None} | self._gpus.servers.pids()

    def next_deadline(self) -> float | None:
        if self._driver is None:
            return None
        times = [
            self._driver.next_deadline(),
            self._request_at,
            self._gpus.servers.next_deadline(),
        ]
        if self._gpu_file is not None and self._gpus.devices:
            times.append(self._read_file_at)
        return min((at for at in times if at is not None), default=None)

    def observe(self, loop: Loop, listener: EventListener, now: float) -> None:
        """Apply new samples, the GPU file and leases that became free to the loop."""
        gpus = self._gpus
        if self._driver is None or not isinstance(gpus, ChangingGpus):
            return
        for sample in (*self._driver.read(), *self._driver.check(now)):
            self.newest = sample
            if gpus.update(sample, loop.running):
                loop.devices_changed()
            loop.follow_memory(gpus.take_memory_actions())
            loop.stop_jobs_on(gpus.lost())
        # Only after the first sample: names are checked against the GPUs, and no job starts before.
        if self._gpu_file is not None and gpus.devices and now >= self._read_file_at:
            self._read_file_at = now + _FILE_SECONDS
            if self._read_file(self._gpu_file, gpus, listener):
                loop.devices_changed()
        problem = None
        if gpus.problem is not None:
            problem = f"no GPU job starts: {gpus.problem}"
        elif gpus.leases.problem is not None:
            problem = f"a GPU cannot be leased: {gpus.leases.problem}"
        if problem is not None and problem != self._reported:
            listener.message(problem)
        self._reported = problem
        if gpus.take_waited_lease() or gpus.poll_servers(now):
            loop.devices_changed()
        self._report_mps(gpus, listener)
        self._driver.set_active(bool(loop.running) or loop.has_waiting)
        again = gpus.next_poll(now)
        if again is None:
            self._request_at = None
        elif self._request_at is None or now >= self._request_at:
            self._driver.ask(with_utilization=gpus.is_measuring)
            self._request_at = again

    def _report_mps(self, gpus: ChangingGpus, listener: EventListener) -> None:
        """Report once on which GPUs MPS does not work."""
        failures = gpus.servers.failures()
        problems = {
            device.visible: failures[device.uuid]
            for device in gpus.devices
            if device.uuid in failures
        }
        if problems != self._reported_mps:
            for gpu, why in problems.items():
                if self._reported_mps.get(gpu) != why:
                    listener.message(
                        f"MPS is not used on GPU {gpu}, which jobs share by time slices: {why}"
                    )
            self._reported_mps = problems

    def _read_file(self, path: str, gpus: ChangingGpus, listener: EventListener) -> bool:
        """Apply the GPU file; False if it has not changed or is not valid."""
        try:
            info = os.stat(path)
            seen = (info.st_mtime_ns, info.st_size)
            if seen == self._file_seen:
                return False
            slots = read_gpu_file(path)
        except (OSError, ValueError, Error) as error:
            why = error.message if isinstance(error, Error) else error
            listener.message(f"cannot use the GPU file `{path}` ({why}); it is ignored")
            return False
        self._file_seen = seen
        for name in slots:
            if not any(is_named(device, (name,)) for device in gpus.devices):
                listener.message(f"`{path}` names GPU `{name}`, which this host does not have")
        gpus.use_only(slots)
        return True

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
        self._gpus.close()
