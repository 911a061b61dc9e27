"""Jobs of a chunk: how a job of the queue is written for a worker, and read there."""

from __future__ import annotations

from stoker.core.fields import from_fields, to_fields
from stoker.core.model import Context, Dependency, JobSpec, ReadyJob, Request
from stoker.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    """The job for a worker. Retries are not passed on: the queue decides about them."""
    spec = JobSpec(
        argv=job.argv,
        context=_NO_CONTEXT,
        shell=job.shell,
        request=job.request._replace(backend="", options=()),
        name=job.name,
        priority=job.priority,
        time_limit=job.time_limit,
        grace=job.grace,
        stdout=job.stdout,
        stderr=job.stderr,
        keep_children=job.keep_children,
        on_oom="fail",
        variables=job.variables,
        warn=job.warn,
        sweep=job.sweep,
        warm=job.warm,
        no_bind=job.no_bind,
        array_index=job.array_index,
        activation=job.activation,
    )
    return ChunkJob(
        job=job.id,
        attempt=attempt,
        number=job.attempts + 1,
        spec=spec,
        context=job.context,
        batch=job.batch,
        batch_index=job.batch_index,
        saves_checkpoints=bool(job.restartable or job.retries or job.warn is not None),
        estimate=estimate,
        code=job.code if job.snapshot is None else None,
    )


def to_line(job: ChunkJob) -> dict[str, Any]:
    line: dict[str, Any] = to_fields(job)
    del line["spec"]["context"]
    return line


def from_line(line: dict[str, Any]) -> ChunkJob:
    """Return the job of a line. Raises ValueError if a field is missing."""
    stored = dict(line["spec"], context=_NO_CONTEXT)
    spec = from_fields(JobSpec, stored)
    request = from_fields(Request, {k: _tuples(v) for k, v in stored["request"].items()})
    spec = spec._replace(
        argv=tuple(spec.argv),
        request=request,
        after=tuple(from_fields(Dependency, one) for one in spec.after),
        tags=tuple(spec.tags),
        variables=tuple((key, value) for key, value in spec.variables),
    )
    return from_fields(ChunkJob, {**line, "spec": spec})


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
