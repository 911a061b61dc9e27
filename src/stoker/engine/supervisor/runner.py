"""The runner: parent of all detached jobs, so that they outlive the daemon.

It uses no database, devices or network. It takes orders from one daemon at a time, and reads all
orders of a dead daemon before it accepts the next one, so it is always known which orders were
executed. The journal is a write-ahead log: `begun` is written before the spawn, `ended` before the
message. While the disk cannot be written, no attempt starts, and ends are kept in memory (and
reported as running attempts) until they are in the journal.

If a daemon dies, the runner starts a new one, as the daemon does for the runner. It exits when it
has neither a daemon nor jobs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stoker.boot import boot_id
from stoker.engine.job_settings import settings_of
from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor.children import Children
from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.journal import Journal, JournalFull
from stoker.engine.supervisor.messages import AttemptStarted, Order, Refused
from stoker.engine.supervisor.restart_backoff import RestartBackoff
from stoker.engine.supervisor.sockets import listen
from stoker.engine.supervisor.spawn import Environment, close_all, encode_environment, set_deadline
from stoker.engine.supervisor.start_batching import StartBatch
from stoker.engine.supervisor.subreaper import become_subreaper
from stoker.engine.supervisor.wire import Wire, note
from stoker.fields import from_fields
from stoker.testing.failpoints import failpoint

SOCKET_NAME = "runner.sock"
_RETRY_SECONDS = 1.0
_ERROR_PAUSE_SECONDS = 0.05
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGTTOU)


class Runner:
    def __init__(
        self,
        folder: str,
        tag_base: int,
        log_limit: int,
        restart: list[str],
        daemon_socket: socket.socket,
    ) -> None:
        self._folder = folder
        self._restart = restart
        self._restarts = RestartBackoff()
        self._starts = StartBatch()
        self._is_released = False
        self._unknown: set[str] = set()  # unknown kinds of messages that were logged
        self._journal = Journal(folder)
        self._unrecorded: list[Outcome | Refused] = []  # ends that are not in the journal yet
        self._record_at: float | None = None  # when to try again (monotonic)
        self._has_journal_error = False  # as reported to the daemon
        self._cgroups = JobCgroups.create(folder, tag_base)
        self._children = Children(
            tag_base,
            log_limit,
            record_exit=self._journal.exited,
            cgroups=self._cgroups,
            record_begin=self._record_begin,
            has_only_jobs=True,
            empty_logs=EmptyLogs(),
        )
        self._has_servers = False  # whether epoll watches the fork servers
        self._contexts: dict[int, tuple[Context, Environment]] = {}
        self._boot = boot_id()
        self._listener = listen(folder, SOCKET_NAME)
        self._daemon: Wire | None = Wire(daemon_socket)
        self._poll = select.epoll()
        # A self-pipe: SIGCHLD wakes up epoll.
        self._wake, signal_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signal_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(self._wake, select.EPOLLIN)
        self._poll.register(daemon_socket.fileno(), select.EPOLLIN)

    def work(self) -> None:
        """Serve daemons and jobs until there are none and no daemon is expected."""
        while (
            self._daemon is not None
            or len(self._children)
            or self._unrecorded
            or self._restarts.due_at is not None
        ):
            try:
                self._wait()
                self._step()
            except OSError as error:  # e.g. a failing disk: the jobs still need a parent
                self._report(f"error in the runner; it continues: {error}")
                time.sleep(_ERROR_PAUSE_SECONDS)
        self._children.close()
        self._cgroups.close()

    def _step(self) -> None:
        ended = self._children.enforce_limits() if self._is_due() else self._children.reap()
        for event in self._children.starts.late_events():
            self._report_start(event)
        self._record(ended)
        now = time.monotonic()
        self._report_starts(self._starts.due(now))
        self._report_stuck()
        self._read_messages()
        if self._daemon is None:
            self._renew_socket()
        if self._restarts.is_due(time.monotonic()):
            self._restart_daemon()
        if self._daemon is not None and self._daemon.has_backlog:
            self._daemon.flush()

    def _wait(self) -> None:
        due = (
            self._children.next_deadline(),
            self._starts.due_at,
            self._restarts.due_at,
            self._record_at,
        )
        times = [at for at in due if at is not None]
        timeout = max(0.0, min(times) - time.monotonic()) if times else -1.0
        if self._daemon is not None:
            events = select.EPOLLIN | (select.EPOLLOUT if self._daemon.has_backlog else 0)
            self._poll.modify(self._daemon.fileno(), events)
        for descriptor, _ in self._poll.poll(timeout):
            if descriptor == self._wake:
                os.read(self._wake, 4096)
            elif descriptor == self._listener.fileno():
                self._accept()

    def _is_due(self) -> bool:
        deadline = self._children.next_deadline()
        return deadline is not None and deadline <= time.monotonic()

    def _renew_socket(self) -> None:
        """Listen again if the socket was removed; otherwise no daemon could connect."""
        if not os.path.exists(os.path.join(self._folder, SOCKET_NAME)):
            with suppress(OSError):  # the disk cannot be written; tried again in a moment
                renewed = listen(self._folder, SOCKET_NAME)
                self._poll.unregister(self._listener)
                self._listener.close()
                self._listener = renewed
                self._poll.register(self._listener, select.EPOLLIN)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()  # OSError: the next iteration tries again
        self._poll.unregister(self._listener)
        self._poll.register(connection.fileno(), select.EPOLLIN)
        self._daemon = Wire(connection)
        self._restarts.started(time.monotonic())
        self._is_released = False
        self._contexts.clear()

    def _read_messages(self) -> None:
        if self._daemon is None:
            return
        self._daemon.flush()
        messages, is_alive = self._daemon.receive()
        for kind, fields in messages:
            if kind == "launch":
                self._take_order(fields, self._daemon.take_descriptors(fields.get("leases", 0)))
                continue
            try:
                self._handle(self._daemon, kind, fields)
            except (ValueError, TypeError, KeyError) as error:
                note(f"ignoring an invalid message `{kind}` from the daemon: {error!r}")
        if not is_alive:
            self._poll.unregister(self._daemon.fileno())
            self._daemon.close()
            self._daemon = None
            self._poll.register(self._listener, select.EPOLLIN)
            if self._is_released:
                self._children.end_servers()
            else:
                self._restarts.died(time.monotonic())

    def _take_order(self, fields: dict[str, Any], lease: list[int]) -> None:
        """Launch, or refuse an order that this release cannot decode; the job then stays queued."""
        try:
            fields["argv"], fields["devices"] = tuple(fields["argv"]), tuple(fields["devices"])
            fields["settings"] = settings_of(fields.get("settings", {}))
            order = from_fields(Order, fields)
            known = self._contexts[order.context]
        except (ValueError, TypeError, KeyError) as error:
            close_all(lease)
            why = f"the runner cannot decode the order ({error!r})"
            note(why)
            self._send("refused", Refused(fields.get("attempt", 0), why)._asdict())
            return
        self._launch(order, known, lease)

    def _handle(self, daemon: Wire, kind: str, fields: dict[str, Any]) -> None:
        if kind == "context":
            env = tuple((key, value) for key, value in fields["env"])
            context = from_fields(Context, fields)._replace(env=env)
            if fields.get("forget_others"):  # it sends them again when it needs them
                self._contexts.clear()
            self._contexts[fields["id"]] = (context, encode_environment(env))
        elif kind == "stop":
            self._children.stop(fields["attempt"], fields["reason"], fields.get("grace"))
        elif kind == "pause":
            self._children.pause(fields["attempt"], float(fields["seconds"]))
        elif kind == "resume":
            self._children.resume(fields["attempt"])
        elif kind == "bye":
            self._is_released = True
        elif kind == "list":
            daemon.send(
                "living", {"attempts": self._live_attempts(), "segment": self._journal.segment}
            )
        elif kind not in self._unknown:
            self._unknown.add(kind)
            note(f"ignoring a message of unknown kind `{kind}` from the daemon")

    def _live_attempts(self) -> list[dict[str, Any]]:
        """Running attempts, and those whose end is not in the journal yet."""
        now = time.monotonic()
        waiting = [AttemptStarted(end.attempt, 0, 0.0, now) for end in self._unrecorded]
        return [started._asdict() for started in (*self._children.live_attempts(), *waiting)]

    def _restart_daemon(self) -> None:
        self._restarts.tried(time.monotonic())
        if not os.path.isdir(self._folder):  # the state folder was deleted
            self._restarts.cancel()
            return
        try:
            os.posix_spawn(self._restart[0], self._restart, os.environ, setsigdef=_IGNORED)
        except OSError:
            pass  # no memory or processes left; retried later

    def _launch(self, order: Order, known: tuple[Context, Environment], lease: list[int]) -> None:
        context, base = known
        env = base | encode_environment(order.env.items())
        set_deadline(env, order.time_limit)
        note = None
        if order.settings.warm is not None:
            note = self._children.starts.start_warm(order, context, env, lease)
            if note is None:
                self._watch_servers()
                failpoint("runner.after_warm_request")
                return
        failpoint("runner.before_begun")
        refusal = self._record_begin(order)
        if refusal is not None:
            close_all(lease)
            self._send("refused", Refused(order.attempt, refusal)._asdict())
            return
        failpoint("runner.after_begun")
        event = self._children.starts.start(order, context, env, lease, note)
        if event is not None:
            self._report_start(event)
        failpoint("runner.after_spawn")

    def _record_begin(self, order: Order) -> str | None:
        """Write `begun`; returns why the attempt may not start."""
        try:
            if self._journal.begun(order, time.time(), time.monotonic(), self._boot):
                # The daemon removes older segments, so it must know all of their content.
                self._report_starts(self._starts.all())
                self._children.record_exits_again()
                self._send("rolled", {"segment": self._journal.segment})
        except JournalFull as full:
            return str(full)
        return None

    def _watch_servers(self) -> None:
        warm = self._children.starts.warm
        if warm is not None and not self._has_servers:
            self._poll.register(warm.fileno(), select.EPOLLIN)
            self._has_servers = True

    def _report_start(self, event: AttemptStarted | Outcome | Refused) -> None:
        if isinstance(event, AttemptStarted):
            # At once: if the PID is not known after a crash, a process that the job started in its
            # own session could be taken for the first process of the job.
            started = self._children.with_start_time(event)
            with suppress(OSError):  # the disk cannot be written: the daemon gets the PID anyway
                self._journal.spawned(started)
            failpoint("runner.before_go")
            self._children.starts.confirm(started.attempt)
            failpoint("runner.after_go")
            self._starts.add(started)
        else:
            self._record([event])

    def _record(self, ends: Sequence[Outcome | Refused]) -> None:
        """Write ends to the journal, then send them; keep those that cannot be written."""
        now = time.monotonic()
        if not ends and (self._record_at is None or now < self._record_at):
            return
        if self._has_journal_error:
            failpoint("runner.before_late_record")
        self._unrecorded += ends
        recorded: list[Outcome | Refused] = []
        self._record_at = None
        try:
            for end in self._unrecorded:
                failpoint("runner.after_exit")
                self._journal.record(end)
                recorded.append(end)
        except OSError as error:
            self._record_at = now + _RETRY_SECONDS
            self._has_journal_error = True
            count = len(self._unrecorded) - len(recorded)
            self._report(
                f"the ends of {count} jobs cannot be recorded: {error.strerror};"
                " the runner keeps them in memory and retries"
            )
        del self._unrecorded[: len(recorded)]
        if self._has_journal_error and self._record_at is None:
            self._has_journal_error = False
            self._report("")
        self._report_starts(self._starts.take(e for e in recorded if isinstance(e, Outcome)))
        for end in recorded:
            failpoint("runner.after_ended")
            self._send("ended" if isinstance(end, Outcome) else "refused", end._asdict())

    def _report(self, problem: str) -> None:
        """Send a problem to the daemon; "" when it is over."""
        self._send("problem", {"text": problem})

    def _report_starts(self, starts: list[AttemptStarted]) -> None:
        for started in starts:
            self._send("begun", started._asdict())

    def _report_stuck(self) -> None:
        for stuck in self._children.stuck:
            self._send("stuck", stuck._asdict())
        self._children.stuck.clear()

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        if self._daemon is not None:
            self._daemon.put(kind, fields)


def main(arguments: list[str]) -> None:
    """runner.py FOLDER TAG LOG_LIMIT DESCRIPTOR LOCK RESTART...

    The descriptors are the first daemon's connection and the runner's lock, which that daemon took;
    the rest is the command that starts another daemon.
    """
    folder, tag_base, log_limit, descriptor, lock, *restart = arguments
    # A process group of its own, so that Ctrl-C does not reach it. Not setsid: while the runner
    # starts a job it has the job's tag, and if it died just then, it must not be taken for the
    # first process of the job, which is a session leader.
    os.setpgid(0, 0)
    os.umask(0o077)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(int(lock), False)
    become_subreaper()
    daemon_socket = socket.socket(fileno=int(descriptor))
    # If a job inherited the connection, the daemon would not notice the runner's death.
    daemon_socket.set_inheritable(False)
    try:
        runner = Runner(folder, int(tag_base), int(log_limit), restart, daemon_socket)
    except OSError as error:  # a full or read-only disk: the daemon retries later
        wire = Wire(daemon_socket)
        wire.send("problem", {"text": f"the runner cannot start: {error.strerror}"})
        raise SystemExit(1) from None
    runner.work()
    os.close(int(lock))


if __name__ == "__main__":
    main(sys.argv[1:])
