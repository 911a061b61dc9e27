"""`stoker edit`: change a job that has not started."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from stoker.cli.open_queue import open_queue
from stoker.cli.output import as_json, plural, report_change
from stoker.client.queue import Queue
from stoker.client.submit.job_options import as_flag
from stoker.client.submit.option_values import (
    GPU_NAMES,
    MEMORY,
    NOTIFY,
    SHARE,
    job_name,
    parse_dependencies,
    parse_pair,
    parse_time,
)
from stoker.client.submit.request_edits import changed_request
from stoker.client.views.job import state_words
from stoker.engine.model import AfterSelector, Dependency, Request
from stoker.engine.store import job_queries
from stoker.errors import Conflict, UsageError
from stoker.settings import Settings
from stoker.states import ACTIVE, WAITING
from stoker.text.byte_text import maybe_bytes, pack_words
from stoker.text.command_line import Option, Parsed, Verb, count, whole_number
from stoker.text.commands.shell_words import display
from stoker.text.durations import parse_duration


def _begin(text: str) -> float:
    return 0.0 if text == "now" else parse_time(text, time.time())


def _after(text: str) -> tuple[Dependency | AfterSelector, ...]:
    return () if text == "none" else parse_dependencies(text)


def _memory(text: str) -> int | str:
    return 0 if text == "0" else MEMORY.parse(text)


def _gpu_ids(text: str) -> tuple[str, ...]:
    return () if text == "any" else GPU_NAMES.parse(text)


def _share(text: str) -> str:
    return "" if text == "any" else str(SHARE.parse(text))


VERB = Verb(
    "edit",
    "edit [OPTIONS] JOB",
    "Change a job that has not started. Without options, edit its command in $EDITOR.",
    (
        Option("-c --command", "the new command, as shell text", "TEXT"),
        Option("-G --gpus", "number of GPUs", "N", count),
        Option(
            "-M --gpu-mem",
            "GPU memory to reserve on each GPU, or auto; 0: whole slots",
            "SIZE",
            _memory,
        ),
        Option("--gpu-ids", "only these GPUs, by index or UUID; any: all GPUs", "LIST", _gpu_ids),
        Option("--gpu-model", "only GPUs whose model contains this; any: all models", "NAME"),
        Option(
            "--share",
            "how to share a GPU: mps, mps:PERCENT or time; any: as it is set up",
            "HOW",
            _share,
        ),
        Option("--cpus", "number of CPU cores to reserve; 0: the default", "N", count),
        Option("--mem", "memory of the host to reserve, or auto; 0: none", "SIZE", _memory),
        Option(
            "-n --name", "new name; empty: no name", "NAME", lambda text: text and job_name(text)
        ),
        Option("-p --priority", "new priority; a higher number starts first", "N", whole_number),
        Option(
            "-t --time-limit", "time limit (0: none; without unit: minutes)", "TIME", parse_duration
        ),
        Option("-r --retries", "retry up to N times", "N", count),
        Option(
            "--begin", "do not start before: 14:30, +2h, 2026-12-24T18:00; or now", "TIME", _begin
        ),
        Option(
            "-d --after",
            "wait for these jobs instead: 7, 7:any, a name, @; none: for no job",
            "JOB[:COND]",
            _after,
            many=True,
        ),
        Option(
            "--array-limit",
            "jobs of the array of this job that run at once; 0: no limit",
            "N",
            count,
        ),
        Option(
            "--notify",
            "notifications instead of the present ones; none: no notifications",
            "WHEN[:WHERE]",
            NOTIFY.parse,
            many=True,
        ),
        Option("-C --cwd", "working directory", "DIR"),
        Option("-E --env", "set a variable; NAME alone copies it", "K=V", parse_pair, many=True),
    ),
    (
        ("stoker edit 7 --gpus 2", ""),
        ("stoker edit 7 --gpu-mem 20G", "`stoker why 7` suggests such changes"),
        ("stoker edit 7 --begin now", "also skips the delay before a retry"),
        ("stoker edit 7 --after 5,6:any --env LR=0.1", ""),
        ("stoker edit array:7 --array-limit 4", "also when some of its jobs have started"),
        ("stoker edit 7", "opens your editor"),
    ),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = queue.select(parsed.words)
    if parsed["array_limit"] is not None:
        return _edit_array(queue, parsed, ids)
    if len(ids) != 1:
        raise UsageError(
            "exactly one job can be edited at a time", "example: stoker edit 7 --gpus 2"
        )
    row = job_queries.job(queue.db, ids[0])
    if row.state not in WAITING:
        copy = f"`stoker rerun --hold {row.id}` creates a copy that can be edited"
        raise Conflict(
            f"job {row.id} {state_words(row.state)}; only a waiting job can be edited",
            f"after `stoker cancel {row.id}`, {copy}" if row.state in ACTIVE else copy,
        )
    changes = changes_of(queue, parsed, row.request)
    if changes is None:
        before = display(row.argv, row.shell)
        text = _in_editor(before)
        if text == before:
            return _report(parsed, f"job {row.id} is unchanged", None)
        changes = {"values": _command(text)}
    queue.edit(row.id, **changes)
    words = ""
    if changes.get("after"):
        from stoker.client.views.after import waits_for_words

        words = f"; it waits for {waits_for_words(queue.db, row.id)}"
    return _report(parsed, f"job {row.id} changed{words}", row.id)


def changes_of(queue: Queue, parsed: Parsed, request: Request) -> dict[str, Any] | None:
    """The options as arguments of `Queue.edit`, for a job with this request; None without any."""
    values: dict[str, object] = {}
    new_request = _changed_request(parsed, request)
    for key in ("priority", "retries"):
        if parsed[key] is not None:
            values[key] = parsed[key]
    if parsed["name"] is not None:
        values["name"] = maybe_bytes(parsed["name"] or None)
    if parsed["begin"] is not None:
        values["eligible_at"] = parsed["begin"] or None
    if parsed["time_limit"] is not None:
        values["time_limit"] = parsed["time_limit"] or None
    if parsed["notify"] is not None:
        values["notify"] = _notify(parsed, queue.settings)
    if parsed["command"] is not None:
        values |= _command(parsed["command"])
    after = None
    if parsed["after"] is not None:
        after = tuple(dependency for some in parsed["after"] for dependency in some)
    cwd, env = _folder(parsed["cwd"]), tuple(pair for some in parsed["env"] or () for pair in some)
    if not (values or env) and all(given is None for given in (new_request, cwd, after)):
        return None
    return {"values": values, "request": new_request, "cwd": cwd, "env": env, "after": after}


def _command(text: str) -> dict[str, object]:
    if not text.strip() or "\0" in text:
        raise UsageError(
            "the command is empty" if not text.strip() else "the command contains a NUL byte"
        )
    return {"argv": pack_words((text,)), "shell": 1}


def _edit_array(queue: Queue, parsed: Parsed, ids: list[int]) -> int:
    others = [option.key for option in VERB.options if option.key != "array_limit"]
    if any(parsed[key] is not None for key in others):
        raise UsageError(
            "`--array-limit` is a change of the whole array and excludes other changes",
            "make the other changes with a second command",
        )
    arrays = {
        (row.batch if row.array_index is not None else None)
        for row in job_queries.jobs(queue.db, ids)
    }
    if len(arrays) != 1 or None in arrays:
        raise UsageError(
            "`--array-limit` needs the jobs of one array",
            "example: stoker edit array:7 --array-limit 4",
        )
    (array,) = arrays
    most = parsed["array_limit"] or None
    queue.set_array_limit(int(str(array)), most)
    limit = "has no limit now" if most is None else f"runs at most {plural(most, 'job')} at once"
    return _report(parsed, f"array {array} {limit}", ids[0])


def _changed_request(parsed: Parsed, request: Request) -> Request | None:
    """The request with the options given; None without any."""
    keys = ("gpus", "cpus", "mem", "gpu_mem", "gpu_ids", "gpu_model", "share")
    given = {key: parsed[key] for key in keys if parsed[key] is not None}
    if given.get("gpu_model") == "any":
        given["gpu_model"] = ""
    return changed_request(request, given, as_flag) or (request if given else None)


def _notify(parsed: Parsed, settings: Settings) -> str | None:
    from stoker.features.notify.notify_settings import resolve

    return resolve(tuple(rule for some in parsed["notify"] for rule in some), settings.notify, True)


def _folder(path: str | None) -> str | None:
    if path is not None and not os.path.isdir(path):
        raise UsageError(f"the folder `{path}` does not exist")
    return None if path is None else os.path.abspath(path)


def _report(parsed: Parsed, text: str, changed: int | None) -> int:
    report_change(as_json(changed=changed) if parsed["json"] else text)
    return 0


def _in_editor(text: str) -> str:
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not sys.stdin.isatty():
        raise UsageError("no changes given", "give options, or set EDITOR and run it on a terminal")
    with tempfile.NamedTemporaryFile("w+", suffix=".sh", errors="surrogateescape") as file:
        file.write(text + "\n")
        file.flush()
        if subprocess.run(["/bin/sh", "-c", f'{editor} "$1"', "sh", file.name]).returncode:
            raise Conflict("the editor failed; the job is unchanged")
        with open(file.name, errors="surrogateescape") as edited:
            return edited.read().rstrip("\n")
