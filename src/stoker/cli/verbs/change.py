"""Verbs that change jobs: cancel, hold, release, rerun, priority, tag, rm."""

from __future__ import annotations

from stoker.cli.job_flags import tags_of
from stoker.cli.open_queue import open_queue
from stoker.cli.options import Option, Parsed, Verb, whole_number
from stoker.cli.output import as_json, plural, report_change, tell
from stoker.cli.start_notice import telling
from stoker.client.queue import Queue
from stoker.core.formats.durations import parse_duration
from stoker.core.formats.selectors import parse_selector
from stoker.core.states import FINAL
from stoker.errors import Conflict, UsageError
from stoker.store import job_queries, reruns

VERBS = {
    "cancel": Verb(
        "cancel",
        "cancel [OPTIONS] JOB...",
        "End jobs. A running one gets SIGTERM, after its grace every process of it SIGKILL.",
        (
            Option("--now", "no grace: kill at once"),
            Option("--grace", "kill after this long instead of the job's own grace", "TIME",
                   lambda text: parse_duration(text, "s")),
        ),
        (("stoker cancel 7", ""), ("stoker cancel waiting", "what runs goes on")),
        aliases=("kill",),
        words="jobs",
    ),
    "hold": Verb("hold", "hold JOB...", "Keep waiting jobs from starting.", (),
                 (("stoker hold 3-9", ""),), words="jobs"),
    "release": Verb("release", "release JOB...", "Let held jobs start.", (),
                    (("stoker release all", ""),), words="jobs"),
    "rerun": Verb(
        "rerun",
        "rerun [OPTIONS] [JOB...]",
        "Submit ended jobs again, as new jobs that ask for the same.",
        (
            Option("--failed", "all that failed, were lost or given up for that (not rerun since)"),
            Option("--hold", "queue them held, for example to edit them first"),
        ),
        (("stoker rerun 7", ""), ("stoker rerun --failed", "")),
        words="jobs",
    ),
    "priority": Verb(
        "priority", "priority N JOB...",
        "Change the priority of waiting jobs; higher goes first, 0 is usual.", (),
        (("stoker priority 10 7", "job 7 goes to the front"),
         ("stoker priority -5 3-9", "and these behind everything")), words="jobs",
        minus_words=True),
    "tag": Verb(
        "tag", "tag JOB... +TAG... -TAG...", "Add (+) and remove (-) tags of jobs.", (),
        (("stoker tag 3-9 +baseline", ""), ("stoker tag 7 -baseline", "")), words="jobs",
        minus_words=True),
    "rm": Verb("rm", "rm JOB...", "Remove finished jobs with their logs.", (),
               (("stoker rm 3-9", ""),), words="jobs"),
}  # fmt: skip


def run(name: str, parsed: Parsed) -> int:
    queue = open_queue()
    return int({
        "cancel": _cancel, "hold": _hold, "release": _release, "rerun": _rerun,
        "priority": _priority, "tag": _tag, "rm": _rm,
    }[name](queue, parsed))  # fmt: skip


def _ids(queue: Queue, parsed: Parsed, words: list[str]) -> list[int]:
    if not words:
        raise UsageError("which jobs?", "`stoker help selectors` says how to point at jobs")
    return queue.select(words)


def _is_one(ids: list[int], parsed: Parsed) -> bool:
    """Whether one job was pointed at: then doing nothing is a surprise, for `all` it is not."""
    return len(ids) == 1 and all(parse_selector(word).states is None for word in parsed.words)


def _say(parsed: Parsed, text: str, **content: object) -> int:
    report_change(as_json(**content) if parsed["json"] else text)
    return 0


def _cancel(queue: Queue, parsed: Parsed) -> int:
    ids = _ids(queue, parsed, parsed.words)
    grace = 0.0 if parsed["now"] else parsed["grace"]
    ended, asked = telling(queue, lambda: queue.cancel(ids, grace))
    if not ended and not asked and _is_one(ids, parsed):
        raise Conflict(
            f"job {ids[0]} has already finished: {job_queries.job(queue.db, ids[0]).state}"
        )
    parts = []
    if ended or not asked:
        parts.append(f"{plural(ended, 'job')} cancelled")
    if asked:
        parts.append(f"{plural(asked, 'running job')} told to stop")
    return _say(parsed, ", ".join(parts), cancelled=ended, stopping=asked)


def _hold(queue: Queue, parsed: Parsed) -> int:
    ids = _ids(queue, parsed, parsed.words)
    count = queue.hold(ids)
    if not count and _is_one(ids, parsed):
        state = job_queries.job(queue.db, ids[0]).state
        if state != "held":
            raise Conflict(f"job {ids[0]} is {state}; only a queued job can be held")
    them = "it" if count == 1 else "them"
    text = f"{plural(count, 'job')} held" + (f"; `stoker release` lets {them} run" if count else "")
    return _say(parsed, text, held=count)


def _release(queue: Queue, parsed: Parsed) -> int:
    ids = _ids(queue, parsed, parsed.words)
    count = telling(queue, lambda: queue.release(ids))
    if not count and _is_one(ids, parsed):
        state = job_queries.job(queue.db, ids[0]).state
        raise Conflict(f"job {ids[0]} is {state}; only a held job can be released")
    return _say(parsed, f"{plural(count, 'job')} released", released=count)


def _rerun(queue: Queue, parsed: Parsed) -> int:
    if parsed["failed"]:
        ids = reruns.failed(queue.db)
        if parsed.words:
            chosen = set(queue.select(parsed.words))
            ids = [job for job in ids if job in chosen]
    else:
        ids = _ids(queue, parsed, parsed.words)
        for job in ids:
            state = job_queries.job(queue.db, job).state
            if state not in FINAL:
                raise Conflict(f"job {job} is {state}; only an ended job can be rerun")
    new = telling(queue, lambda: queue.rerun(ids, bool(parsed["hold"])))
    pairs = ", ".join(f"{old} as {job}" for old, job in list(zip(ids, new, strict=True))[:10])
    text = f"{plural(len(new), 'job')} submitted again" + (f": {pairs}" if pairs else "")
    return _say(parsed, text, jobs=new)


def _priority(queue: Queue, parsed: Parsed) -> int:
    if not parsed.words:
        raise UsageError("which priority, which jobs?", "stoker priority 10 7")
    priority = whole_number(parsed.words[0])
    ids = _ids(queue, parsed, parsed.words[1:])
    count = queue.set_priority(ids, priority)
    if not count and _is_one(ids, parsed):
        raise Conflict(
            f"job {ids[0]} is {job_queries.job(queue.db, ids[0]).state}; its turn has come"
        )
    return _say(parsed, f"{plural(count, 'job')} now with priority {priority}", changed=count)


def _tag(queue: Queue, parsed: Parsed) -> int:
    add = [tag for word in parsed.words if word[:1] == "+" for tag in tags_of(word[1:])]
    remove = [tag for word in parsed.words if word[:1] == "-" for tag in tags_of(word[1:])]
    ids = _ids(queue, parsed, [word for word in parsed.words if word[:1] not in "+-"])
    if not add and not remove:
        raise UsageError("which tags?", "stoker tag 7 +baseline")
    queue.tag(ids, add, remove)
    return _say(parsed, f"{plural(len(ids), 'job')} tagged", tagged=len(ids))


def _rm(queue: Queue, parsed: Parsed) -> int:
    ids = _ids(queue, parsed, parsed.words)
    gone = queue.remove(ids)
    left = len(ids) - len(gone)
    if left:
        tell(f"{plural(left, 'job')} left alone: not ended (cancel first)")
    if ids and not gone:
        raise Conflict("nothing was removed", "`stoker cancel` ends jobs, `stoker rm` removes them")
    return _say(parsed, f"{plural(len(gone), 'job')} removed", removed=gone)
