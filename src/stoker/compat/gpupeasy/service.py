"""The operations of the server on its queue; every result is a dictionary for JSON."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stoker import __version__
from stoker.client.context import current_context
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.compat.gpupeasy import jobs
from stoker.compat.gpupeasy.daemon import MODULE, READY
from stoker.compat.gpupeasy.event_log import EventLog, label
from stoker.compat.gpupeasy.jobs import (
    InvalidSubmission,
    PeasySubmission,
    return_code,
    shown_out,
    split_device_list,
    status_of,
)
from stoker.engine.daemon.start import ensure_daemon
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import JobSpec, Request
from stoker.engine.store import changes, edits, job_queries, meta, named_devices
from stoker.engine.store.job_queries import JobRow
from stoker.engine.store.named_devices import NamedDevices
from stoker.engine.store.output_columns import literal_path
from stoker.engine.store.submit import Submission
from stoker.engine.supervisor.logs import job_folder
from stoker.errors import Error
from stoker.settings import Settings
from stoker.states import ACTIVE, FINAL, WAITING
from stoker.text.byte_text import to_bytes

_ALL = 10**9
_MAX_COPIES = 1000
_MAX_DEVICES = 1000
_READY_SECONDS = 10.0
_POLL_SECONDS = 0.01
# Concurrent submissions must keep the order of their IDs and must not exceed the limit.
_submitting = threading.Lock()


Response = dict[str, Any]


class JobNotFound(Exception):
    pass


def successful(**fields: object) -> Response:
    return {"status": "successful", **fields}


def failed(message: str, **fields: object) -> Response:
    return {"status": "failed", "message": message, **fields}


def _brief(row: JobRow) -> Response:
    return {"jobID": row.id, "jobName": row.name, "jobCommand": " ".join(row.argv)}


class PeasyQueue(Queue):
    """A queue that is served by PeasyDaemon."""

    def ensure_daemon(self) -> bool:
        return ensure_daemon(self.settings, MODULE)


class Service:
    """One per thread, because a database connection belongs to the thread that opened it.

    Methods raise JobNotFound for an unknown ID, and InvalidSubmission.
    """

    def __init__(self, settings: Settings, log: EventLog, limit: int) -> None:
        self._queue = PeasyQueue(settings)
        self._db = self._queue.db
        self._log = log
        self._limit = limit  # maximum number of waiting jobs; 0: no limit

    def close(self) -> None:
        self._db.close()

    # -- lists ---------------------------------------------------------------------------------

    def devices(self) -> Response:
        return successful(value=list(self._devices.names_in_use))

    @property
    def _devices(self) -> NamedDevices:
        return named_devices.read(self._db) or NamedDevices()

    def running(self) -> Response:
        rows = self._rows(ACTIVE, lambda row: row.attempt or 0)
        return successful(value=[{**_brief(row), "gpu": self._gpu(row)} for row in rows])

    def scheduled(self, limit: int = _ALL) -> Response:
        rows = self._rows(WAITING, lambda row: (-row.priority, row.id))
        return _listed([_brief(row) for row in rows[:limit]], len(rows) - limit)

    def finished(self, limit: int, *states: str) -> Response:
        """The newest jobs, oldest first."""
        rows = self._rows(states, lambda row: (row.ended_at or 0.0, row.id))
        newest = rows[-limit:] if limit else []
        found = [{**_brief(row), "returnCode": return_code(row)} for row in newest]
        return _listed(found, len(rows) - limit)

    def _rows(self, states: Iterable[str], key: Callable[[JobRow], Any]) -> list[JobRow]:
        return sorted(job_queries.jobs_in_states(self._db, tuple(states), _ALL), key=key)

    def _newest_first(self, limit: int = _ALL) -> list[JobRow]:
        states = (*ACTIVE, *FINAL, *WAITING)
        return job_queries.jobs_in_states(self._db, states, limit, newest_first=True)

    def _gpu(self, row: JobRow) -> str:
        names = self._devices.all_names
        return ",".join(names[number] for number in row.devices if number < len(names))

    # -- one job -------------------------------------------------------------------------------

    def info(self, id: str) -> Response:
        row = self._find(id)
        value = {
            "jobid": row.id,
            "jobName": row.name,
            "jobCommand": " ".join(row.argv),
            "outFile": shown_out(row),
            "status": status_of(row),
            "returnCode": return_code(row),
        }
        return successful(message={}, value=value)

    def details(self, id: str) -> Response:
        """All details of a job; `info` has the keys of the original only."""
        row = self._find(id)
        value = {
            **self.info(id)["value"],
            "argv": list(row.argv),
            "gpu": self._gpu(row) if row.devices else None,
            "pid": row.pid if row.state in ACTIVE else None,
            "priority": row.priority,
            "attempts": row.attempts,
            "checkpoint": row.settings.restartable,
            "checkpointDir": f"{job_folder(self._queue.settings.state_dir, row.id)}/checkpoints",
            "stopRequested": row.stop_requested,
            "result": views.result_words(row),
            "submittedAt": views.iso(row.submitted_at),
            "startedAt": views.iso(row.started_at),
            "endedAt": views.iso(row.ended_at),
            "rerunOf": row.rerun_of,
        }
        return successful(message={}, value=value)

    def log(self, id: str | None, out: str, last: str) -> Response:
        """The last lines of the output of a job; never of another file."""
        try:
            row = jobs.find_by_output(out, self._newest_first()) if id is None else self._find(id)
        except JobNotFound:
            row = None
        if row is None:
            return _missing_file(out if id is None else id)
        try:
            count = abs(int(last)) if len(last) < 10 else _ALL
        except ValueError:
            return {"status": "failed", "value": f"lastN is not a number: {last[:40]}"}
        try:
            return successful(value=jobs.last_lines(row.stdout or "", count))
        except FileNotFoundError:
            return _missing_file(shown_out(row))
        except OSError:
            return {"status": "failed", "value": f"Could not read file: {shown_out(row)}\n"}

    def _find(self, id: str) -> JobRow:
        if id.isascii() and id.isdigit() and len(id) < 18:
            try:
                return job_queries.job(self._db, int(id))
            except Error:
                pass
        raise JobNotFound

    # -- submitting ----------------------------------------------------------------------------

    def add(self, data: object) -> Response:
        if data is None:
            return failed("No JSON data was found")
        if not isinstance(data, dict) or "job" not in data:
            return failed("Key 'job' not found")
        with _submitting:
            ids = self._submit([_checked(data["job"], set())])
        return successful(message="Job added successfully", jobID=ids[0])

    def add_all(self, data: object) -> Response:
        """Submit {"jobs": [...]}, all or none; `errors` has one entry per job."""
        if not isinstance(data, dict) or not isinstance(data.get("jobs"), list):
            return failed("Key 'jobs' not found")
        found: list[PeasySubmission] = []
        errors: list[str | None] = []
        taken: set[tuple[str, str]] = set()
        with _submitting:
            for job in data["jobs"]:
                try:
                    found.append(_checked(job, taken))
                    errors.append(None)
                except InvalidSubmission as refused:
                    errors.append(str(refused))
            if any(errors) or not found:
                return failed("No jobs were submitted", errors=errors)
            if data.get("dryRun"):
                return successful(message="Nothing was submitted", jobIDs=[])
            try:
                ids = self._submit(found)
            except InvalidSubmission as refused:
                if refused.index is None:
                    raise  # not about one of the jobs
                errors[refused.index] = str(refused)
                return failed("No jobs were submitted", errors=errors)
        return successful(message="Jobs added successfully", jobIDs=ids)

    def _submit(self, submissions: list[PeasySubmission]) -> list[int]:
        self._check_limit(len(submissions), submissions[0].name)
        context = current_context(self._queue.settings)
        specs = [
            JobSpec(
                job.argv,
                context,
                False,
                Request(gpus=1),
                job.name,
                job.priority,
                settings=JobSettings(retries=job.retries, restartable=job.restartable),
                stdout=literal_path(os.path.join(context.cwd, ".", job.out)),
            )
            for job in submissions
        ]
        created: list[str] = []
        try:
            for index, job in enumerate(submissions):
                jobs.create(job.out, index)
                created.append(job.out)
            # Without duration estimates, the queue stays first come, first served.
            receipt = Submission(self._db, learns=False).add(specs, self._now())
        except BaseException as error:
            for path in created:
                os.unlink(path)
            if isinstance(error, Error):
                raise self._not_added(submissions[0].name, error.message) from None
            raise
        self._wake()
        return receipt.ids

    def _not_added(self, name: str | None, reason: str) -> InvalidSubmission:
        self._log.write("Error", "Adding new job failed.", reason)
        return InvalidSubmission(f"Could not add new job: {name}. Check logs for details")

    def _check_limit(self, more: int, name: str | None) -> None:
        if not self._limit:
            return
        waiting = job_queries.counts_up_to(self._db, self._limit).get("queued", 0)
        if waiting + more > self._limit:
            raise self._not_added(name, "Queue full.")

    def _now(self) -> float:
        """The current time, but never before the newest job if the clock was set back."""
        newest = self._newest_first(1)
        return max(time.time(), newest[0].submitted_at if newest else 0.0)

    def _wake(self) -> None:
        try:
            self._queue.ensure_daemon()
        except Error as error:  # the job is already in the queue
            self._log.write("Critical", error.message)

    # -- changing ------------------------------------------------------------------------------

    def cancel(self, id: str) -> Response:
        row = self._find(id)
        if row.state in FINAL:
            return failed(f"Job (jobid :{row.id}) has already finished")
        self._queue.cancel([row.id])
        self._log.write("Info", "Cancelling", label(row.id, row.name))
        return successful(message="Job cancelled")

    def prioritize(self, id: str, priority: object) -> Response:
        row, number = self._find(id), jobs.priority_of(priority)
        if not self._queue.set_priority([row.id], number):
            return failed(f"Job (jobid :{row.id}) is no longer waiting")
        return successful(message=f"Priority set to {number}")

    def rerun(self, id: str) -> Response:
        """Submit the job again, with a new output file next to the old one."""
        row = self._find(id)
        if row.state not in FINAL:
            return failed(f"Job (jobid :{row.id}) has not finished yet")
        paths = (f"{row.stdout}.{number}" for number in range(2, _MAX_COPIES))
        path = next((path for path in paths if not os.path.lexists(path)), str(row.stdout))
        with _submitting:
            self._check_limit(1, row.name)
            jobs.create(path)
            try:
                new = self._copy(row.id, path)
            except BaseException:
                os.unlink(path)
                raise
        self._wake()
        return successful(message="Job added successfully", jobID=new)

    def _copy(self, id: int, out: str) -> int:
        """Copy a job with its folder and environment; held until its output file is set."""
        now = self._now()
        new = changes.rerun(self._db, [id], now, held=True)[0]
        edits.edit(self._db, new, {"stdout": to_bytes(literal_path(out))}, now)
        changes.release(self._db, [new], now)
        return new

    def add_device(self, device: object) -> Response:
        """Add one device, or several in the syntax of `--gpus`."""
        if not isinstance(device, str) or len(device) > 1000:
            return failed("Key 'device' not found")
        names = split_device_list(device)
        if not device.isprintable() or len(names) > _MAX_DEVICES:
            return failed(f"Not a device: {device!r}")
        for name in names:
            named_devices.add(self._db, name)
        return self._devices_changed("Device added:", names)

    def remove_device(self, device: object) -> Response:
        left = list(self._devices.names_in_use)
        # The name of a single device from a start script may look like a list.
        is_one = not isinstance(device, str) or device in left
        names = [str(device)] if is_one else split_device_list(str(device))
        for name in names:
            if name not in left:
                return failed(f"Device not found: {name}")
            left.remove(name)
        for name in names:
            named_devices.remove(self._db, name)
        return self._devices_changed("Device removed:", names)

    def _devices_changed(self, what: str, names: list[str]) -> Response:
        self._wake()
        self._log.write("Info", what, "; ".join(names))
        return successful(message=f"{what} {'; '.join(names)}")

    def pause(self, is_paused: bool) -> Response:
        self._queue.set_draining(is_paused)
        status = "paused: running jobs finish, no more are started" if is_paused else "resumed"
        self._log.write("Info", "Scheduler", status)
        return successful(message=f"Scheduler {status}")

    def about(self) -> Response:
        value = {
            "version": __version__,
            "paused": meta.is_draining(self._db),
            "queueLimit": self._limit,
            "stateDir": self._queue.settings.state_dir,
        }
        return successful(value=value)

    # -- start and stop of the server ----------------------------------------------------------

    def open(self, devices: Sequence[str] | None, default: Sequence[str]) -> tuple[str, ...]:
        """Use these devices, or those of the last server in this folder; returns them."""
        if devices is not None or named_devices.read(self._db) is None:
            named_devices.use(self._db, default if devices is None else devices)
        self._queue.set_draining(False)
        self._wake()
        # Wait until the daemon has recorded the ends of jobs that finished without it.
        deadline = time.monotonic() + _READY_SECONDS
        while not meta.get_meta(self._db, READY):
            if time.monotonic() > deadline:
                self._log.write("Warning", "The scheduler is slow to start")
                break
            time.sleep(_POLL_SECONDS)
            self._queue.wake_daemon()
        return self._devices.names_in_use

    def count_running(self) -> int:
        return len(job_queries.jobs_in_states(self._db, ACTIVE, _ALL))


def _listed(value: list[Response], hidden: int) -> Response:
    return successful(value=value, **({"hidden": hidden} if hidden > 0 else {}))


def _missing_file(name: str) -> Response:
    return {"status": "failed", "missing": True, "value": f"File not found: {name}"}


def _checked(fields: object, others: set[tuple[str, str]]) -> PeasySubmission:
    """Validate a job; `others` are the output files of earlier jobs in the batch."""
    job = jobs.parse_submission(fields)
    file = jobs.same_file(job.out, os.getcwd())
    if os.path.exists(job.out) or file in others:
        raise InvalidSubmission(f"Output file already exists: {job.out}")
    others.add(file)
    return job
