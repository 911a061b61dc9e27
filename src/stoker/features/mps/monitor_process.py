"""The monitor: starts the MPS control daemon of one GPU, watches it, and stops it when it is idle.

    python -m stoker.features.mps.monitor_process UUID IDLE_SECONDS

It belongs to no daemon, because jobs under MPS outlive the daemon that started them: a daemon that
starts finds it by its lock. It exits when no job used MPS for IDLE_SECONDS, or, after SIGTERM, as
soon as no job uses it. A monitor that was killed leaves its control daemon to the next monitor.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from stoker.engine.supervisor import process_tags
from stoker.errors import Error
from stoker.features.mps.mps_control import MpsControl, MpsError
from stoker.features.mps.mps_folder import (
    FAILED,
    READY,
    STARTING,
    STOPPED,
    MpsFolder,
    MpsState,
    is_alive,
)

_LOCK_SECONDS = 1.0  # other processes hold the lock for an instant, to see whether it is free
_CHECK_SECONDS = 0.5
_SERVER_CHECK_SECONDS = 5.0
# A control daemon or server that dies this often within the time is not started again.
_MAX_DEATHS = 5
_DEATH_SECONDS = 300.0


class Monitor:
    def __init__(self, folder: MpsFolder, idle_seconds: float) -> None:
        self._folder = folder
        self._control = MpsControl(folder)
        self._idle_seconds = idle_seconds
        self._is_stopping = False
        self._handles: list[int] = []  # pidfds of the control daemon and its server
        self._deaths: list[float] = []  # monotonic
        earlier = folder.read()
        has_died = earlier is not None and earlier.state == READY and not _is_whole(earlier)
        self._state = MpsState(
            uuid=folder.uuid,
            state=STARTING,
            at=time.time(),
            monitor=os.getpid(),
            died_at=time.time() if has_died else None if earlier is None else earlier.died_at,
            deaths=0 if earlier is None else earlier.deaths + has_died,
        )
        self._signal_pipe, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, *_: object) -> None:
        self._is_stopping = True

    def work(self) -> None:
        """Keep MPS running until it is idle, or until it fails."""
        self._save()
        try:
            self._start()
            self._watch()
        except MpsError as error:
            self._control.end()
            self._save(state=FAILED, reason=str(error), control=0, server=0)

    def _start(self) -> None:
        """Adopt the control daemon of an earlier monitor, or start one. Raises MpsError."""
        if self._control.control_pid():
            try:
                self._control.start_server()
                self._ready()
                return
            except MpsError:
                pass  # it does not answer: end it, and start another one
        if not self._is_used():  # servers that lost their control daemon serve no new clients
            self._control.end()
        self._control.start()
        self._ready()

    def _ready(self) -> None:
        control, servers = self._control.control_pid(), self._control.servers()
        if not control or not servers:
            raise MpsError("its processes exited after their start")
        self._save(state=READY, reason=None, control=control, server=servers[0])
        self._close_handles()
        for pid in (control, servers[0]):
            try:
                self._handles.append(os.pidfd_open(pid))
            except ProcessLookupError:
                pass  # noticed in the next check

    def _watch(self) -> None:
        idle_since = time.monotonic()
        server_check_at = 0.0
        while True:
            watched = [self._signal_pipe, *self._handles]
            readable = select.select(watched, [], [], min(_CHECK_SECONDS, self._idle_seconds))[0]
            if self._signal_pipe in readable:
                os.read(self._signal_pipe, 4096)
            now = time.monotonic()
            if not _is_whole(self._state):
                self._restart()
            elif now >= server_check_at:
                server_check_at = now + _SERVER_CHECK_SECONDS
                self._follow_server()
            if self._is_used():
                idle_since = now
            elif self._is_stopping or now - idle_since >= self._idle_seconds:
                if self._stop_if_unused():
                    return
                idle_since = now

    def _restart(self) -> None:
        """Start again what died. Raises MpsError if it dies again and again."""
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < _DEATH_SECONDS]
        if self._is_used():  # an idle server may have ended by itself
            self._deaths.append(now)
        self._save(state=STARTING, died_at=time.time(), deaths=self._state.deaths + 1)
        if len(self._deaths) > _MAX_DEATHS:
            raise MpsError(f"its processes died {len(self._deaths)} times in a short time")
        self._start()

    def _follow_server(self) -> None:
        """The control daemon may have replaced the server itself."""
        try:
            servers = self._control.servers()
        except MpsError:
            return
        if servers and self._state.server not in servers:
            self._ready()

    def _is_used(self) -> bool:
        held = self._folder.close_to_jobs()
        if held is None:
            return True
        os.close(held)
        return False

    def _stop_if_unused(self) -> bool:
        """Stop MPS, unless a job uses it or another program of this user is its client."""
        held = self._folder.close_to_jobs()
        if held is None:
            return False
        try:
            try:
                if self._control.clients():
                    return False
            except MpsError:
                pass  # it is broken
            self._control.quit()
            self._save(state=STOPPED, control=0, server=0)
            return True
        finally:
            os.close(held)

    def _close_handles(self) -> None:
        while self._handles:
            os.close(self._handles.pop())

    def _save(self, **changes: object) -> None:
        self._state = self._state._replace(at=time.time(), **changes)  # type: ignore[arg-type]
        try:
            self._folder.write(self._state)
        except OSError:
            pass  # a full disk: the old state stays


def _is_whole(state: MpsState) -> bool:
    return is_alive(state.control) and is_alive(state.server)


def main() -> None:
    """Keep MPS on one GPU, unless another monitor does."""
    uuid, idle_seconds = sys.argv[1], float(sys.argv[2])
    os.umask(0o077)
    os.chdir("/")
    process_tags.detach()  # neither it nor MPS belongs to a job
    folder = MpsFolder(uuid)
    try:
        folder.prepare()
        deadline = time.monotonic() + _LOCK_SECONDS
        while (lock := folder.take_monitor_lock()) is None:
            if time.monotonic() > deadline:
                return  # another monitor
            time.sleep(0.01)
    except (Error, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    Monitor(folder, idle_seconds).work()
    os.close(lock)


if __name__ == "__main__":
    main()
