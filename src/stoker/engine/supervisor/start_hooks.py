"""What features do at the start and the end of attempts: functions in the table `START_HOOKS`.

Their modules are imported when the first order asks for them. The row of a feature that was taken
out is missing: then an order that cannot do without it fails, any other starts without it.
"""

from __future__ import annotations

from stoker.features import START_HOOKS, load
from stoker.text.activation import is_in_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from stoker.engine.model import Context
    from stoker.engine.supervisor.running_attempt import RunningAttempt
    from stoker.engine.supervisor.spawn import Environment

    class Container(Protocol):
        """A container whose processes are not children of the attempt's first process."""

        is_gone: bool
        removal: int | None  # PID of the command that removes it
        gives_up_at: float | None  # until when that is waited for

        def remove(self, now: float) -> int | None: ...
        def removed(self, pid: int) -> None: ...
        def wait_for_removal(self, now: float) -> bool: ...
        def is_overdue(self, now: float) -> bool: ...
        def pause(self, *, is_over: bool) -> int | None: ...

    class WarmStarts(Protocol):
        """Starts by processes that exist before `begun`, and execute nothing before `confirm`."""

        def begin(
            self, attempt: RunningAttempt, context: Context, env: Environment
        ) -> str | None: ...
        def decided(self, now: float) -> list[tuple[int, int | None, str | None]]: ...
        def confirm(self, attempt: int) -> None: ...
        def cancel(self, attempt: int) -> None: ...
        def exited(self, attempt: int) -> tuple[str, ...]: ...
        def fileno(self) -> int: ...
        def next_deadline(self) -> float | None: ...
        def end_servers(self) -> None: ...
        def close(self) -> None: ...


def find_hook(name: str) -> Callable[..., Any] | None:
    """The function or class of a row; None if its feature was taken out."""
    return load(START_HOOKS[name]) if name in START_HOOKS else None


def container_of(words: tuple[str, ...], env: Environment, tag: int) -> Container | None:
    """The container of an attempt, or None if it ends with its processes.

    `words`: its activation; `env`: its environment, to find the program of the engine.
    """
    find = find_hook("container") if is_in_container(words) else None
    container: Container | None = None if find is None else find(words, env, tag)
    return container
