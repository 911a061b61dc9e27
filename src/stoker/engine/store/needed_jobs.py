"""The jobs for which a new or changed job (`--after`) or `stoker wait` waits, by id or selector.

A selector is resolved in the transaction that adds the job, so no other submit comes between:

    @, @~1      the newest job that was there before this submit, the one before it; in a line of a
                job file, the line before it
    3-9, 7_3    all jobs of the range, index 3 of array 7; array:7, 7_3-5 and sweep:NAME likewise
    job:7       job 7, or all jobs of array 7: what an id means in `#SBATCH --dependency`
    NAME, TAG   the unfinished jobs with it or, if all have finished, the newest one; in both cases
                with all that were submitted together with them, as an array or a job file

A job that was rerun is replaced by its rerun.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import AfterSelector, Dependency
from stoker.engine.store import arrays
from stoker.engine.store.database import Database, id_list
from stoker.errors import Conflict, NotFound, UsageError
from stoker.record import Record
from stoker.states import ACTIVE, FINAL, HELD, QUEUED, is_satisfied
from stoker.text.byte_text import maybe_bytes, to_bytes
from stoker.text.selectors import Selector, parse_selector

_ENDED = {
    "done": "has succeeded",
    "failed": "has failed",
    "cancelled": "was cancelled",
    "lost": "was lost",
}
_NEWEST = 1 << 62
# Records of dependencies in one submit: a hundred bytes each.
_MAX_RECORDS = 2_000_000


class Needed(Record):
    """A job that has to finish first."""

    job: int
    condition: str
    is_met: bool


def needed_jobs(
    db: Database,
    after: Iterable[Dependency | AfterSelector],
    *,
    before: int = _NEWEST,
    own: int = _NEWEST,
    without: int = 0,
    dependents: int = 1,
) -> list[Needed]:
    """Return the jobs to wait for, each once.

    Selectors find only jobs with an id less than `before`, the first job of the submit; those in a
    line of a job file, jobs before `own`. They do not find the job `without`.
    Raises NotFound if there is no such job, Conflict if one can never meet its condition, and
    UsageError if a selector is ambiguous.
    """
    found: dict[int, Needed] = {}
    for item in after:
        if isinstance(item, Dependency):
            states = {item.job: db.value("SELECT state FROM jobs WHERE id = ?", (item.job,))}
            if states[item.job] is None:
                raise NotFound(
                    f"there is no job {item.job} to wait for",
                    "`stoker ls` shows the jobs",
                    field="after",
                )
        else:
            end = own if item.in_file else before
            states = dict(_selected(db, item.text, end, without))
        for job, state in states.items():
            is_met = is_satisfied(str(state), item.condition)
            if is_met is False:
                raise _never(job, str(state), item)
            found[job] = Needed(job, item.condition, bool(is_met))
    if len(found) * dependents > _MAX_RECORDS:
        raise UsageError(
            f"{dependents} jobs that wait for {len(found)} jobs each would take too much space",
            "submit one short job that waits for them, and let the others wait for that one",
            "after",
        )
    return list(found.values())


def waited_jobs(db: Database, text: str) -> list[int]:
    """Return the jobs for which `stoker wait` waits if this selector is given; see above.

    `all` means the unfinished jobs or, if all have finished, those of the newest submit. Held jobs
    are not among them. Raises NotFound for other selectors without a job.
    """
    from stoker.engine.store import job_queries

    selector = parse_selector(text)
    if text == "all":
        unfinished = job_queries.select(db, Selector(text, states=(QUEUED, *ACTIVE)))
        return unfinished or _newest_submit(db)
    if selector.name is not None or selector.tag is not None:
        rows = _with_word(db, selector, _NEWEST, 0, is_exact=False)
        return [job for job, _ in rows] or job_queries.select(db, selector)
    jobs = job_queries.select(db, selector)
    return [job for job, _ in _without_rerun(db, _states(db, jobs))]


def _newest_submit(db: Database) -> list[int]:
    """Return the newest finished job, with all that were submitted together with it."""
    row = db.execute(
        "SELECT id, coalesce(batch, id) FROM jobs WHERE state != ? ORDER BY id DESC LIMIT 1",
        (HELD,),
    ).fetchone()
    if row is None:
        return []
    newest, batch = row
    rows = db.execute(
        "SELECT id, state FROM jobs WHERE id >= ?1 AND (batch = ?1 OR id = ?2) AND state != ?3",
        (batch, newest, HELD),
    ).fetchall()
    return [job for job, _ in _without_rerun(db, rows)]


def _never(job: int, state: str, item: Dependency | AfterSelector) -> Conflict:
    text = str(item.job) if isinstance(item, Dependency) else item.text
    return Conflict(
        f"job {job} {_ENDED[state]}, so a job with --after {text}:{item.condition}"
        " would never start",
        f"use --after {text}:any, or rerun job {job} first",
        field="after",
    )


def _selected(db: Database, text: str, before: int, without: int) -> list[tuple[int, str]]:
    """Return the jobs of a selector with their states."""
    id = text.removeprefix("job:")
    if id != text and id.isdigit():
        text = f"array:{id}" if arrays.load(db, int(id)) is not None else id
    selector = parse_selector(text)
    if selector.back is not None:
        rows = db.execute(
            "SELECT id, state FROM jobs WHERE id < ? AND id != ? ORDER BY id DESC LIMIT 1 OFFSET ?",
            (before, without, selector.back),
        ).fetchall()
    elif selector.name is not None or selector.tag is not None:
        rows = _with_word(db, selector, before, without, is_exact=True)
    else:
        rows = _listed(db, selector, before, without)
    if not rows:
        raise NotFound(_missing(selector), "`stoker ls` shows the jobs", field="after")
    return rows


def _missing(selector: Selector) -> str:
    if selector.back is not None:
        return f"`{selector.text}` is not a job: the queue has too few jobs"
    if selector.first is not None and selector.array is None:
        return f"there are no jobs {selector.text} to wait for"
    return f"there is no job `{selector.text}` to wait for"


def _listed(db: Database, selector: Selector, before: int, without: int) -> list[tuple[int, str]]:
    from stoker.engine.store import job_queries

    if selector.sweep is not None and db.value(
        "SELECT 1 FROM sweeps WHERE name = ? AND is_driven", (to_bytes(selector.sweep),)
    ):
        raise Conflict(
            f"the results of the sweep `{selector.sweep}` decide which trials follow, so not all of"
            " its jobs exist yet",
            f"wait for it: stoker wait sweep:{selector.sweep} && stoker submit ...",
            field="after",
        )
    try:
        selected = job_queries.select(db, selector)
    except NotFound:
        return []
    jobs = [one for one in selected if one < before and one != without]
    rows = _states(db, jobs)
    return rows if selector.array is not None else _without_rerun(db, rows)


def _with_word(
    db: Database, selector: Selector, before: int, without: int, *, is_exact: bool
) -> list[tuple[int, str]]:
    """Return the jobs with a name or tag: see the module docstring.

    `is_exact`: raise UsageError for a word that is the name of some jobs and a tag of others.
    """
    named = {
        row[0]
        for row in db.execute("SELECT id FROM jobs WHERE name = ?", (maybe_bytes(selector.name),))
    }
    tagged = {
        row[0]
        for row in db.execute("SELECT job FROM tags WHERE tag = ?", (maybe_bytes(selector.tag),))
    }
    word = selector.text
    if is_exact and named and tagged and named != tagged:
        raise UsageError(
            f"`{word}` is the name of some jobs and a tag of others",
            f"write name:{word} or tag:{word}",
            "after",
        )
    jobs = sorted(one for one in named | tagged if one < before and one != without)
    rows = _without_rerun(db, _states(db, jobs))
    chosen = {job for job, state in rows if state not in FINAL} or {job for job, _ in rows[-1:]}
    batches = {
        row[0]
        for row in db.execute(
            "SELECT DISTINCT batch FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
            " AND batch IS NOT NULL",
            (id_list(sorted(chosen)),),
        )
    }
    together = {
        row[0]
        for row in db.execute(
            "SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
            " AND batch IN (SELECT value FROM json_each(?))",
            (id_list([job for job, _ in rows]), id_list(sorted(batches))),
        )
    }
    return [(job, state) for job, state in rows if job in chosen or job in together]


def _states(db: Database, jobs: list[int]) -> list[tuple[int, str]]:
    return db.execute(
        "SELECT id, state FROM jobs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (id_list(jobs),),
    ).fetchall()


def _without_rerun(db: Database, rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Leave out the jobs that were rerun, if their rerun is among the others."""
    jobs = {job for job, _ in rows}
    ended = [job for job, state in rows if state in FINAL]
    rerun = {
        old
        for old, new in db.execute(
            "SELECT rerun_of, id FROM jobs WHERE rerun_of IN (SELECT value FROM json_each(?))",
            (id_list(ended),),
        )
        if new in jobs
    }
    return [(job, state) for job, state in rows if job not in rerun]
