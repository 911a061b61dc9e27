"""The worker: runs the jobs of one chunk in an allocation, with the loop of `stoker run`.

Its database is in a temporary folder of the node, because SQLite does not work on network file
systems. What the queue needs is in the chunk's event file (chunk_files.py).

    python -m stoker.features.backends.worker FOLDER --as ID

`ID` is the allocation; `.N` is added when the engine has restarted it N times.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
import time

from stoker.boot import boot_id
from stoker.engine.daemon.foreground import Foreground
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.interfaces import EventListener, Host
from stoker.engine.model import UNCOUNTED, Outcome
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import attempts
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.meta import tag_base
from stoker.engine.supervisor.logs import job_folder, log_path
from stoker.engine.supervisor.messages import RunnerEvent
from stoker.errors import Unavailable
from stoker.features.backends.chunk_files import (
    EVENTS,
    OWNER,
    STOPS,
    TERMINATED,
    Events,
    LineReader,
    is_revoked,
)
from stoker.features.backends.chunk_source import ChunkSource
from stoker.features.backends.multi_node_stops import MultiNodeStops
from stoker.features.backends.protocol import END_SIGNAL_SECONDS
from stoker.features.backends.worker_gpus import worker_gpus
from stoker.settings import Settings

_POLL_SECONDS = 1.0  # between two looks at stops.jsonl
_SYNC_SECONDS = 0.5  # an event is visible to the driver after this long
_STOP_MARGIN = 10.0  # seconds before the end of the allocation at which jobs are stopped
_MAX_RESERVED = 256
_PREFIX = "stoker-worker-"  # of temporary folders
_NONE = (None, None, None)
# An engine that ends an allocation sends SIGTERM to all its processes. A job may end by it a moment
# before this process gets its own.
_HOLD_SECONDS = 1.0
_SIGTERM_SECONDS = 0.2
_BY_SIGTERM = (signal.SIGTERM, (128 + signal.SIGTERM) << 8)  # wait statuses: killed, exit code 143


class Revoked(Exception):
    """The driver treats this allocation as lost."""


class Worker(EventListener):
    def __init__(self, folder: str, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._node = _node_name()
        self._started_at = time.monotonic()
        self._events = Events(folder)
        self.source = ChunkSource(folder)
        self._stops = LineReader(os.path.join(folder, STOPS))
        self._attempts: dict[int, int] = {}  # by job
        self._reserved: set[int] = set()
        self._window = 1
        self._reserve_at = 0.0  # when jobs were reserved last
        self._look_at = 0.0
        self._sync_at: float | None = None
        self._is_terminated = False
        # When the allocation ends (monotonic), if Slurm or a signal announced it.
        self._end_at: float | None = None
        end = os.environ.get("SLURM_JOB_END_TIME", "")
        if end.isdigit():
            self._end_at = self._started_at + float(end) - time.time()
        self._held: list[tuple[float, dict[str, object]]] = []  # ends that are not written yet
        self._stopped_at_end: set[int] = set()
        self._multi_node: MultiNodeStops | None = None
        if self.source.header.launches_everywhere:
            self._multi_node = MultiNodeStops(
                lambda job, reason: self.foreground.stop(job, 0.0, reason),
                self.source.header.grace,
            )
        self.foreground: Foreground
        self.db: Database
        self.gpus: Gpus

    # -- ownership -------------------------------------------------------------------------------

    def take_chunk(self) -> bool:
        """Become the owner of the chunk; False if another allocation owns it."""
        path = os.path.join(self._folder, OWNER)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            with open(path, encoding="utf-8") as file:
                earlier = file.read()
            if earlier.partition(".")[0] != self._identity.partition(".")[0]:
                return False
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(self._identity)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.new", path)
            self._skip_earlier()  # now: an earlier process announces no job after this
        else:
            os.write(descriptor, self._identity.encode())
            os.close(descriptor)
        self._events.write("owned", by=self._identity, node=self._node, at=time.time())
        self._events.sync()
        return True

    def _skip_earlier(self) -> None:
        """After a restart by the engine: run only jobs that were never announced.

        An earlier process of this allocation may still be running on a node that was lost.
        """
        reserved: dict[int, int] = {}
        begun: dict[int, int] = {}
        ended = set()
        for event in LineReader(os.path.join(self._folder, EVENTS)).read(1 << 30):
            if event["kind"] == "reserved":
                reserved.update((job, attempt) for job, attempt in event["jobs"])
            elif event["kind"] == "begun":
                begun[event["job"]] = event["attempt"]
            elif event["kind"] == "closed":
                reserved.clear()  # nothing of it is left, so these were not started
            elif event["kind"] == "ended" and event.get("cause") != TERMINATED:
                ended.add(event["job"])
        announced = {**reserved, **begun}
        self.source.skip(announced)
        for job in announced.keys() - ended:
            self._events.write(
                "ended", job=job, attempt=announced[job], status=None, at=time.time(), cause="lost"
            )

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        header = self.source.header
        signal.signal(signal.SIGUSR2, self._on_end_signal)
        self._apply_early_stops()
        _remove_leftovers()
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            self.db = open_database(folder, durable=False, create=True, is_owner=True)
            settings = Settings(
                state_dir=folder,
                grace=header.grace,
                log_limit=header.log_limit,
                bind=False,  # the engine chooses the CPUs of an allocation
            )
            self.gpus = worker_gpus(settings, tag_base(self.db), self.source.max_gpus)
            self.source.prepare(self.gpus.devices, self._refuse)
            self.foreground = Foreground(
                self.db,
                self.source,
                self._host(),
                self.gpus,
                settings,
                self,
                lambda job, number: log_path(header.files, job, number),
                lambda job: job_folder(header.files, job),
                on_signal=self._on_signal,
                on_events=self._received,
                chunk=self._folder,
            )
            self.foreground.work(self._before_wait)
            self._write_held_at_end()
            if not self._is_terminated:  # else the driver decides, by what the engine says
                self._return_waiting()
        finally:
            self._events.sync()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        self._events.write("closed", at=time.time(), why="")
        self._events.sync()

    def _host(self) -> Host:
        """The host of the loop. An allocation for declared cores or memory has those of one job."""
        size = self.source.host_size
        return Host(
            _cpu_slots(self.source.header.is_single or size != UNCOUNTED),
            boot_id(),
            resources=size,
        )

    def _before_wait(self) -> float:
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _POLL_SECONDS
            self._look(now)
        self._write_held(now)
        if self._sync_at is not None and now >= self._sync_at:
            self._events.sync()
            self._sync_at = None
        due = [self._look_at, *([] if self._sync_at is None else [self._sync_at])]
        return min(due + [at for at, _ in self._held[:1]])

    def _look(self, now: float) -> None:
        """Read what the driver wrote, and follow the time limit of the allocation."""
        if is_revoked(self._folder):
            raise Revoked
        self.source.refresh()
        for stop in self._stops.read():
            job, grace = int(stop["job"]), stop.get("grace")
            if not self._stop(job, grace, "user") and self._withdraw(job):
                self._return([job], "cancelled")
        if self._multi_node is not None:
            self._multi_node.check(now)
        header = self.source.header
        ran = now - self._started_at
        if header.unknown_seconds is not None and ran > header.unknown_seconds:
            self._drain()
        left = self._seconds_left()
        if left is None:
            return
        if left < self.source.longest + _STOP_MARGIN and not header.is_single:
            self._drain()
        if left < _STOP_MARGIN + header.grace:
            self._stop_all("time_limit" if header.is_single else "requeue")

    def _seconds_left(self) -> float | None:
        """Seconds until the engine ends the allocation; None if that is not known."""
        if self._end_at is not None:
            return self._end_at - time.monotonic()
        limit = self.source.header.seconds
        return None if limit is None else self._started_at + limit - time.monotonic()

    def _apply_early_stops(self) -> None:
        """Drop jobs that were cancelled before this worker started."""
        for stop in self._stops.read():
            if self.source.withdraw(int(stop["job"])):
                self._return([int(stop["job"])], "cancelled")

    def _withdraw(self, job: int) -> bool:
        if self.source.withdraw(job):
            return True
        if not self.foreground.withdraw(job):
            return False
        self.source.finished(job)
        return True

    def _return(self, jobs: list[int], why: str) -> None:
        self._events.write("returned", jobs=jobs, why=why)
        self._wrote()

    def _drain(self) -> None:
        self.foreground.drain()

    def _stop_all(self, reason: str) -> None:
        self._drain()
        for job in self.foreground.running_jobs():
            if job not in self._stopped_at_end:
                self._stopped_at_end.add(job)
                self._stop(job, None, reason)

    def _stop(self, job: int, grace: float | None, reason: str) -> bool:
        """Stop a job; False if it is not running."""
        if self._multi_node is None:
            return self.foreground.stop(job, grace, reason)
        if job not in self.foreground.running_jobs():
            return False
        self._multi_node.stop(job, grace, reason, time.monotonic())
        return True

    def _on_signal(self, number: int) -> bool:
        """SIGUSR1: read the files of the driver now. SIGTERM: the engine ends the allocation."""
        if number == signal.SIGUSR1:
            self._look_at = 0.0
            return True
        if number == signal.SIGTERM:
            self._is_terminated = True
            for _, fields in self._held:
                fields["cause"] = TERMINATED
            self._stop_all(TERMINATED)
            return True
        return False

    def _on_end_signal(self, number: int, frame: object) -> None:
        """SIGUSR2: the time limit of the allocation is near."""
        left = self._seconds_left()
        # Slurm may send it a minute early. A longer time limit than that is not the real one.
        if left is None or left > END_SIGNAL_SECONDS + 60:
            self._end_at = time.monotonic() + END_SIGNAL_SECONDS
        self._look_at = 0.0

    def _return_waiting(self) -> None:
        left = [job for job in self.source.unfinished() if job not in self._attempts]
        if left:
            self._return(left, "drained")

    def _refuse(self, job: int, attempt: int, why: str) -> None:
        self._events.write(
            "ended",
            job=job,
            attempt=attempt,
            status=None,
            at=time.time(),
            cause="start_failed",
            detail=why,
        )

    # -- events of the loop ----------------------------------------------------------------------

    def starting(self, job: int, devices: tuple[int, ...]) -> None:
        if job not in self._reserved:
            self._reserve(job)
        self._reserved.discard(job)
        if self._multi_node is not None:
            self._multi_node.started(job, self.source.time_limit_of(job), time.monotonic())
        names = {device.number: device.visible for device in self.gpus.devices}
        attempt = self._attempts[job] = self.source.attempt_of(job)
        self._events.write(
            "begun",
            job=job,
            attempt=attempt,
            at=time.time(),
            node=self._node,
            gpus=",".join(names[number] for number in devices),
        )
        self._wrote()

    def code_changed(self, job: int, files: str) -> None:
        self._events.write(
            "changed", job=job, attempt=self._attempts[job], at=time.time(), files=files
        )
        self._wrote()

    def _reserve(self, job: int) -> None:
        """Announce this job and, if jobs are short, the next ones; one sync for all of them."""
        now = time.monotonic()
        is_fast = now - self._reserve_at < _SYNC_SECONDS
        self._window = min(2 * self._window, _MAX_RESERVED) if is_fast else 1
        self._reserve_at = now
        jobs = [job, *self.source.next_jobs(job, self._window - 1)]
        self._reserved.update(jobs)
        pairs = [(one, self.source.attempt_of(one)) for one in jobs]
        self._events.write("reserved", jobs=pairs)
        self._events.sync()
        if is_revoked(self._folder) or not self._is_owner():
            raise Revoked

    def _is_owner(self) -> bool:
        """False if the engine has restarted the allocation while this process is still alive."""
        try:
            with open(os.path.join(self._folder, OWNER), encoding="utf-8") as file:
                return file.read() == self._identity
        except FileNotFoundError:
            return False

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None:
        self.foreground.finished_one()
        self.source.finished(job)
        if self._multi_node is not None:
            outcome = outcome._replace(reason=self._multi_node.cause_of(job) or outcome.reason)
        memory, use, energy = attempts.gpu_use(self.db, job) if self.gpus.is_monitored else _NONE
        fields: dict[str, object] = {
            "job": job,
            "attempt": self._attempts[job],
            "status": outcome.status,
            "at": outcome.ended_at,
            "cause": outcome.reason,
            "detail": outcome.detail,
            "last_error": outcome.last_error,
            "exception": outcome.exception,
            "leftovers": outcome.leftovers,
            "user_seconds": outcome.user_seconds,
            "system_seconds": outcome.system_seconds,
            "max_rss_bytes": outcome.max_rss_bytes,
            "gpu_memory": memory,
            "gpu_use": use,
            "gpu_energy": energy,
        }
        if outcome.reason is None and outcome.status:
            if self._is_terminated:
                fields["cause"] = TERMINATED
            self._held.append((time.monotonic() + _HOLD_SECONDS, fields))
            return
        self._events.write("ended", **fields)
        self._wrote()

    def _received(self, events: list[RunnerEvent]) -> None:
        """Before the loop starts the next job: if SIGTERM ended one, it may be the engine's."""
        ends = (event for event in events if isinstance(event, Outcome) and event.reason is None)
        if any(end.status in _BY_SIGTERM for end in ends) and self._is_ending():
            self._on_signal(signal.SIGTERM)

    def _is_ending(self) -> bool:
        """Ask Slurm whether it ends the allocation; without an answer, give its signal a moment."""
        if "SLURM_JOB_ID" in os.environ:
            from stoker.features.backends.slurm.commands import is_ending

            answer = is_ending(os.environ["SLURM_JOB_ID"])
            if answer is not None:
                return answer
        self.foreground.pause_starts(_SIGTERM_SECONDS)
        return False

    def _write_held(self, now: float) -> None:
        while self._held and (self._is_terminated or now >= self._held[0][0]):
            self._events.write("ended", **self._held.pop(0)[1])
            self._wrote()

    def _write_held_at_end(self) -> None:
        """All jobs have ended: wait for a signal that may have ended the last of them."""
        while self._held:
            self.foreground.handle_signals()
            self._write_held(time.monotonic())
            if self._held:
                time.sleep(max(0.0, self._held[0][0] - time.monotonic()))

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _wrote(self) -> None:
        if self._sync_at is None:
            self._sync_at = time.monotonic() + _SYNC_SECONDS


def _remove_leftovers() -> None:
    """Remove the temporary folders of workers on this node that were killed."""
    base = tempfile.gettempdir()
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if not name.startswith(_PREFIX):
            continue
        try:
            if os.lstat(path).st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its worker holds the lock
            # A worker that is just starting has an empty folder and not yet the lock.
            if os.listdir(path):
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(lock)


def _node_name() -> str:
    """The name of this node in its engine."""
    for key in ("SLURMD_NODENAME", "STOKER_WORKER_NODE"):
        if os.environ.get(key):
            return os.environ[key]
    return socket.gethostname()


def _cpu_slots(is_single: bool) -> int:
    """How many jobs without a GPU run at once: the CPUs of the allocation."""
    if is_single:
        return 1
    given = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("STOKER_WORKER_SLOTS", "")
    return int(given) if given.isdigit() and int(given) else len(os.sched_getaffinity(0))


def _end_with_parent() -> None:
    """End when the process ends that the engine would end: jobs must not outlive it."""
    parent = os.environ.get("STOKER_WORKER_PARENT", "")
    if parent.isdigit():
        from stoker.engine.supervisor.parent_death import die_with_parent

        die_with_parent(int(parent))


def main(arguments: list[str]) -> int:
    _end_with_parent()
    folder, option, identity = arguments
    assert option == "--as"
    try:
        worker = Worker(folder, identity)
    except (Unavailable, FileNotFoundError):
        print(f"there are no jobs in {folder}; they may have been cancelled", file=sys.stderr)
        return 1
    if not worker.take_chunk():
        print(f"another allocation runs the jobs in {folder}; nothing to do", file=sys.stderr)
        return 0
    try:
        worker.run()
    except Revoked:
        print("the allocation was revoked; its jobs were stopped", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
