"""From events to messages: choose the places of each event, gather facts, group by place.

Everything here happens inside one transaction of the notifier.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from typing import Any

from stoker.client.live import log_text
from stoker.client.views import job as views
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.device_settings import load_devices
from stoker.engine.store.job_queries import JobRow
from stoker.errors import NotFound, UsageError
from stoker.features.notify import store as notify_outbox
from stoker.features.notify.message import Notice, Sender, compose, masked_command
from stoker.features.notify.notify_settings import NotifySettings, default_places
from stoker.features.notify.rules import (
    END,
    FAILURE,
    FIRST_FAILURE,
    GPU_LOST,
    SWEEP_END,
    TIME_LIMIT,
    parse_rules,
    places_for,
)
from stoker.features.notify.store import NotifyEvent
from stoker.features.sweeps import store as sweeps
from stoker.settings import Settings
from stoker.text.byte_text import to_text
from stoker.text.commands.shell_words import display

# Events wait this long for others, so that jobs that end together are one message.
GATHER_SECONDS = 2.0


def host_name() -> str:
    return os.uname().nodename or "localhost"


def sender() -> Sender:
    """The user and the host of this process."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Sender(host_name(), user)


class Collector:
    """`log_for`: the log of a job in a foreground run; without it, the log in the queue."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        log_for: Callable[[JobRow], str | None] | None = None,
    ) -> None:
        self._db = db
        self._log_for = log_for or (lambda row: views.log_paths(settings, row)[0])
        self._notify = settings.notify or NotifySettings()

    def collect(self, now: float) -> float | None:
        """Make messages of all events that are due; returns when the next ones are.

        Call this inside a transaction.
        """
        self._announce_limits(now)
        self._choose_places(now)
        return self._make_messages(now)

    def _announce_limits(self, now: float) -> None:
        for near in notify_outbox.near_limits(self._db, now):
            if notify_outbox.is_first(self._db, f"limit:{near.attempt}", now):
                left = max(0.0, near.started_at + near.time_limit - now)
                data = {**self.job_facts(near.job), "limit": near.time_limit, "left": left}
                for place in places_for(near.notify, (TIME_LIMIT,)):
                    notify_outbox.add_event(self._db, now, TIME_LIMIT, near.job, place, data)

    def _choose_places(self, now: float) -> None:
        found = [one for one in notify_outbox.events(self._db) if one.place is None]
        groups: dict[tuple[str, int], str] = {}  # sweeps and batches that may have finished
        for event in found:
            if event.kind == "gpu":
                self._lost_gpu(event, now)
                continue
            group = _group(event)
            if event.kind == "ended":
                self._ended(event, group, now)
            if group is not None and places_for(event.notify or "", (SWEEP_END,)):
                groups[group] = event.notify or ""
        for group, notify in groups.items():
            self._group_ended(group, notify, now)
        if found:
            notify_outbox.remove_events(self._db, [event.id for event in found])

    def _ended(self, event: NotifyEvent, group: tuple[str, int] | None, now: float) -> None:
        """A job ended: one notice for each place, even if several of its rules match."""
        assert event.job is not None
        notify, data = event.notify or "", event.data
        has_failed = is_failure(data["state"], data.get("cause"))
        first = places_for(notify, (FIRST_FAILURE,)) if has_failed else ()
        if first and group is not None:
            is_first = notify_outbox.is_first(self._db, f"failure:{group[0]}:{group[1]}", now)
            first = first if is_first else ()
        others = places_for(notify, (END, FAILURE) if has_failed else (END,))
        if not (first or others):
            return
        facts = self.job_facts(event.job, data)
        if group is not None:
            facts["group"] = self._group_title(group)
        for place in dict.fromkeys((*first, *others)):
            kind = FIRST_FAILURE if place in first and group else FAILURE if has_failed else END
            notify_outbox.add_event(self._db, event.at or now, kind, event.job, place, facts)

    def _lost_gpu(self, event: NotifyEvent, now: float) -> None:
        if event.job is not None:
            places, data = places_for(event.notify or "", (GPU_LOST,)), self.job_facts(event.job)
        else:
            places, data = self._operator_places(), self._gpu(event.data)
        for place in places:
            notify_outbox.add_event(self._db, event.at or now, GPU_LOST, event.job, place, data)

    def _operator_places(self) -> tuple[str, ...]:
        """The places for events that are not about a job: by the default of the settings."""
        if not self._notify.when:
            return ()
        try:
            rules = [rule for rule in parse_rules(self._notify.when) if rule.when == GPU_LOST]
        except UsageError:
            return ()
        places: dict[str, None] = {}
        for rule in rules:
            places.update(
                dict.fromkeys((rule.where,) if rule.where else default_places(self._notify))
            )
        return tuple(places)

    def _gpu(self, data: dict[str, Any]) -> dict[str, Any]:
        known = {device.uuid: device for device in load_devices(self._db)}
        device = known.get(data["uuid"])
        name = data["uuid"] if device is None else f"{device.visible} ({device.model})"
        return {"gpu": name, "why": data["why"]}

    def _group_ended(self, group: tuple[str, int], notify: str, now: float) -> None:
        column, number = group
        is_sweep = column == "sweep"
        unfinished = (
            notify_outbox.unfinished_in_sweep if is_sweep else (notify_outbox.unfinished_in_batch)
        )
        if unfinished(self._db, number):
            return
        counts, seconds = notify_outbox.group_counts(self._db, column, number)
        known = notify_outbox.sweep_facts(self._db, number) if is_sweep else None
        data: dict[str, Any] = {
            "title": self._group_title(group),
            "counts": counts,
            "seconds": seconds,
            "state": "failed" if counts.get("failed") or counts.get("lost") else "done",
        }
        if known is not None:
            data |= {"sweep": to_text(known[0]), "stopped": known[1]}
            if self._notify.link:
                data["link"] = f"{self._notify.link}/#/sweeps/{to_text(known[0])}"
        for place in places_for(notify, (SWEEP_END,)):
            notify_outbox.add_event(self._db, now, SWEEP_END, None, place, data)

    def _group_title(self, group: tuple[str, int]) -> str:
        column, number = group
        if column == "sweep":
            known = notify_outbox.sweep_facts(self._db, number)
            return f"sweep {to_text(known[0])}" if known else f"sweep {number}"
        return f"the jobs from job {number} on"

    def job_facts(self, job: int, ended: dict[str, Any] | None = None) -> dict[str, Any]:
        """The facts about a job; if it was removed meanwhile, those that the event has."""
        try:
            row = job_queries.job(self._db, job)
        except NotFound:
            facts: dict[str, Any] = {"title": f"job {job}"}
            if ended is not None:
                facts |= {"state": ended["state"], "cause": ended.get("cause")}
            return facts
        command = masked_command(display(row.argv, row.shell))
        trial = sweeps.of_job(self._db, job) if row.sweep is not None else None
        out = self._log_for(row)
        link = self._notify.link
        result = masked_command(views.result_words(row, self._db))
        detail = masked_command(row.detail or "")
        facts = {
            "name": row.name,
            "title": row.name or (command if self._notify.command else f"job {job}"),
            "state": row.state if ended is None else ended["state"],
            "cause": row.cause or row.attempt_cause,
            "result": result,
            "detail": detail if detail not in result else None,
            "exit_code": views.exit_code(row),
            "cwd": row.cwd,
            "log": out,
        }
        if self._notify.command:
            facts["command"] = command
        if row.started_at is not None and row.ended_at is not None:
            facts["seconds"] = row.ended_at - row.started_at
        if trial is not None:
            point = json.loads(sweeps.point_of(self._db, job) or "{}")
            params = " ".join(f"{name}={text}" for name, (_, text) in point.items())
            facts |= {"sweep": trial[0], "title": f"{row.name or trial[0]} {params}"}
            facts["trial"] = f"{trial[1]} of sweep {trial[0]}"
        if row.devices or row.request.backend:
            place = views.place_words(row)
            facts["place"] = place if row.request.backend else f"GPU {place}"
        if link:
            facts |= {"link": f"{link}/#/jobs/{job}", "queue_link": f"{link}/"}
        if self._notify.log_lines and out is not None:
            facts["log_lines"] = log_text.last_lines(out, self._notify.log_lines)
        return {key: value for key, value in facts.items() if value is not None}

    def _make_messages(self, now: float) -> float | None:
        by_place: dict[str, list[NotifyEvent]] = {}
        for event in notify_outbox.events(self._db):
            if event.place is not None:
                by_place.setdefault(event.place, []).append(event)
        later = []
        for place, events in by_place.items():
            due = self._due_at(place, events, now)
            if due > now:
                later.append(due)
                continue
            notices = [Notice(one.kind, one.job, one.data) for one in _without_repeats(events)]
            notify_outbox.add_message(self._db, place, compose(notices, sender()), now)
            notify_outbox.remove_events(self._db, [event.id for event in events])
        return min(later, default=None)

    def _due_at(self, place: str, events: list[NotifyEvent], now: float) -> float:
        """When the events of a place become a message: soon, but not too many messages."""
        interval = self._notify.interval
        oldest = min(event.at for event in events)
        due = min(oldest, now) + min(GATHER_SECONDS, interval)
        last = notify_outbox.last_message_at(self._db, place)
        return due if last is None or last > now else max(due, last + interval)


def is_failure(state: str, cause: str | None) -> bool:
    """Whether an end counts as a failure: also if a job that it needs failed."""
    return state in ("failed", "lost") or (state == "cancelled" and cause == "dependency")


def _group(event: NotifyEvent) -> tuple[str, int] | None:
    """The sweep of a job, or else the jobs that were submitted with it; None if it is alone."""
    for column in ("sweep", "batch"):
        if event.data.get(column) is not None:
            return column, event.data[column]
    return None


def _without_repeats(events: list[NotifyEvent]) -> list[NotifyEvent]:
    """The events without those that say the same: a sweep that finished is announced once."""
    found: dict[tuple[str, int | None, str], NotifyEvent] = {}
    for event in events:
        same = "" if event.job is not None else str(event.data.get("title") or event.data)
        found[event.kind, event.job, same] = event
    return list(found.values())
