"""What the server does for its clients: every answer is a dictionary that becomes JSON."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Sequence
from typing import Any

from stoker import __version__, board
from stoker.api import Queue, current_context
from stoker.compat.gpupeasy import jobs
from stoker.compat.gpupeasy.daemon import MODULE
from stoker.compat.gpupeasy.jobs import Refused, Wanted, return_code, shown_out, status_of
from stoker.compat.gpupeasy.logbook import Logbook, label
from stoker.core.model import JobSpec, Request
from stoker.core.states import ACTIVE, FINAL, WAITING
from stoker.daemon.start import ensure_daemon
from stoker.errors import Error
from stoker.settings import Settings
from stoker.store import find, slots
from stoker.store.find import JobRow
from stoker.store.submissions import Submission
from stoker.supervisor.logs import job_folder

Answer = dict[str, Any]

_ALL = 10**9
_ENDED_BADLY = tuple(state for state in FINAL if state != "done")
_MAX_LOG_BYTES = 4 << 20
_BLOCK = 1 << 16
_COPIES = 1000
# Two submits at once must not leave in another order than their ids say, nor pass the limit.
_submitting = threading.Lock()


class PeasyQueue(Queue):
    """A queue whose daemon is the daemon."""

    def wake(self) -> bool:
        return ensure_daemon(self.settings, MODULE)


class Desk:
    """One for each thread: a database connection belongs to the thread that made it."""

    def __init__(self, settings: Settings, book: Logbook, limit: int) -> None:
        self._queue = PeasyQueue(settings)
        self._db = self._queue.db
        self._book = book
        self._limit = limit  # jobs that may wait; 0: any number

    def close(self) -> None:
        self._db.close()

    # -- lists ---------------------------------------------------------------------------------

    def devices(self) -> Answer:
        return _successful(value=list((slots.read(self._db) or slots.Slots()).used))

    def running(self) -> Answer:
        rows = find.page(self._db, ACTIVE, _ALL)
        rows.sort(key=lambda row: row.attempt or 0)
        return _successful(value=[{**_brief(row), "gpu": self._gpu(row)} for row in rows])

    def scheduled(self, limit: int = _ALL) -> Answer:
        rows = find.page(self._db, WAITING, _ALL)
        rows.sort(key=lambda row: (-row.priority, row.id))
        return _listed([_brief(row) for row in rows[:limit]], len(rows) - limit)

    def succeeded(self, limit: int = _ALL) -> Answer:
        return self._ended(("done",), limit)

    def failed(self, limit: int = _ALL) -> Answer:
        return self._ended(_ENDED_BADLY, limit)

    def _ended(self, states: tuple[str, ...], limit: int) -> Answer:
        rows = find.page(self._db, states, _ALL)
        rows.sort(key=lambda row: (row.ended_at or 0.0, row.id))
        newest = rows[-limit:] if limit else []
        found = [{**_brief(row), "returnCode": return_code(row)} for row in newest]
        return _listed(found, len(rows) - limit)

    def _gpu(self, row: JobRow) -> str:
        known = (slots.read(self._db) or slots.Slots()).known
        return ",".join(known[number] for number in row.devices if number < len(known))

    # -- one job -------------------------------------------------------------------------------

    def info(self, id: str) -> Answer:
        row = self._find(id)
        if row is None:
            return _missing(id)
        value = {
            "jobid": row.id, "jobName": row.name, "jobCommand": _command(row),
            "outFile": shown_out(row), "status": status_of(row), "returnCode": return_code(row),
        }  # fmt: skip
        return _successful(message={}, value=value)

    def details(self, id: str) -> Answer:
        """Everything about a job; `/jobinfo` stays as clients know it."""
        row = self._find(id)
        if row is None:
            return _missing(id)
        value = {
            **self.info(id)["value"],
            "argv": list(row.argv),
            "gpu": self._gpu(row) if row.devices else None,
            "pid": row.pid if row.state in ACTIVE else None,
            "priority": row.priority,
            "attempts": row.attempts,
            "checkpoint": row.restartable,
            "checkpointDir": f"{job_folder(self._queue.settings.state_dir, row.id)}/checkpoints",
            "stopRequested": row.stop_requested,
            "result": board.result_words(row),
            "submittedAt": board.iso(row.submitted_at),
            "startedAt": board.iso(row.started_at),
            "endedAt": board.iso(row.ended_at),
            "rerunOf": row.rerun_of,
        }
        return _successful(message={}, value=value)

    def log(self, id: str | None, out: str | None, last: str) -> Answer:
        """The last lines of a job's output, of nothing else."""
        row = self._find(id) if id is not None else self._written_to(out or "")
        if row is None:
            name = out if id is None else id
            return {"status": "failed", "missing": True, "value": f"File not found: {name or ''}"}
        try:
            count = abs(int(last)) if len(last) < 10 else _ALL
        except ValueError:
            return {"status": "failed", "value": f"lastN is not a number: {last[:40]}"}
        try:
            return _successful(value=_last_lines(row.stdout or "", count))
        except FileNotFoundError:
            name = shown_out(row)
            return {"status": "failed", "missing": True, "value": f"File not found: {name}"}
        except OSError:
            return {"status": "failed", "value": f"Could not read file: {shown_out(row)}\n"}

    def _written_to(self, out: str) -> JobRow | None:
        rows = find.page(self._db, (*ACTIVE, *FINAL, *WAITING), _ALL, newest_first=True)
        return next((row for row in rows if out and out in (row.stdout, shown_out(row))), None)

    def _find(self, id: str) -> JobRow | None:
        if not (id.isascii() and id.isdigit() and len(id) < 18):
            return None
        try:
            return find.job(self._db, int(id))
        except Error:
            return None

    # -- submitting ----------------------------------------------------------------------------

    def add(self, data: object) -> Answer:
        if data is None:
            return _failed("No JSON data was found")
        if not isinstance(data, dict) or "job" not in data:
            return _failed("Key 'job' not found")
        try:
            with _submitting:
                ids = self._submit([self._checked(jobs.wanted(data["job"]), ())])
        except Refused as refused:
            return _failed(str(refused))
        return _successful(message="Job added successfully", jobID=ids[0])

    def add_all(self, data: object) -> Answer:
        """All of a batch or nothing: {"jobs": [...]}; `errors` says what was wrong with which."""
        if not isinstance(data, dict) or not isinstance(data.get("jobs"), list):
            return _failed("Key 'jobs' not found")
        found: list[Wanted] = []
        errors: list[str | None] = []
        with _submitting:
            for job in data["jobs"]:
                try:
                    files = [other.out for other in found]
                    found.append(self._checked(jobs.wanted(job), files))
                    errors.append(None)
                except Refused as refused:
                    errors.append(str(refused))
            if any(errors) or not found:
                return {**_failed("No jobs were submitted"), "errors": errors}
            if data.get("dryRun"):
                return _successful(message="Nothing was submitted", jobIDs=[])
            try:
                ids = self._submit(found)
            except Refused as refused:
                return {**_failed(str(refused)), "errors": [str(refused)]}
        return _successful(message="Jobs added successfully", jobIDs=ids)

    def _checked(self, job: Wanted, others: Sequence[str]) -> Wanted:
        if os.path.exists(job.out) or job.out in others:
            raise Refused(f"Output file already exists: {job.out}")
        return job

    def _submit(self, wanted: list[Wanted]) -> list[int]:
        if self._limit:
            waiting = find.counts_up_to(self._db, self._limit).get("queued", 0)
            if waiting + len(wanted) > self._limit:
                self._book.write("Error", "Adding new job failed. Queue full.")
                raise Refused(f"Could not add new job: {wanted[0].name}. Check logs for details")
        context = current_context(self._queue.settings)
        specs = [
            JobSpec(
                job.argv, context, False, Request(gpus=1), job.name, job.priority,
                retries=job.retries, restartable=job.restartable,
                stdout=os.path.join(context.cwd, ".", job.out),
            )
            for job in wanted
        ]  # fmt: skip
        made: list[str] = []
        try:
            for job in wanted:
                _create(job.out)
                made.append(job.out)
            # Unlearned lengths keep the queue in order: first come, first served.
            receipt = Submission(self._db, learns=False).add(specs, self._now())
        except BaseException as error:
            for path in made:
                os.unlink(path)
            if isinstance(error, Error):
                self._book.write("Error", "Adding new job failed.", error.message)
                raise Refused(
                    f"Could not add new job: {wanted[0].name}. Check logs for details"
                ) from None
            raise
        self._wake()
        return receipt.ids

    def _now(self) -> float:
        """Never earlier than the newest job, even if the clock was set back."""
        newest = find.page(self._db, (*WAITING, *ACTIVE, *FINAL), 1, newest_first=True)
        return max(time.time(), newest[0].submitted_at if newest else 0.0)

    def _wake(self) -> None:
        try:
            self._queue.wake()
        except Error as error:  # what was accepted is in the queue
            self._book.write("Critical", error.message)

    # -- changing ------------------------------------------------------------------------------

    def cancel(self, id: str) -> Answer:
        row = self._find(id)
        if row is None:
            return _missing(id)
        if row.state in FINAL:
            return _failed(f"Job (jobid :{row.id}) has already ended")
        self._queue.cancel([row.id])
        self._book.write("Info", "Cancelling", label(row.id, row.name))
        return _successful(message="Job cancelled")

    def prioritize(self, id: str, priority: object) -> Answer:
        row = self._find(id)
        if row is None:
            return _missing(id)
        try:
            number = jobs.priority_of(priority)
        except Refused as refused:
            return _failed(str(refused))
        if not self._queue.set_priority([row.id], number):
            return _failed(f"Job (jobid :{row.id}) is not waiting any more")
        return _successful(message=f"Priority set to {number}")

    def rerun(self, id: str) -> Answer:
        """The same job again, with an output file of its own beside the old one."""
        row = self._find(id)
        if row is None:
            return _missing(id)
        if row.state not in FINAL:
            return _failed(f"Job (jobid :{row.id}) has not ended yet")
        out = shown_out(row)
        free = (f"{out}.{number}" for number in range(2, _COPIES))
        path = next((path for path in free if not os.path.exists(path)), f"{out}.{_COPIES}")
        job = {
            "jobName": row.name, "outFile": path, "jobCommand": list(row.argv),
            "priority": row.priority, "checkpoint": row.restartable, "retries": row.retries,
        }  # fmt: skip
        return self.add({"job": job})

    def add_device(self, device: object) -> Answer:
        if not isinstance(device, str) or "\0" in device or len(device) > 1000:
            return _failed("Key 'device' not found")
        slots.add(self._db, device)
        self._wake()
        self._book.write("Info", "Device added:", device)
        return _successful(message=f"Device added: {device}")

    def remove_device(self, device: object) -> Answer:
        if not isinstance(device, str) or not slots.remove(self._db, device):
            return _failed(f"Device not found: {device}")
        self._wake()
        self._book.write("Info", "Device removed:", device)
        return _successful(message=f"Device removed: {device}")

    def pause(self, is_paused: bool) -> Answer:
        self._queue.drain(is_paused)
        what = "paused: running jobs finish, no more are started" if is_paused else "resumed"
        self._book.write("Info", "Scheduler", what)
        return _successful(message=f"Scheduler {what}")

    def about(self) -> Answer:
        value = {
            "version": __version__,
            "paused": bool(find.meta(self._db, "draining")),
            "queueLimit": self._limit,
            "stateDir": self._queue.settings.state_dir,
        }
        return _successful(value=value)

    # -- the server's own start and end --------------------------------------------------------

    def open(self, devices: Sequence[str] | None, default: Sequence[str]) -> list[str]:
        """Use these devices, or those of the last server here; returns them."""
        known = slots.read(self._db)
        if devices is not None or known is None:
            slots.use(self._db, default if devices is None else devices)
        self._queue.drain(False)
        self._wake()
        return list((slots.read(self._db) or slots.Slots()).used)

    def count_running(self) -> int:
        return len(find.page(self._db, ACTIVE, _ALL))


def _successful(**fields: object) -> Answer:
    return {"status": "successful", **fields}


def _failed(message: str) -> Answer:
    return {"status": "failed", "message": message}


def _missing(id: str) -> Answer:
    return {"status": "failed", "value": {}, "message": f"Job (jobid :{id[:40]}) not found"}


def _listed(value: list[Answer], hidden: int) -> Answer:
    return _successful(value=value, **({"hidden": hidden} if hidden > 0 else {}))


def _brief(row: JobRow) -> Answer:
    return {"jobID": row.id, "jobName": row.name, "jobCommand": _command(row)}


def _command(row: JobRow) -> str:
    return " ".join(row.argv)


def _create(path: str) -> None:
    """A new file, never one that is there, nor through a link that somebody left."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o666))
    except (OSError, ValueError):
        raise Refused(f"Could not open output file: {path}") from None


def _last_lines(path: str, count: int) -> str:
    """The last lines of a file, found from its end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError
        start, data = info.st_size, b""
        # The last line may or may not be ended: one more line end than lines finds the beginning.
        while start > 0 and data[:-1].count(b"\n") < count and len(data) < _MAX_LOG_BYTES:
            size = min(_BLOCK, start)
            start -= size
            file.seek(start)
            data = file.read(size) + data
    parts = data.split(b"\n")  # not splitlines: a progress bar is one line
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    return b"".join(lines[-count:] if count else []).decode("utf-8", "replace")
