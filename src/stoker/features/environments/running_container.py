"""The container of a running attempt, which has to be removed when its first process is killed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.features.environments.container_engines import (
    find_engine,
    find_program,
    is_detached,
    pause_words,
    remove_words,
    start_helper,
)
from stoker.text.activation import DOCKER, parse_activation

# How long the end of a job waits for an engine that does not answer.
_REMOVAL_SECONDS = 60.0


class RunningContainer:
    """A container of docker or podman: its processes are not children of the job's process.

    The process of the engine passes signals on to the container, and exits after it. If it was
    killed, the container is removed by its name, and only then has the attempt ended.
    """

    __slots__ = ("_env", "_program", "_tag", "engine", "gives_up_at", "is_gone", "removal")

    def __init__(self, engine: str, program: str, tag: int, env: Mapping[bytes, bytes]) -> None:
        self.engine = engine
        self._program = program
        self._tag = tag
        self._env = env  # it selects the daemon of docker: DOCKER_HOST, DOCKER_CONTEXT
        self.removal: int | None = None  # PID of the command that removes it
        self.gives_up_at: float | None = None
        self.is_gone = False

    def remove(self, now: float) -> int | None:
        """Start to kill and remove it; returns the PID of that command, which has to be reaped."""
        self.gives_up_at = now + _REMOVAL_SECONDS
        self.removal = start_helper(remove_words(self._program, self._tag), self._env)
        self.is_gone = self.removal is None
        return self.removal

    def removed(self, pid: int) -> None:
        """A child has exited; if it was the command that removes this container, it is gone."""
        if pid == self.removal:
            self.is_gone = True

    def wait_for_removal(self, now: float) -> bool:
        """Remove it, or check whether that is done, for a caller that does not reap all children.

        Returns whether the container is gone.
        """
        if self.removal is None and not self.is_gone:
            self.remove(now)
        if self.removal is not None and not self.is_gone:
            try:
                self.removed(os.waitpid(self.removal, os.WNOHANG)[0])
            except ChildProcessError:
                self.is_gone = True
        return self.is_gone or self.is_overdue(now)

    def is_overdue(self, now: float) -> bool:
        """Whether the engine did not answer in time."""
        return self.gives_up_at is not None and now >= self.gives_up_at

    def pause(self, *, is_over: bool) -> int | None:
        """Pause or continue a container of docker; returns the PID of that command.

        The processes of other engines are found and stopped like those of any job.
        """
        if self.engine != DOCKER:
            return None
        return start_helper(pause_words(self._program, self._tag, is_over=is_over), self._env)


def container_of(
    words: tuple[str, ...], env: Mapping[bytes, bytes], tag: int
) -> RunningContainer | None:
    """The container of an attempt, or None if it ends with its processes.

    `words`: its activation; `env`: its environment, to find the program of the engine.
    """
    activation = parse_activation(words)
    if not activation.container:
        return None
    path = os.fsdecode(env.get(b"PATH", b"")) or None
    engine = activation.engine or find_engine(path)
    program = find_program(engine, path) if engine is not None and is_detached(engine) else None
    if engine is None or program is None:
        return None
    return RunningContainer(engine, program, tag, env)
