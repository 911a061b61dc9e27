"""What the loop asks of servers through which jobs share a GPU, such as those of MPS.

The GPUs are named by UUID. Nothing here waits: a server that is being started closes its GPU until
`poll` says that it is ready or has failed, and then jobs share the GPU by time slices.
"""

from __future__ import annotations

from stoker.engine.model import MPS, Request
from stoker.record import Record


class ShareSession(Record):
    """What a job needs to use a server."""

    descriptor: int  # keeps the server running; the processes of the job inherit it
    env: dict[str, str]


class ShareServers:
    """The interface, for GPUs that have no servers."""

    def __init__(self, why: str) -> None:
        self._why = why

    def join(self, uuid: str, request: Request) -> ShareSession | None:
        """Let a job use the server of a GPU; None: see `is_starting` and `problem`."""
        return None

    def leave(self, uuid: str) -> None:
        """Jobs without the server use the GPU: stop it as soon as no job uses it."""

    def problem(self, uuid: str) -> str | None:
        """Why jobs cannot use a server on a GPU; None if they can, or if that is not known."""
        return self._why

    def failures(self) -> dict[str, str]:
        """The GPUs on which a server failed, and why."""
        return {}

    def is_starting(self, uuid: str) -> bool:
        return False

    def death_since(self, uuid: str, started: float) -> str | None:
        """How the server of a GPU broke since a job started there; None if it did not."""
        return None

    def poll(self, now: float) -> bool:
        """Look after the servers, in every tick; True if that may change a decision."""
        return False

    def next_deadline(self) -> float | None:
        return None

    def pids(self) -> set[int]:
        """Child processes of this process that are not jobs."""
        return set()

    def close(self) -> None:
        """Stop the servers; where jobs still use them, when they have ended."""


def find_servers(idle_seconds: float) -> ShareServers:
    """The servers of this host; one without jobs stops after `idle_seconds`."""
    from stoker.features import SHARE_SERVERS, load

    if MPS not in SHARE_SERVERS:
        return ShareServers("this installation of Stoker has no MPS")
    servers: ShareServers = load(SHARE_SERVERS[MPS])(idle_seconds)
    return servers
