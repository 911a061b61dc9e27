"""The operations of the server on its queue; every result is a dictionary for JSON."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from stoker import __version__
from stoker.client import views
from stoker.client.queue import Queue, current_context
from stoker.compat.gpupeasy import files, jobs
from stoker.compat.gpupeasy.daemon import MODULE, READY
from stoker.compat.gpupeasy.devices import split_device_list
from stoker.compat.gpupeasy.event_log import EventLog, label
from stoker.compat.gpupeasy.jobs import (
    InvalidSubmission,
    PeasySubmission,
    return_code,
    shown_out,
    status_of,
)
from stoker.compat.gpupeasy.responses import (
    Response,
    brief,
    command,
    failed,
    listed,
    missing,
    successful,
)
from stoker.core.formats.byte_text import to_bytes
from stoker.core.job_settings import JobSettings
from stoker.core.model import JobSpec, Request
from stoker.core.states import ACTIVE, FINAL, WAITING
from stoker.daemon.start import ensure_daemon
from stoker.errors import Error
from stoker.settings import Settings
from stoker.store import changes, edits, job_queries, meta, named_devices
from stoker.store.job_queries import JobRow
from stoker.store.output_columns import literal_path
from stoker.store.submit import Submission
from stoker.supervisor.logs import job_folder

_ALL = 10**9
_UNSUCCESSFUL = tuple(state for state in FINAL if state != "done")
_MAX_COPIES = 1000
_MAX_DEVICES = 1000
_READY_SECONDS = 10.0
_POLL_SECONDS = 0.01
# Concurrent submissions must keep the order of their IDs and must not exceed the limit.
_submitting = threading.Lock()


class PeasyQueue(Queue):
    """A queue that is served by PeasyDaemon."""

    def ensure_daemon(self) -> bool:
        return ensure_daemon(self.settings, MODULE)


class Service:
    """One per thread, because a database connection belongs to the thread that opened it."""

    def __init__(self, settings: Settings, log: EventLog, limit: int) -> None:
        self._queue = PeasyQueue(settings)
        self._db = self._queue.db
        self._log = log
        self._limit = limit  # maximum number of waiting jobs; 0: no limit

    def close(self) -> None:
        self._db.close()

    # -- lists ---------------------------------------------------------------------------------

    def devices(self) -> Response:
        return successful(
            value=list((named_devices.read(self._db) or named_devices.NamedDevices()).names_in_use)
        )

    def running(self) -> Response:
        rows = job_queries.jobs_in_states(self._db, ACTIVE, _ALL)
        rows.sort(key=lambda row: row.attempt or 0)
        return successful(value=[{**brief(row), "gpu": self._gpu(row)} for row in rows])

    def scheduled(self, limit: int = _ALL) -> Response:
        rows = job_queries.jobs_in_states(self._db, WAITING, _ALL)
        rows.sort(key=lambda row: (-row.priority, row.id))
        return listed([brief(row) for row in rows[:limit]], len(rows) - limit)

    def succeeded(self, limit: int = _ALL) -> Response:
        return self._finished(("done",), limit)

    def failed(self, limit: int = _ALL) -> Response:
        return self._finished(_UNSUCCESSFUL, limit)

    def _finished(self, states: tuple[str, ...], limit: int) -> Response:
        rows = job_queries.jobs_in_states(self._db, states, _ALL)
        rows.sort(key=lambda row: (row.ended_at or 0.0, row.id))
        newest = rows[-limit:] if limit else []
        found = [{**brief(row), "returnCode": return_code(row)} for row in newest]
        return listed(found, len(rows) - limit)

    def _gpu(self, row: JobRow) -> str:
        known = (named_devices.read(self._db) or named_devices.NamedDevices()).all_names
        return ",".join(known[number] for number in row.devices if number < len(known))

    # -- one job -------------------------------------------------------------------------------

    def info(self, id: str) -> Response:
        row = self._find(id)
        if row is None:
            return missing(id)
        value = {
            "jobid": row.id,
            "jobName": row.name,
            "jobCommand": command(row),
            "outFile": shown_out(row),
            "status": status_of(row),
            "returnCode": return_code(row),
        }
        return successful(message={}, value=value)

    def details(self, id: str) -> Response:
        """All details of a job; `info` has the keys of the original only."""
        row = self._find(id)
        if row is None:
            return missing(id)
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

    def log(self, id: str | None, out: str | None, last: str) -> Response:
        """The last lines of the output of a job; never of another file."""
        row = self._find(id) if id is not None else self._find_by_output(out or "")
        if row is None:
            name = out if id is None else id
            return {"status": "failed", "missing": True, "value": f"File not found: {name or ''}"}
        try:
            count = abs(int(last)) if len(last) < 10 else _ALL
        except ValueError:
            return {"status": "failed", "value": f"lastN is not a number: {last[:40]}"}
        try:
            return successful(value=files.last_lines(row.stdout or "", count))
        except FileNotFoundError:
            name = shown_out(row)
            return {"status": "failed", "missing": True, "value": f"File not found: {name}"}
        except OSError:
            return {"status": "failed", "value": f"Could not read file: {shown_out(row)}\n"}

    def _find_by_output(self, out: str) -> JobRow | None:
        rows = job_queries.jobs_in_states(
            self._db, (*ACTIVE, *FINAL, *WAITING), _ALL, newest_first=True
        )
        return files.find_by_output(out, rows)

    def _find(self, id: str) -> JobRow | None:
        if not (id.isascii() and id.isdigit() and len(id) < 18):
            return None
        try:
            return job_queries.job(self._db, int(id))
        except Error:
            return None

    # -- submitting ----------------------------------------------------------------------------

    def add(self, data: object) -> Response:
        if data is None:
            return failed("No JSON data was found")
        if not isinstance(data, dict) or "job" not in data:
            return failed("Key 'job' not found")
        try:
            with _submitting:
                ids = self._submit([self._checked(jobs.parse_submission(data["job"]), set())])
        except InvalidSubmission as refused:
            return failed(str(refused))
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
                    found.append(self._checked(jobs.parse_submission(job), taken))
                    errors.append(None)
                except InvalidSubmission as refused:
                    errors.append(str(refused))
            if any(errors) or not found:
                return {**failed("No jobs were submitted"), "errors": errors}
            if data.get("dryRun"):
                return successful(message="Nothing was submitted", jobIDs=[])
            try:
                ids = self._submit(found)
            except InvalidSubmission as refused:
                if refused.index is None:  # not about one of the jobs
                    return failed(str(refused))
                errors[refused.index] = str(refused)
                return {**failed("No jobs were submitted"), "errors": errors}
        return successful(message="Jobs added successfully", jobIDs=ids)

    def _checked(self, job: PeasySubmission, others: set[tuple[str, str]]) -> PeasySubmission:
        """Check the output file; `others` are the files of earlier jobs in the batch."""
        file = files.same_file(job.out, os.getcwd())
        if os.path.exists(job.out) or file in others:
            raise InvalidSubmission(f"Output file already exists: {job.out}")
        others.add(file)
        return job

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
                files.create(job.out, index)
                created.append(job.out)
            # Without duration estimates, the queue stays first come, first served.
            receipt = Submission(self._db, learns=False).add(specs, self._now())
        except BaseException as error:
            for path in created:
                os.unlink(path)
            if isinstance(error, Error):
                self._log.write("Error", "Adding new job failed.", error.message)
                raise InvalidSubmission(
                    f"Could not add new job: {submissions[0].name}. Check logs for details"
                ) from None
            raise
        self._wake()
        return receipt.ids

    def _check_limit(self, more: int, name: str | None) -> None:
        if not self._limit:
            return
        waiting = job_queries.counts_up_to(self._db, self._limit).get("queued", 0)
        if waiting + more > self._limit:
            self._log.write("Error", "Adding new job failed. Queue full.")
            raise InvalidSubmission(f"Could not add new job: {name}. Check logs for details")

    def _now(self) -> float:
        """The current time, but never before the newest job if the clock was set back."""
        newest = job_queries.jobs_in_states(
            self._db, (*WAITING, *ACTIVE, *FINAL), 1, newest_first=True
        )
        return max(time.time(), newest[0].submitted_at if newest else 0.0)

    def _wake(self) -> None:
        try:
            self._queue.ensure_daemon()
        except Error as error:  # the job is already in the queue
            self._log.write("Critical", error.message)

    # -- changing ------------------------------------------------------------------------------

    def cancel(self, id: str) -> Response:
        row = self._find(id)
        if row is None:
            return missing(id)
        if row.state in FINAL:
            return failed(f"Job (jobid :{row.id}) has already finished")
        self._queue.cancel([row.id])
        self._log.write("Info", "Cancelling", label(row.id, row.name))
        return successful(message="Job cancelled")

    def prioritize(self, id: str, priority: object) -> Response:
        row = self._find(id)
        if row is None:
            return missing(id)
        try:
            number = jobs.priority_of(priority)
        except InvalidSubmission as refused:
            return failed(str(refused))
        if not self._queue.set_priority([row.id], number):
            return failed(f"Job (jobid :{row.id}) is no longer waiting")
        return successful(message=f"Priority set to {number}")

    def rerun(self, id: str) -> Response:
        """Submit the job again, with a new output file next to the old one."""
        row = self._find(id)
        if row is None:
            return missing(id)
        if row.state not in FINAL:
            return failed(f"Job (jobid :{row.id}) has not finished yet")
        out = row.stdout or ""
        free = (f"{out}.{number}" for number in range(2, _MAX_COPIES))
        path = next((path for path in free if not os.path.lexists(path)), f"{out}.{_MAX_COPIES}")
        try:
            with _submitting:
                self._check_limit(1, row.name)
                files.create(path)
                try:
                    new = self._copy(row.id, path)
                except BaseException:
                    os.unlink(path)
                    raise
        except InvalidSubmission as refused:
            return failed(str(refused))
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
        self._wake()
        self._log.write("Info", "Device added:", "; ".join(names))
        return successful(message=f"Device added: {'; '.join(names)}")

    def remove_device(self, device: object) -> Response:
        if not isinstance(device, str):
            return failed(f"Device not found: {device}")
        left = list((named_devices.read(self._db) or named_devices.NamedDevices()).names_in_use)
        # The name of a single device from a start script may look like a list.
        names = [device] if device in left else split_device_list(device)
        for name in names:
            if name not in left:
                return failed(f"Device not found: {name}")
            left.remove(name)
        for name in names:
            named_devices.remove(self._db, name)
        self._wake()
        self._log.write("Info", "Device removed:", "; ".join(names))
        return successful(message=f"Device removed: {'; '.join(names)}")

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

    def open(self, devices: Sequence[str] | None, default: Sequence[str]) -> list[str]:
        """Use these devices, or those of the last server in this folder; returns them."""
        known = named_devices.read(self._db)
        if devices is not None or known is None:
            named_devices.use(self._db, default if devices is None else devices)
        self._queue.set_draining(False)
        self._wake()
        self._wait_for_daemon()
        return list((named_devices.read(self._db) or named_devices.NamedDevices()).names_in_use)

    def _wait_for_daemon(self) -> None:
        """Wait until the daemon has recorded the ends of jobs that finished without it."""
        deadline = time.monotonic() + _READY_SECONDS
        while not meta.get_meta(self._db, READY):
            if time.monotonic() > deadline:
                self._log.write("Warning", "The scheduler is slow to start")
                return
            time.sleep(_POLL_SECONDS)
            self._queue.wake_daemon()

    def count_running(self) -> int:
        return len(job_queries.jobs_in_states(self._db, ACTIVE, _ALL))
