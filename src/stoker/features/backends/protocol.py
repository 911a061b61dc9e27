"""The interface of a backend: what its driver needs of Slurm or Ray.

Every method that contacts the engine raises `Unreachable` if the engine does not answer; nothing is
known then, and nothing is changed. `submit` raises `Rejected` if the engine refuses the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from stoker.features.backends.nodes import Node
from stoker.features.backends.options import RAY, SLURM
from stoker.features.backends.store import BackendRow
from stoker.features.backends.store_allocations import Allocation
from stoker.record import Record
from stoker.settings import Settings

PENDING = "pending"
RUNNING = "running"
ENDED = "ended"
UNKNOWN = "unknown"  # the engine cannot say; nothing is changed
# An engine that can, sends SIGUSR2 to a worker this long before its allocation ends.
END_SIGNAL_SECONDS = 90


class Unreachable(Exception):
    """The engine does not answer. The text is shown to users."""


class Rejected(Exception):
    """The engine refused a request. `is_limit`: it may accept it when other jobs have ended."""

    def __init__(self, message: str, is_limit: bool = False) -> None:
        super().__init__(message)
        self.is_limit = is_limit


class AllocationRequest(Record):
    """What is requested for each allocation of a batch."""

    gpus: int
    nodes: int = 1
    seconds: float | None = None  # time limit; None: the default of the engine
    options: tuple[str, ...] = ()  # K=V, over the options of the backend
    model: str | None = None  # part of the name of the GPUs' model
    name: str = ""
    cpus: int = 0  # cores of each node; 0: the default of the engine
    memory: int | None = None  # bytes of each node; None: the default of the engine


class Batch(Record):
    """Allocations that are requested together. Task N has the folder `folder/N`."""

    token: str
    folder: str
    tasks: tuple[int, ...]
    request: AllocationRequest


class Status(Record):
    """An allocation as the engine reports it."""

    state: str  # pending, running, ended or unknown
    reason: str = ""  # in words of the engine: why it waits, or how it ended
    node: str = ""
    cause: str | None = None  # of jobs that it ended: time_limit, engine_cancel, host_oom, lost
    is_certain: bool = False  # its node reported the end: no process of it is left


class Limits(Record):
    """`tasks`: the most allocations in one batch; `allocations`: in all, at one time."""

    tasks: int
    allocations: int


class Backend(Protocol):
    name: str
    linger_seconds: float  # how long its driver waits for more jobs; 0: connecting costs little

    def nodes(self) -> list[Node]:
        """The nodes, with what is free on them."""

    def limits(self) -> Limits: ...

    def room(self, request: AllocationRequest, known: Sequence[Allocation]) -> int:
        """How many more allocations with this request the backend takes now.

        `known`: all allocations that have not ended.
        """

    def most_seconds(self, request: AllocationRequest) -> float | None:
        """The longest time limit that the engine allows for this request; None: any."""

    def poll_seconds(self) -> tuple[float, float]:
        """Seconds between two polls: after a change, and at most while nothing changes."""

    def submit(self, batch: Batch) -> dict[int, str]:
        """Request the allocations; returns their ids by task.

        Harmless to repeat: only one allocation becomes the owner of a chunk.
        """

    def adopt(self, token: str) -> dict[int, str]:
        """The ids of the allocations that were requested with this token, by task."""

    def poll(self, allocations: Iterable[Allocation]) -> dict[int, Status]:
        """The states of these allocations by their ids here; with one request to the engine.

        An allocation that the engine no longer knows is missing.
        """

    def cancel(self, allocations: Iterable[Allocation]) -> None:
        """End allocations. Allocations that have ended are ignored."""

    def worker_output(self, folder: str, task: int) -> str:
        """The last line that the worker of a task of this batch printed, or why there is none."""

    def close(self) -> None: ...


def open_backend(row: BackendRow, settings: Settings) -> Backend:
    """Return the backend. Its engine is contacted by its first method."""
    if row.kind == SLURM:
        from stoker.features.backends.slurm.slurm_backend import SlurmBackend

        return SlurmBackend(row.name, row.options, row.environment)
    if row.kind == RAY:
        from stoker.features.backends.ray.ray_backend import RayBackend

        return RayBackend(row.name, row.options, row.environment, row.folder or settings.state_dir)
    raise NotImplementedError(row.kind)
