"""Say so when a command had to start the daemon: it stays behind."""

from __future__ import annotations

from collections.abc import Callable

from stoker.cli.output import tell
from stoker.client.queue import Queue
from stoker.daemon.status import daemon_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Result = TypeVar("Result")

STARTED = "started the background daemon; stopping it does not stop your jobs"


def telling(queue: Queue, change: Callable[[], Result]) -> Result:
    """Change something that needs a daemon, and tell when there was none before."""
    was_there = daemon_pid(queue.settings.state_dir) is not None
    result = change()
    if not was_there and daemon_pid(queue.settings.state_dir) is not None:
        tell(STARTED)
    return result
