"""The notice that a command started the background daemon."""

from __future__ import annotations

from collections.abc import Callable

from stoker.cli.output import notice
from stoker.client.queue import Queue
from stoker.engine.daemon.status import daemon_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Result = TypeVar("Result")

STARTED = "started the background daemon; stopping it does not stop your jobs"


def with_start_notice(queue: Queue, change: Callable[[], Result]) -> Result:
    """Return the result of `change`; print a notice if it started the daemon."""
    was_running = daemon_pid(queue.settings.state_dir) is not None
    result = change()
    if not was_running and daemon_pid(queue.settings.state_dir) is not None:
        notice(STARTED)
    return result
