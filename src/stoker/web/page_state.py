"""What is on the page at one moment, and what became different since another moment.

The visible set is bounded: all that runs, the head of the queue, what ended last. It comes from
the same functions as `stoker ls --json`, in one read transaction, so it never contradicts itself.
"""

from __future__ import annotations

import json
import os
import time

from stoker.client import views
from stoker.client.gpu_views import GpuView, load_gpu_views
from stoker.client.queue import Queue
from stoker.core.record import Record
from stoker.core.states import ACTIVE
from stoker.daemon.gpus.process_owners import user_name
from stoker.devices.discovery import has_driver
from stoker.store import history, job_queries
from stoker.store.job_queries import JobRow
from stoker.web.sweeps_view import SweepCache
from stoker.web.throttled_cache import ThrottledCache
from stoker.web.wait_reasons import Wait, waits

READY = 150
UNREADY = 50  # of the two hundred: a held job must not vanish behind a long queue
RECENT = 20
RUNNING = 1000
# The driver is asked by a process of its own; so often is enough for eyes.
_DRIVER_SECONDS = 2.0
_IDLE_SECONDS = 5.0
# "in 3m 20s" is another text every second; so old it may become.
WAITS_SECONDS = 2.0
_UNKNOWN = Wait("")


class PageState(Record):
    at: float
    jobs: dict[int, dict[str, object]]
    prints: dict[int, str]  # what makes one version of a job differ from another
    running: tuple[int, ...]
    queue: tuple[int, ...]
    recent: tuple[int, ...]
    waits: dict[int, Wait]  # of all in the queue
    gpus: list[dict[str, object]]
    trouble: str | None
    counts: dict[str, int]
    sweeps: dict[str, dict[str, object]]
    daemon: dict[str, object]

    def job(self, id: int) -> dict[str, object]:
        """As `stoker ls --json` has it, and why it waits while it does."""
        wait = self.waits.get(id)
        return self.jobs[id] if wait is None else {**self.jobs[id], **_told(wait, self.at)}


class PageStateReader:
    """Looks, and remembers what would be costly to find each time."""

    def __init__(self, book: SweepCache) -> None:
        self._book = book
        self._asks_driver = has_driver()
        # A look without news: times pass, and a driver has no news.
        self.idle = _DRIVER_SECONDS if self._asks_driver else _IDLE_SECONDS
        least = _DRIVER_SECONDS if self._asks_driver else 0.0
        self._counts: ThrottledCache[dict[str, int]] = ThrottledCache()
        self._cards: ThrottledCache[tuple[list[GpuView], str | None]] = ThrottledCache(10.0, least)
        self._waits: ThrottledCache[dict[int, Wait]] = ThrottledCache(10.0, WAITS_SECONDS)

    def look(self, queue: Queue, before: PageState | None) -> PageState:
        db = queue.db
        sweeps = {str(one["name"]): one for one in self._book.newest(db)}  # may note what it read
        cards = self._cards.get("", lambda: load_gpu_views(db, queue.settings))
        with db.reading():
            running = job_queries.page(db, ACTIVE, RUNNING)
            ready = history.ready(db, READY + UNREADY)
            unready = history.unready(db, READY + UNREADY)
            ready = ready[: READY + max(0, UNREADY - len(unready))]
            unready = unready[: READY + UNREADY - len(ready)]
            waiting = job_queries.jobs(db, ready + unready)
            also = (*before.running, *before.recent) if before is not None else ()
            recent = job_queries.jobs(db, history.ended(db, RECENT, also))
            rows = [*running, *waiting, *recent]
            jobs = {row.id: views.job_json(db, queue.settings, row) for row in rows}
            told = self._reasons(queue, waiting, ready, cards)
        facts = views.daemon_facts(db, queue.settings)
        return PageState(
            time.time(), jobs, {id: json.dumps(job) for id, job in jobs.items()},
            tuple(row.id for row in running), tuple(row.id for row in waiting),
            tuple(row.id for row in recent), told,
            [card.as_json() for card in cards[0]], cards[1],
            self._counts.get("", lambda: job_queries.counts(db)), sweeps,
            {"pid": facts["pid"], "draining": facts["draining"]},
        )  # fmt: skip

    def _reasons(
        self,
        queue: Queue,
        rows: list[JobRow],
        ready: list[int],
        cards: tuple[list[GpuView], str | None],
    ) -> dict[int, Wait]:
        """For each of these; known ones may be a little old, new ones are worth a look."""

        def find_out() -> dict[int, Wait]:
            return waits(queue, rows, ready, cards)

        known = self._waits.get("", find_out)
        if not self._asks_driver and any(row.id not in known for row in rows):
            self._waits.forget("")
            known = self._waits.get("", find_out)
        orderly = set(ready)
        return {
            row.id: known.get(row.id, _UNKNOWN)._replace(in_line=row.id in orderly) for row in rows
        }

    def late(self) -> float:
        """Seconds until what was not looked at for its cost can be; 0: all is as it is."""
        return max(self._counts.late(), self._cards.late(), self._waits.late(), self._book.late())


def _told(wait: Wait, now: float) -> dict[str, object]:
    left = None if wait.starts_at is None else max(0.0, round(wait.starts_at - now, 1))
    return {"why": wait.why, "starts_in": left, "in_line": wait.in_line}


def overview(seen: PageState, event: int, read_only: bool) -> dict[str, object]:
    return {
        "now": views.iso(seen.at),
        "event_id": event,
        "read_only": read_only,
        "user": user_name(os.geteuid()),
        "host": os.uname().nodename,
        "daemon": seen.daemon,
        "gpus": seen.gpus,
        "trouble": seen.trouble,
        "running": [seen.job(id) for id in seen.running],
        "queue": [seen.job(id) for id in seen.queue],
        "recent": [seen.job(id) for id in seen.recent],
        "counts": seen.counts,
        "sweeps": list(seen.sweeps.values()),
    }


def difference(old: PageState, new: PageState) -> dict[str, object] | None:
    """What somebody who knows `old` has to be told; None: nothing."""
    changed = [
        id
        for id, text in new.prints.items()
        if old.prints.get(id) != text or (id in new.waits) != (id in old.waits)
    ]
    removed = [id for id in old.jobs if id not in new.jobs]
    sweeps = [one for name, one in new.sweeps.items() if old.sweeps.get(name) != one]
    gone = [name for name in old.sweeps if name not in new.sweeps]
    told = set(changed)
    late = {}
    for id, wait in new.waits.items():
        if id in told:
            continue
        if _differs(old.waits[id], wait):
            late[id] = _told(wait, new.at)
        else:
            new.waits[id] = old.waits[id]  # what they know; small steps add up
    is_same = (old.gpus, old.counts, old.daemon, old.queue) == (
        new.gpus, new.counts, new.daemon, new.queue
    )  # fmt: skip
    if is_same and not (changed or removed or sweeps or gone or late):
        return None
    content: dict[str, object] = {
        "now": views.iso(new.at),
        "counts": new.counts,
        "gpus": new.gpus,
        "daemon": new.daemon,
        "jobs": [new.job(id) for id in changed],
        "removed": removed,
        "sweeps": sweeps,
        "removed_sweeps": gone,
        "waits": late,
    }
    if old.queue != new.queue:
        content["queue"] = list(new.queue)
    return content


def _differs(old: Wait, new: Wait) -> bool:
    """Whether it is worth telling; a start that is expected a second later is not."""
    if old.in_line != new.in_line:
        return True
    if old.why != new.why or old.starts_at is None or new.starts_at is None:
        return (old.why, old.starts_at is None) != (new.why, new.starts_at is None)
    return abs(old.starts_at - new.starts_at) > 5.0
