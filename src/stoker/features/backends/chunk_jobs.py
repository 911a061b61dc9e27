"""Jobs of a chunk: how a job of the queue is written for a worker, and read there."""

from __future__ import annotations

from stoker.engine.job_settings import settings_of
from stoker.engine.model import Context, JobSpec, ReadyJob, Request
from stoker.fields import from_fields, to_fields
from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
