"""`stoker rerun`: submit finished jobs again."""

from __future__ import annotations

from stoker.cli.confirmation import DRY_RUN, YES, is_confirmed, print_plan
from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.cli.start_notice import with_start_notice
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.states import FINAL
from stoker.errors import Conflict
from stoker.store import job_queries

_SHOWN = 10

VERB = Verb(
    "rerun",
    "rerun [OPTIONS] [JOB...]",
    "Submit finished jobs again, as new jobs with the same request.",
    (
        Option("--failed", "all failed and lost jobs, and jobs cancelled because of them, that were"
               " not rerun yet"),
        Option("--same-code", "run them with the code that they were submitted with: in the same"
               " snapshot, or only if their folder has not changed"),
        Option("--hold", "hold the new jobs, for example to edit them first"),
        YES,
        DRY_RUN,
    ),
    (("stoker rerun 7", ""), ("stoker rerun --failed", ""),
     ("stoker rerun 7 --same-code", "refuses if the code has changed, unless it has a snapshot")),
    words="jobs",
)  # fmt: skip


def run(parsed: Parsed) -> int:
    queue = open_queue()
    ids = _failed(queue, parsed.words) if parsed["failed"] else _finished(queue, parsed.words)
    what = plural(len(ids), "failed job" if parsed["failed"] else "job")
    if parsed["dry_run"]:
        return print_plan(parsed, f"{what}{_shown(ids)}, none resubmitted", reruns=ids, jobs=[])
    asks = parsed["failed"] and len(ids) > 1
    if asks and not is_confirmed(parsed, f"rerun {what}{_shown(ids)}", "nothing was resubmitted"):
        return 1
    new = with_start_notice(queue, lambda: _rerun(queue, parsed, ids))
    if len(new) == 1:
        return print_change(parsed, f"job {ids[0]} resubmitted as job {new[0]}", jobs=new)
    pairs = ", ".join(f"{old} as {job}" for old, job in list(zip(ids, new, strict=True))[:_SHOWN])
    text = f"{plural(len(new), 'job')} resubmitted" + (f": {pairs}" if pairs else "")
    return print_change(parsed, text, jobs=new)


def _rerun(queue: Queue, parsed: Parsed, ids: list[int]) -> list[int]:
    return queue.rerun(ids, bool(parsed["hold"]), bool(parsed["same_code"]))


def _failed(queue: Queue, words: list[str]) -> list[int]:
    ids = queue.failed_jobs()
    if not words:
        return ids
    chosen = set(queue.select(words))
    return [job for job in ids if job in chosen]


def _finished(queue: Queue, words: list[str]) -> list[int]:
    ids = select_jobs(queue, words)
    for job in ids:
        state = job_queries.job(queue.db, job).state
        if state not in FINAL:
            raise Conflict(f"job {job} is {state}; only a finished job can be rerun")
    return ids


def _shown(ids: list[int]) -> str:
    """The first ids, in parentheses."""
    more = ", …" if len(ids) > _SHOWN else ""
    return f" ({', '.join(map(str, ids[:_SHOWN]))}{more})" if ids else ""
