"""The files of a chunk of jobs, through which driver and worker communicate.

A chunk has a folder that the driver's host and the node of the worker can both access:

file          written by  contents
------------  ----------  ---------------------------------------------------------------------
jobs.jsonl    driver      a header, a line for each job, and a line `{"end": true}`
contexts.json driver      folders and environments of the jobs (mode 600)
stops.jsonl   driver      jobs to cancel: {"job": 7, "grace": 10.0} (see `Cancellation`)
revoked       driver      exists when the driver treats the allocation as lost
owner         worker      the allocation that runs the chunk; a second one exits at once
events.jsonl  worker      what happened, in order (see `Events` below)

*Revocation.* An engine may report that a node is lost while its processes still run. Before the
driver returns jobs to the queue, it creates `revoked` and then reads `events.jsonl`. A worker
announces jobs in `events.jsonl` (synced) and then looks for `revoked` before it starts them. So
either the driver sees that a job may have started, or the worker sees that it must not start it.

*Cancellation.* The driver writes `stops.jsonl` and then looks for `owner`. A worker creates `owner`
and then reads `stops.jsonl`, before it starts a job. So a job of a chunk without an owner is
cancelled at once; of others, the worker reports the end.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stoker.engine.job_settings import settings_of
from stoker.engine.model import Context, JobSpec, ReadyJob, Request
from stoker.fields import from_fields, to_fields
from stoker.record import Record

VERSION = 1
JOBS = "jobs.jsonl"
CONTEXTS = "contexts.json"
STOPS = "stops.jsonl"
REVOKED = "revoked"
OWNER = "owner"
EVENTS = "events.jsonl"
# Cause of jobs that were ended together with their allocation: the engine knows why.
TERMINATED = "terminated"


class Header(Record):
    """The first line of jobs.jsonl."""

    version: int
    files: str  # the folder with logs and outputs of jobs
    grace: float
    log_limit: int
    is_single: bool  # one job, which has the whole allocation
    seconds: float | None = None  # time limit of the allocation, if the engine does not report it
    unknown_seconds: float | None = None  # start no further job after this long
    nodes: int = 1
    launches_everywhere: bool = False  # the command is started on each of several nodes
    is_script: bool = False  # a batch script, which starts tasks with `srun`


def batches_folder(files: str, backend: str) -> str:
    """The folder with the chunks of a backend: TOKEN/TASK for each."""
    return os.path.join(files, "batches", backend)


def write_chunk(
    folder: str,
    header: Header,
    contexts: Mapping[int, Context],
    jobs: Iterable[Mapping[str, Any]],
) -> None:
    """Write the files of a new chunk; a repeated call writes the same files again."""
    os.makedirs(folder, 0o700, exist_ok=True)
    write_contexts(folder, contexts)
    lines = [json.dumps(header._asdict()), *map(json.dumps, jobs), json.dumps({"end": True})]
    write_whole(os.path.join(folder, JOBS), "\n".join(lines) + "\n")


def write_contexts(folder: str, contexts: Mapping[int, Context]) -> None:
    made = {str(id): context._asdict() for id, context in contexts.items()}
    write_whole(os.path.join(folder, CONTEXTS), json.dumps(made))


def append_lines(path: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records to a file and sync it."""
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def revoke(folder: str) -> None:
    """Forbid the worker of a chunk to start further jobs. A folder that is gone says the same."""
    try:
        append_lines(os.path.join(folder, REVOKED), [{}])
    except FileNotFoundError:
        pass


def is_owned(folder: str) -> bool:
    """Whether a worker has taken the chunk. Also true if the folder is gone: it may have."""
    try:
        os.close(os.open(os.path.join(folder, OWNER), os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return not os.path.isdir(folder)
    return True


def remove_folder(folder: str) -> None:
    """Remove the folder of a chunk or of a batch.

    It is renamed first: a worker that looks for `revoked` finds the whole folder or nothing.
    """
    gone = f"{folder}.removed"
    try:
        os.rename(folder, gone)
    except FileNotFoundError:
        pass
    except OSError:  # a removal was interrupted before
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def is_revoked(folder: str) -> bool:
    """Whether the driver treats this allocation as lost. Also true if the folder was removed."""
    try:
        # Opening a file makes NFS ask the server; a stat may be answered from the cache.
        os.close(os.open(os.path.join(folder, REVOKED), os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return not os.path.isdir(folder)
    return True


def write_whole(path: str, text: str) -> None:
    """Write a file so that readers see all of it or nothing."""
    with open(f"{path}.new", "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class LineReader:
    """Reads complete lines of a growing file as JSON, from a position that the caller stores."""

    def __init__(self, path: str, position: int = 0) -> None:
        self._path = path
        self.position = position

    def read(self, most: int = 1 << 17) -> list[dict[str, Any]]:
        """Return the records that were added; a line that is still being written stays unread."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self.position)
                data = file.read(most)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self.position += end
        return list(_parsed(data[:end]))


def read_lines(path: str) -> Iterator[dict[str, Any]]:
    """All records of a file; none if it does not exist."""
    reader = LineReader(path)
    while found := reader.read():
        yield from found


def _parsed(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a line that was cut by a crash of its writer
        if isinstance(record, dict):
            yield record


def read_contexts(folder: str) -> dict[int, Context]:
    with open(os.path.join(folder, CONTEXTS), encoding="utf-8") as file:
        stored = json.load(file)
    return {
        int(id): Context(
            cwd=one["cwd"],
            env=tuple((key, value) for key, value in one["env"]),
            umask=one["umask"],
            shell=one["shell"],
        )
        for id, one in stored.items()
    }


class Events:
    """The event file of a worker. Kinds of events:

    kind      fields                             meaning
    --------  ---------------------------------  ------------------------------------------------
    owned     by, node, at                       an allocation took the chunk
    reserved  jobs                               these attempts may start from now on
    begun     job, attempt, at, node, gpus       the attempt is started now
    changed   job, attempt, at, files            its code is not as it was at submit
    ended     job, attempt, and see worker.py    it ended
    returned  jobs, why                          these attempts were not started: they were
                                                 cancelled, or the worker was `drained`
    closed    at, why                            the worker exits; nothing of it is left
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, EVENTS)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._is_dirty = False

    def write(self, kind: str, **fields: object) -> None:
        """Append an event; `sync` makes it visible on other hosts."""
        os.write(self._descriptor, (json.dumps({"kind": kind, **fields}) + "\n").encode())
        self._is_dirty = True

    def sync(self) -> None:
        if self._is_dirty:
            os.fdatasync(self._descriptor)
            self._is_dirty = False

    def close(self) -> None:
        os.close(self._descriptor)


# Jobs of a chunk: how a job of the queue is written for a worker, and read there.

# Options of jobs that the queue applies: when a job is ready, and what follows its end.
OF_THE_QUEUE = frozenset((
    "after", "array", "begin_at", "context", "dedupe", "fair_share_group", "held", "snapshot",
    "tags",
))  # fmt: skip
_NO_CONTEXT = Context(cwd="/", env=(), umask=0o077, shell="/bin/sh")


class ChunkJob(Record):
    """A job with the attempt that a worker makes of it."""

    job: int
    attempt: int
    number: int
    spec: JobSpec  # without its context
    context: int
    batch: int | None
    batch_index: int | None
    saves_checkpoints: bool  # its checkpoint folder is created before the start
    estimate: float | None  # seconds
    code: int | None = None  # the state of its code at submit; None: not recorded, or a snapshot


def chunk_job(job: ReadyJob, attempt: int, estimate: float | None) -> ChunkJob:
    """The job for a worker, with all its options except those that the queue applies."""
    spec = JobSpec(argv=job.argv, context=_NO_CONTEXT)._replace(
        **{name: getattr(job, name) for name in JobSpec._fields if name not in OF_THE_QUEUE}
    )
    own = job.settings
    spec = spec._replace(
        request=job.request._replace(backend="", options=()),
        settings=own._replace(on_oom="fail", retries=0, restartable=False, notify=None),
    )
    return ChunkJob(
        job=job.id,
        attempt=attempt,
        number=job.attempts + 1,
        spec=spec,
        context=job.context,
        batch=job.batch,
        batch_index=job.batch_index,
        saves_checkpoints=bool(own.restartable or own.retries or own.signal is not None),
        estimate=estimate,
        code=job.code if job.snapshot is None else None,
    )


def to_line(job: ChunkJob) -> dict[str, Any]:
    line: dict[str, Any] = to_fields(job)
    del line["spec"]["context"]
    line["spec"]["settings"] = job.spec.settings.changes()
    return line


def from_line(line: dict[str, Any]) -> ChunkJob:
    """Return the job of a line. Raises ValueError if a field is missing."""
    stored = {name: _tuples(value) for name, value in line["spec"].items()}
    request = {name: _tuples(value) for name, value in line["spec"]["request"].items()}
    stored |= {
        "context": _NO_CONTEXT,
        "request": from_fields(Request, request),
        "settings": settings_of(line["spec"]["settings"]),
    }
    spec = from_fields(JobSpec, stored)
    return from_fields(ChunkJob, {**line, "spec": spec})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
