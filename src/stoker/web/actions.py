"""Changes of jobs, GPUs and the daemon, with the same checks as on the command line."""

from __future__ import annotations

from stoker.client.queue import Queue
from stoker.client.submit import option_values as kinds
from stoker.client.submit.job_options import as_keyword
from stoker.client.submit.parsed_options import check_words
from stoker.client.submit.request_edits import changed_request
from stoker.engine.daemon.status import daemon_pid
from stoker.engine.store import history, job_queries, meta
from stoker.errors import Conflict, Error, NotFound, UsageError, name_option
from stoker.states import FINAL
from stoker.text.byte_text import maybe_bytes, pack_words
from stoker.text.durations import parse_duration
from stoker.web.models import DaemonAct, GpuAct, JobPatch, JobsAct

_MAX_PRIORITY = 10**9


def act_on_jobs(queue: Queue, form: JobsAct, token: str | None = None) -> dict[str, object]:
    """Change jobs; with a token, a repeated call reruns nothing twice."""
    ids = sorted(set(form.ids))
    if len(ids) == 1:
        job_queries.job(queue.db, ids[0])  # raises NotFound for an unknown job
    result = _act(queue, form, ids, token)
    if not result["changed"] and len(ids) == 1:
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(f"action `{form.action}` does not apply to job {ids[0]} (state: {state})")
    return result


def _act(queue: Queue, form: JobsAct, ids: list[int], token: str | None) -> dict[str, object]:
    if form.action == "cancel":
        cancelled, stopping = queue.cancel(ids, form.grace)
        return {"changed": cancelled + stopping, "cancelled": cancelled, "stopping": stopping}
    if form.action == "hold":
        return {"changed": queue.hold(ids)}
    if form.action == "release":
        return {"changed": queue.release(ids)}
    if form.action == "rm":
        removed = queue.remove(ids)
        return {"changed": len(removed), "removed": removed}
    if form.action == "rerun":
        for job in ids:
            state = job_queries.job(queue.db, job).state
            if state not in FINAL:
                raise Conflict(f"job {job} has not finished (state: {state}) and cannot be rerun")
        new = queue.rerun(ids, token=token)
        return {"changed": len(new), "jobs": new}
    if form.action == "priority":
        if form.priority is None:
            raise UsageError(
                "action `priority` needs a priority", '{"action": "priority", "priority": 10, ...}'
            )
        return {"changed": queue.set_priority(ids, form.priority)}
    return _move_first(queue, ids)


def _move_first(queue: Queue, ids: list[int]) -> dict[str, object]:
    """Move jobs to the front of the queue; they keep their order among themselves."""
    top = history.top_priority(queue.db, set(ids))
    priority = max(0, 0 if top is None else top + 1)
    if priority > _MAX_PRIORITY:
        raise Conflict(
            "another job already has the highest priority", "lower the priority of that job"
        )
    return {"changed": queue.set_priority(ids, priority), "priority": priority}


def edit(queue: Queue, job: int, form: JobPatch) -> dict[str, object]:
    """Change a job that has not started; raises Conflict for other jobs."""
    row = job_queries.job(queue.db, job)
    if row.state not in ("held", "queued"):
        raise Conflict(
            f"job {job} can no longer be edited (state: {row.state})",
            "rerun it and edit the new job",
        )
    given = form.model_fields_set
    values: dict[str, object] = {}
    for key in ("priority", "retries"):
        if key in given and getattr(form, key) is not None:
            values[key] = getattr(form, key)
    if "name" in given:
        if "\0" in (form.name or ""):
            raise UsageError("the name contains a NUL byte")
        values["name"] = maybe_bytes(form.name or None)
    if form.time_limit is not None:
        limit = form.time_limit
        seconds = parse_duration(limit) if isinstance(limit, str) else limit
        if not 0 <= seconds <= 1e10:
            raise UsageError(f"the time limit must be from 0 to 1e10 seconds, not {seconds}")
        values["time_limit"] = seconds or None
    if form.command is not None:
        if not form.command.strip():
            raise UsageError("the command is empty")
        check_words((form.command,))
        values["argv"], values["shell"] = pack_words((form.command,)), 1
    request = changed_request(row.request, _request_options(form), as_keyword)
    if not values and request is None:
        raise UsageError("no field to change was given")
    queue.edit(job, values, request)
    return {"changed": 1}


# How the fields of the request of a job are checked; 0 and empty values remove them.
_REQUEST_KINDS = {
    "gpus": kinds.GPU_COUNT,
    "cpus": kinds.CORE_COUNT,
    "gpu_mem": kinds.MEMORY,
    "mem": kinds.MEMORY,
    "gpu_ids": kinds.GPU_NAMES,
    "gpu_model": kinds.NAME,
    "share": kinds.SHARE,
}


def _request_options(form: JobPatch) -> dict[str, object]:
    """The checked fields of the request that are given."""
    found: dict[str, object] = {}
    for key, kind in _REQUEST_KINDS.items():
        value = getattr(form, key)
        if value is None:
            continue
        try:
            found[key] = kind.check(value) if value and value != "0" else _EMPTY.get(key, 0)
        except Error as error:
            raise name_option(f"`{key}`", error, key) from None
    return found


_EMPTY: dict[str, object] = {"gpu_ids": (), "gpu_model": "", "share": ""}


def act_on_gpu(queue: Queue, uuid: str, form: GpuAct) -> dict[str, object]:
    check_gpu(queue, uuid)
    if form.action == "drain":
        queue.change_device_settings(uuid, drained=1)
    elif form.action == "restore":
        queue.change_device_settings(uuid, drained=0, quarantine=None)
    else:
        if form.slots is None:
            raise UsageError(
                "action `slots` needs a number of slots", '{"action": "slots", "slots": 2}'
            )
        queue.change_device_settings(uuid, slots=form.slots)
    return {"changed": 1}


def check_gpu(queue: Queue, uuid: str) -> None:
    """Raise NotFound unless this host has a GPU with this UUID."""
    if not any(device.uuid == uuid for device in queue.devices()):
        raise NotFound(f"there is no GPU `{uuid}`", "`stoker gpus` lists the GPUs")


def act_on_daemon(queue: Queue, form: DaemonAct) -> dict[str, object]:
    if form.action == "start":
        started = queue.ensure_daemon()
        return {"changed": int(started), "pid": daemon_pid(queue.settings.state_dir)}
    was_draining = meta.is_draining(queue.db)
    draining = form.action == "drain"
    queue.set_draining(draining)
    if form.action == "resume":
        queue.ensure_daemon()
    return {"changed": int(was_draining != draining), "draining": draining}
