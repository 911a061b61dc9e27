"""MPS as the loop uses it: jobs join it once its monitor reports that it is ready.

engine/daemon/gpus/share_servers.py has what the loop asks. After a failure, MPS is tried again
after some minutes.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from stoker.engine.daemon.gpus.share_servers import ShareServers, ShareSession
from stoker.engine.model import Request
from stoker.engine.policy.share_mode import thread_percentage
from stoker.errors import Error
from stoker.features.mps.mps_folder import (
    FAILED,
    READY,
    STARTING,
    MpsFolder,
    MpsState,
    base_folder,
    is_alive,
    recorded_states,
)
from stoker.features.mps.mps_program import START_SECONDS, why_missing
from stoker.record import Record

_POLL_SECONDS = 0.03
_WATCH_SECONDS = 5.0
# The monitor has its own limits; this one is for a monitor that hangs.
_MONITOR_SECONDS = 3 * START_SECONDS
_RETRY_SECONDS = 300.0


class _Problem(Record):
    why: str
    until: float  # monotonic


class MpsServers(ShareServers):
    """MPS on the GPUs of one loop, by UUID."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        # An earlier daemon may have left MPS to this one.
        self._is_used = os.path.isdir(base_folder())
        self._starting: dict[str, float] = {}  # when that fails (monotonic)
        self._problems: dict[str, _Problem] = {}
        self._joined: set[str] = set()  # GPUs whose MPS a job of this loop used
        self._monitors: dict[int, str] = {}  # GPUs of child processes, by PID
        self._poll_at = 0.0
        self._watch_at = 0.0

    def problem(self, uuid: str) -> str | None:
        known = self._problems.get(uuid)
        return None if known is None else known.why

    def failures(self) -> dict[str, str]:
        return {uuid: problem.why for uuid, problem in self._problems.items()}

    def is_starting(self, uuid: str) -> bool:
        return uuid in self._starting

    def join(self, uuid: str, request: Request) -> ShareSession | None:
        self._is_used = True
        folder = MpsFolder(uuid)
        try:
            if (why := why_missing()) is not None:
                self._fail(uuid, why)
                return None
            folder.prepare()
            has_monitor = folder.has_monitor()
            state = folder.read()
            if has_monitor and state is not None and state.state == READY:
                held = folder.join()
                if held is not None:
                    self._joined.add(uuid)
                    return ShareSession(held, job_variables(folder, request))
            if not has_monitor:
                # Another queue of this user may have tried it.
                if state is not None and state.state == FAILED and _is_recent(state.at):
                    self._fail(uuid, state.reason or "it does not start")
                    return None
                self._spawn(uuid)
        except (Error, OSError) as error:
            why = error.message if isinstance(error, Error) else str(error.strerror)
            self._fail(uuid, why)
            return None
        self._starting.setdefault(uuid, time.monotonic() + _MONITOR_SECONDS)
        return None

    def leave(self, uuid: str) -> None:
        if uuid in self._joined:
            self._joined.discard(uuid)
            _stop_monitor(uuid)

    def poll(self, now: float) -> bool:
        if not self._is_used:
            return False
        if now >= self._watch_at:
            self._watch_at = now + _WATCH_SECONDS
            self._watch()
        has_changed = self._forget_old_problems(now)
        if now < self._poll_at or not self._starting:
            return has_changed
        self._poll_at = now + _POLL_SECONDS
        self._reap()
        for uuid, deadline in list(self._starting.items()):
            folder = MpsFolder(uuid)
            state, has_monitor = folder.read(), folder.has_monitor()
            if state is not None and state.state == FAILED and not has_monitor:
                self._fail(uuid, state.reason or "it does not start")
            elif now > deadline:
                self._fail(uuid, f"it did not start within {_MONITOR_SECONDS:.0f} seconds")
            elif state is None or state.state != READY or not has_monitor:
                if has_monitor or (state is not None and state.state == STARTING):
                    continue
                if uuid in self._monitors.values():  # it has not taken its lock yet
                    continue
                del self._starting[uuid]  # join tries again
            else:
                del self._starting[uuid]
            has_changed = True
        return has_changed

    def next_deadline(self) -> float | None:
        times = [problem.until for problem in self._problems.values()]
        if self._starting:
            times.append(self._poll_at)
        if self._joined:
            times.append(self._watch_at)
        return min(times, default=None)

    def pids(self) -> set[int]:
        return set(self._monitors)

    def close(self) -> None:
        for state in recorded_states() if self._is_used else ():
            if state.state in (READY, STARTING):
                _stop_monitor(state.uuid)

    def death_since(self, uuid: str, started: float) -> str | None:
        state = MpsFolder(uuid).read()
        if state is None:
            return None
        # The monitor may not have noticed it yet.
        has_died = state.state == READY and not (is_alive(state.server) and is_alive(state.control))
        if has_died or (state.died_at is not None and state.died_at >= started):
            return "the MPS server of its GPU died while it ran"
        return None

    def _fail(self, uuid: str, why: str) -> None:
        self._starting.pop(uuid, None)
        self._problems[uuid] = _Problem(why, time.monotonic() + _RETRY_SECONDS)

    def _forget_old_problems(self, now: float) -> bool:
        old = [uuid for uuid, problem in self._problems.items() if now >= problem.until]
        for uuid in old:
            del self._problems[uuid]
        return bool(old)

    def _watch(self) -> None:
        """Start monitors for control daemons whose monitor was killed, also before our start."""
        self._reap()
        for state in recorded_states():
            if _may_run(state) and state.uuid not in self._starting:
                folder = MpsFolder(state.uuid)
                try:
                    # If a monitor ended between the two, it has recorded that it stopped.
                    if not folder.has_monitor() and _may_run(folder.read()):
                        self._spawn(state.uuid)
                except OSError:
                    pass  # tried again soon

    def _spawn(self, uuid: str) -> None:
        env = dict(os.environ)
        env.pop("STOKER_PROCESS_TAGS", None)  # started by a job, it does not belong to that job
        module = "stoker.features.mps.monitor_process"
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", module, uuid, str(self._idle_seconds)],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD],
        )
        self._monitors[pid] = uuid

    def _reap(self) -> None:
        for pid in list(self._monitors):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self._monitors.pop(pid, None)
            except ChildProcessError:  # reaped together with orphans of jobs
                self._monitors.pop(pid, None)


def _may_run(state: MpsState | None) -> bool:
    """Whether processes of MPS may run, according to what their monitor recorded."""
    if state is None:
        return False
    is_ready = state.state == READY and (is_alive(state.control) or is_alive(state.server))
    return is_ready or state.state == STARTING


def _is_recent(at: float) -> bool:
    return 0 <= time.time() - at < _RETRY_SECONDS


def _stop_monitor(uuid: str) -> None:
    """Ask the monitor of a GPU to stop MPS as soon as no job uses it."""
    folder = MpsFolder(uuid)
    try:
        state = folder.read()
        if state is not None and state.monitor and folder.has_monitor():
            os.kill(state.monitor, signal.SIGTERM)
    except OSError:
        pass


def job_variables(folder: MpsFolder, request: Request) -> dict[str, str]:
    """The variables of a job under MPS.

    The GPU is named by its UUID: an index would be counted among the GPUs of the control daemon,
    or, if the control daemon is dead, among those of the host.
    """
    env = {
        "CUDA_VISIBLE_DEVICES": folder.uuid,
        "CUDA_MPS_PIPE_DIRECTORY": folder.pipe,
        "CUDA_MPS_LOG_DIRECTORY": folder.log,
    }
    if request.memory is not None and not request.is_auto:  # an estimate must not stop a job
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={max(1, -(-request.memory >> 20))}M"
    percent = thread_percentage(request.share)
    if percent is not None:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
    return env
