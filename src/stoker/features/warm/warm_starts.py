"""Warm starts of the parent of jobs, from the order with `--warm` to the exit of the process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from stoker.engine.model import Context
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.running_attempt import RunningAttempt
from stoker.engine.supervisor.spawn import (
    Environment,
    HostError,
    Spawner,
    StartFailed,
    StartReport,
    close_all,
)
from stoker.features.warm.fork_servers import (
    ForkServers,
    NotForked,
    WarmRequest,
    confirm,
    copy_descriptors,
    read_report,
)
from stoker.text.commands.python_command import parse_python, quoted_words

_POSIX_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SHELL_SETUP = (b"BASH_ENV", b"BASH_FUNC_", b"ENV")  # can redefine a command name


class WarmStarts(ForkServers):
    """The hook `WarmStarts` of start_hooks.py. `ignore`: called with each child that is no job."""

    def __init__(
        self, spawner: Spawner, cgroups: JobCgroups, ignore: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._spawner = spawner
        self._cgroups = cgroups
        self._ignore = ignore
        self._requests: dict[int, WarmRequest] = {}
        self._controls: dict[int, socket.socket] = {}  # to the first processes, until they exit

    def begin(self, attempt: RunningAttempt, context: Context, env: Environment) -> str | None:
        """Begin a start, or a comparison of its code; returns why it has to be cold."""
        order = attempt.order
        request = _request(order, context, env, attempt.tag)
        if isinstance(request, str):
            return request
        request = request._replace(cgroup=self._cgroups.prepare(order.attempt))
        if self._spawner.output_may_hang(order):
            return "its output is on a network file system"
        if order.code_check:  # before the start, in a process that may hang
            try:
                pid, pipe = self._spawner.fork_comparison(order)
            except (HostError, StartFailed) as error:
                return f"its code cannot be compared: {error}"
            self._ignore(pid)
            attempt.report = StartReport(pipe)
            return None
        files: list[int] = []
        try:
            files = self._spawner.open_files(order, context)
            files += copy_descriptors(attempt.lease)
        except (HostError, StartFailed, OSError):
            close_all(files)
            return "its output cannot be opened"  # a cold start fails in the same way
        why = self.start(request, files)
        if why is not None:
            close_all(files)
            return why
        self._requests[order.attempt] = request
        self._ignore_servers()
        return None

    def decided(self, now: float) -> list[tuple[int, int | None, str | None]]:
        """(attempt, PID, note) of each start that is decided; without a PID, it has to be cold."""
        decided: list[tuple[int, int | None, str | None]] = []
        for event in self.poll(now):
            if isinstance(event, NotForked):
                decided.append((event.attempt, None, event.why))
            else:
                self._controls[event.attempt] = event.control
                decided.append((event.attempt, event.pid, event.note))
        self._ignore_servers()
        return decided

    def confirm(self, attempt: int) -> None:
        """Let the first process of an attempt execute its program."""
        if attempt in self._controls:
            confirm(self._controls[attempt])

    def cancel(self, attempt: int) -> None:
        """Drop a start. A process that exists for it ends without executing anything."""
        super().cancel(attempt)
        self._forget(attempt)

    def exited(self, attempt: int) -> tuple[str, ...]:
        """The modules that the first process of an attempt imported; the next start has them."""
        control, request = self._controls.get(attempt), self._requests.get(attempt)
        modules = () if control is None else read_report(control)
        if modules and request is not None:
            self.learn(request, modules)
        self._forget(attempt)
        return modules

    def _forget(self, attempt: int) -> None:
        self._requests.pop(attempt, None)
        control = self._controls.pop(attempt, None)
        if control is not None:
            control.close()

    def _ignore_servers(self) -> None:
        for pid in self.started:
            self._ignore(pid)
        self.started.clear()


def _request(order: Order, context: Context, env: Environment, tag: int) -> WarmRequest | str:
    """The request for an order, or why it needs a cold start."""
    argv = order.argv
    if order.shell:
        words = None
        if os.path.basename(context.shell) in _POSIX_SHELLS:
            words = quoted_words(order.argv[0])
        if words is None or any(key.startswith(_SHELL_SETUP) for key in env):
            return "its command needs a shell"
        argv = words
    command = parse_python(argv)
    if isinstance(command, str):
        return command
    if order.settings.activation:
        from stoker.features.environments.activate import warm_environment

        found = warm_environment(order, env)
        if isinstance(found, str):
            return found
        env, folder = found
        if "/" not in command.python:
            command = command._replace(python=os.path.join(folder, command.python))
    named = _split(order.settings.warm or "")
    return WarmRequest(
        attempt=order.attempt,
        command=command,
        argv=argv,
        cwd=context.cwd,
        umask=context.umask,
        env=env,
        tag=tag,
        cpus=order.cpus,
        modules=named or _split(order.modules),
        is_named=bool(named),
        time_limit=order.time_limit,
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)
