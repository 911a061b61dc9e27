"""The daemon of a GPUPeasy queue: Stoker's daemon with devices that are strings.

It reads the list of devices from the database, so that devices can be added and removed while jobs
run, and writes events to logs.out, whether or not a server is running.
"""

from __future__ import annotations

import os
import sys
import time

from stoker.compat.foreground.gpu_slots import FIRST_FREED, MonitoredSlots, SlotGpus, make_slots
from stoker.compat.gpupeasy.event_log import EventLog, label
from stoker.compat.gpupeasy.jobs import return_code
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.main import Daemon, main
from stoker.engine.model import UNCOUNTED, HostResources, Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import job_queries, meta, named_devices
from stoker.engine.supervisor.messages import AttemptStarted
from stoker.errors import Error
from stoker.settings import Settings

MODULE = "stoker.compat.gpupeasy.daemon"
READY = "peasy_ready"  # in the database: whether the ends of all earlier jobs are recorded


class PeasyDaemon(Daemon):
    restart = (sys.executable, "-P", "-m", MODULE)

    def __init__(self, settings: Settings) -> None:
        self._event_log = EventLog(os.path.dirname(settings.state_dir))
        self._slots: SlotGpus | MonitoredSlots | None = None
        self._used: tuple[str, ...] = ()
        self._is_ready = False
        super().__init__(settings)

    def host_resources(self) -> HostResources:
        """None are counted: jobs of GPUPeasy have only a device."""
        return UNCOUNTED

    def find_gpus(self, tag_base: int) -> Gpus:
        """The slots of all devices ever used, because jobs refer to slots by number."""
        while not self._store_ready(False) and not self._is_stopping:
            time.sleep(0.05)
        named = named_devices.read(self._db) or named_devices.NamedDevices()
        self._slots = make_slots(
            named.all_names, self._settings, tag_base, FIRST_FREED, self.message
        )
        self._use_devices(named.names_in_use)
        return self._slots

    def _recover(self, living: list[AttemptStarted]) -> None:
        super()._recover(living)
        self._mark_ready()

    def _mark_ready(self) -> None:
        if not self._is_ready and not self._loop.has_unrecorded:
            self._is_ready = self._store_ready(True)

    def _store_ready(self, is_ready: bool) -> bool:
        try:
            with self._db.transaction():
                meta.set_meta(self._db, READY, int(is_ready))
            return True
        except Error as error:  # another process holds the write lock
            self.message(error.message)
            return False

    def _observe(self) -> None:
        super()._observe()
        self._mark_ready()
        named = named_devices.read(self._db)
        if named is not None and named.names_in_use != self._used:
            self._use_devices(named.names_in_use)
            self._loop.devices_changed()

    def _use_devices(self, names: tuple[str, ...]) -> None:
        assert self._slots is not None
        self._slots.use(names)
        self._used = names

    # -- logs.out ------------------------------------------------------------------------------

    def starting(self, job: int, devices: tuple[int, ...]) -> None:
        row = job_queries.job(self._db, job)
        self._event_log.write(
            "Info", "Scheduling", label(job, row.name), "on gpu ", self._gpu(devices)
        )

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        super().finished(job, outcome, verdict)
        row = job_queries.job(self._db, job)
        name = label(job, row.name)
        if verdict.event == "return":
            self._event_log.write(
                "Warning", "Process", name, "returns to the queue:", verdict.cause
            )
        elif verdict.cause == "start_failed":
            self._event_log.write(
                "Error", "Scheduling failed for", name, "on gpu", self._gpu(row.devices)
            )
            self._event_log.write("Error", "OSError: ", outcome.detail)
        else:
            level = "Success" if verdict.event == "succeed" else "Warning"
            self._event_log.write(
                level, "Process", name, f"exited with return code: {return_code(row)}"
            )

    def _gpu(self, devices: tuple[int, ...]) -> str:
        return ",".join(self._loop.gpus.devices[number].visible for number in devices)


if __name__ == "__main__" and os.fork() == 0:  # the parent exits, so that init adopts the daemon
    os.chdir("/")
    main(PeasyDaemon)
