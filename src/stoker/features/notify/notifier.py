"""The notifier: makes messages of recorded events and sends them, with retries.

The daemon starts this process when there are events, and again when a message is due; it exits when
it has nothing to do. All its state is in the database, so it can be killed at any time. A message
is marked as sent after the receiver accepted it: if the process dies in between, the message is
sent again, with the same id. Runs as `python -m stoker.features.notify.notifier PARENT`.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time

from stoker.client.live.change_feed import ChangeFeed
from stoker.engine.store import meta
from stoker.engine.store.database import open_database
from stoker.engine.supervisor.parent_death import send_at_parent_death
from stoker.errors import Error
from stoker.features.notify import send_process
from stoker.features.notify import store as notify_outbox
from stoker.features.notify.collect import Collector, host_name
from stoker.features.notify.places_file import load_places
from stoker.features.notify.rules import DESKTOP
from stoker.features.notify.send_process import TIMEOUT_SECONDS, Result
from stoker.features.notify.store import NotifyMessage
from stoker.settings import Settings, load_settings
from stoker.testing.failpoints import failpoint

LOCK = "notifier.lock"
FIRST_PAUSE = 10.0  # seconds before the second try; doubles with each one
MAX_AGE = 86400.0  # a message that was not accepted for so long is given up
_DRAIN_SECONDS = 3600.0  # the next daemon continues
_AT_ONCE = 8  # sending processes
# The process stays for events that follow soon; starting it takes as long as sending.
_LINGER_SECONDS = 5.0
_LEAST_WAIT = 0.05
# Events are read so often at most: a transaction of this process may delay one of the loop.
_COLLECT_SECONDS = 0.25


def next_try(tries: int, age: float, first: float = FIRST_PAUSE) -> float | None:
    """Seconds until the next try after `tries` failures of a message of this age; None: give up.

    >>> next_try(1, 0.0), next_try(3, 30.0), next_try(50, 7200.0), next_try(50, 86400.0)
    (10.0, 40.0, 600.0, None)
    """
    pause = min(notify_outbox.MAX_PAUSE, first * 2.0 ** min(tries - 1, 20))
    return None if age + pause > MAX_AGE else pause


class _Sending:
    """A process that sends one message."""

    def __init__(self, message: NotifyMessage, url: str, queue: str, now: float) -> None:
        self.message = message
        self.kill_at = now + TIMEOUT_SECONDS
        content = {
            "id": f"stoker-{host_name()}-{queue}-{message.id}",
            "at": message.created_at,
            **message.content,
        }
        self.process = subprocess.Popen(
            send_process.COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(send_process.request(url, content))
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # its exit code says that it failed
        self.output = self.process.stdout.fileno()

    def result(self, now: float) -> Result | None:
        """The result if the process has ended or must end; None while it may go on."""
        assert self.process.stdout is not None
        if select.select([self.output], [], [], 0)[0]:
            data = self.process.stdout.read()  # at most one line, written when all is done
            return send_process.read_result(data, self.process.wait())
        if now < self.kill_at:
            return None
        self.process.kill()
        self.process.wait()
        return send_process.read_result(b"", None)


class Notifier:
    def __init__(self, settings: Settings, drains: bool = False) -> None:
        """`drains`: there is no daemon, so stay until every message is sent, or for an hour."""
        self._settings = settings
        self._db = open_database(settings.state_dir)
        self._drains = drains
        self._queue_id = f"{meta.tag_base(self._db):x}"
        self._ends_at = time.monotonic() + _DRAIN_SECONDS
        self._sendings: dict[str, _Sending] = {}  # by place: one at a time, in their order
        self._is_stopping = False
        self._next_event: float | None = 0.0  # when events become messages; at first not known
        self._collect_at = 0.0  # monotonic
        self._first_pause = min(FIRST_PAUSE, 10 * settings.retry_delay)

    def stop(self, *_: object) -> None:
        """Finish what is being sent, then exit."""
        self._is_stopping = True

    def work(self) -> None:
        feed = ChangeFeed(self._settings.state_dir)
        outputs = select.epoll()
        idle_at = time.monotonic() + _LINGER_SECONDS
        try:
            while True:
                self._reap(outputs)
                next_event = None
                if not self._is_stopping:
                    next_event = self._collect()
                    self._start(outputs)
                if self._sendings:
                    idle_at = time.monotonic() + _LINGER_SECONDS
                elif self._is_stopping:
                    return
                due = self._next_due(next_event)
                if not (self._sendings or self._has_work(due, next_event, idle_at)):
                    return
                feed.wait(self._timeout(due, idle_at), outputs.fileno())
        finally:
            feed.close()
            outputs.close()
            self._db.close()

    def _has_work(self, due: float | None, next_event: float | None, idle_at: float) -> bool:
        """Whether to stay: events wait for their turn, a try is near, or an event may follow."""
        if self._drains:
            return due is not None and time.monotonic() < self._ends_at
        is_near = due is not None and due <= time.time() + _LINGER_SECONDS
        return is_near or next_event is not None or time.monotonic() < idle_at

    def _timeout(self, due: float | None, idle_at: float) -> float:
        now = time.monotonic()
        times = [one.kill_at - now for one in self._sendings.values()]
        if self._collect_at > now:
            times.append(self._collect_at - now)
        if idle_at > now:
            times.append(idle_at - now)
        if due is not None:
            times.append(due - time.time())
        return max(_LEAST_WAIT, min(times, default=_LINGER_SECONDS))

    def _next_due(self, next_event: float | None) -> float | None:
        """When an event or a message is due, apart from messages to places that are busy."""
        now = time.time()
        due = [
            now if one.is_due(now) else one.due_at
            for one in notify_outbox.waiting(self._db)
            if one.place not in self._sendings
        ]
        return min([*due, *([] if next_event is None else [next_event])], default=None)

    def _collect(self) -> float | None:
        """Turn events into messages; returns when the next ones are due."""
        now = time.time()
        if time.monotonic() < self._collect_at:
            return self._next_event
        is_due = self._next_event is not None and self._next_event <= now
        if not (is_due or notify_outbox.has_new(self._db, now)):
            return self._next_event
        self._collect_at = time.monotonic() + _COLLECT_SECONDS
        self._settings = load_settings()._replace(state_dir=self._settings.state_dir)
        with self._db.transaction():
            self._next_event = Collector(self._db, self._settings).collect(now)
        failpoint("notifier.after_collect")
        return self._next_event

    def _start(self, outputs: select.epoll) -> None:
        now = time.time()
        due = [one for one in notify_outbox.waiting(self._db) if one.is_due(now)]
        due = [one for one in due if one.place not in self._sendings]
        if not due:
            return
        try:
            places, problem = load_places(), None
        except Error as error:
            places, problem = {DESKTOP: DESKTOP}, error.message
        for message in due:
            if message.place in self._sendings or len(self._sendings) >= _AT_ONCE:
                continue
            url = places.get(message.place)
            if url is None:
                why = problem or f"there is no place `{message.place}` any more"
                self._record(message, Result(why, is_final=problem is None))
                continue
            try:
                sending = _Sending(message, url, self._queue_id, time.monotonic())
            except OSError as error:
                self._record(message, Result(f"cannot start a process: {error.strerror}"))
                continue
            self._sendings[message.place] = sending
            outputs.register(sending.output, select.EPOLLIN)

    def _reap(self, outputs: select.epoll) -> None:
        for place, sending in list(self._sendings.items()):
            result = sending.result(time.monotonic())
            if result is None:
                continue
            outputs.unregister(sending.output)
            assert sending.process.stdout is not None
            sending.process.stdout.close()
            del self._sendings[place]
            failpoint("notifier.after_send")
            self._record(sending.message, result)

    def _record(self, message: NotifyMessage, result: Result) -> None:
        now = time.time()
        with self._db.transaction():
            notify_outbox.forget_old(self._db, now)
            if result.error is None:
                notify_outbox.mark_sent(self._db, message.id, now)
                return
            again = None
            if not result.is_final:
                age = now - message.created_at
                again = next_try(message.tries + 1, age, self._first_pause)
            if again is not None:
                again += now
            notify_outbox.mark_failed(self._db, message.id, result.error, now, again)


def take_lock(folder: str) -> int:
    """Wait until no other notifier works on this queue: two would send a message twice."""
    path = os.path.join(folder, LOCK)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def main(words: list[str]) -> None:
    """`words`: the PID of the daemon; 0 if there is none."""
    parent = int(words[0])
    settings = load_settings()
    notifier = Notifier(settings, drains=not parent)
    signal.signal(signal.SIGTERM, notifier.stop)
    if parent:
        send_at_parent_death(signal.SIGTERM)
        if os.getppid() != parent:
            return
    take_lock(settings.state_dir)
    try:
        notifier.work()
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main(sys.argv[1:])
