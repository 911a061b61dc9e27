"""Dependencies in words, for `submit` and `edit`."""

from __future__ import annotations

from stoker.engine.model import AfterSelector, Dependency, JobSpec
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.needed_jobs import needed_jobs
from stoker.text.plurals import plural_word
from stoker.text.selectors import id_ranges

_MUST = {"ok": "to succeed", "any": "to finish", "notok": "to fail"}
_SHOWN = 6  # ranges of ids in one sentence


def after_text(item: Dependency | AfterSelector) -> str:
    """A dependency as it is written: `7`, `train:any`."""
    text = str(item.job) if isinstance(item, Dependency) else item.text
    return text if item.condition == "ok" else f"{text}:{item.condition}"


def after_json(item: Dependency | AfterSelector) -> dict[str, object]:
    if isinstance(item, Dependency):
        return {"job": item.job, "condition": item.condition}
    return {"job": None, "condition": item.condition, "selector": item.text}


def resolved(
    db: Database, after: tuple[Dependency | AfterSelector, ...]
) -> tuple[Dependency | AfterSelector, ...]:
    """The ids that selectors find now, without those that may find earlier lines of a job file.

    Raises what a submit would raise.
    """
    found: list[Dependency | AfterSelector] = []
    for item in after:
        if isinstance(item, Dependency) or item.in_file:
            found.append(item)
        else:
            needed = needed_jobs(db, [item])
            found += [Dependency(one.job, one.condition) for one in needed]
    return tuple(found)


def uses_selectors(spec: JobSpec) -> bool:
    return any(isinstance(item, AfterSelector) for item in spec.after)


def waits_for_words(db: Database, job: int) -> str:
    """`jobs 3-9 to succeed`: what a job waits for; which of them have finished; "" for nothing."""
    by_condition: dict[str, list[int]] = {}
    ended: list[int] = []
    for needs, condition, is_met in job_queries.dependencies(db, job):
        (ended if is_met else by_condition.setdefault(condition, [])).append(needs)
    words = [f"{_jobs(ids)} {_MUST[condition]}" for condition, ids in by_condition.items()]
    if ended:
        words.append(f"{_jobs(ended)} (already finished)")
    return " and ".join(words)


def _jobs(ids: list[int]) -> str:
    ranges = id_ranges(sorted(ids))
    shown = ", ".join(ranges[:_SHOWN]) + (", ..." if len(ranges) > _SHOWN else "")
    return f"{plural_word(len(ids), 'job')} {shown}"
