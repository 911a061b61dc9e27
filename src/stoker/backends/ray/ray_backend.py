"""The Ray backend: places allocations on nodes, through one actor on each node (node_actor.py).

Ray has no queue of its own for us: an allocation waits here until a node has enough free GPUs, and
`poll` places those that wait. Where an allocation was placed is in the file `placed` in the folder
of its chunk, written before the worker is started. So a driver that starts later finds out whether
a worker may have run: an allocation whose actor is gone is lost, and is never started twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterable, Sequence

from stoker.backends import chunk_files
from stoker.backends.protocol import (
    ENDED,
    PENDING,
    RUNNING,
    AllocationRequest,
    Batch,
    Limits,
    Status,
)
from stoker.backends.ray.client_process import DEAD, OK
from stoker.backends.ray.connection import RayConnection
from stoker.backends.ray.placement import Place, choose, reserve_for, waiting_words
from stoker.core.backends.nodes import DOWN, UP, Node
from stoker.core.fields import from_fields
from stoker.core.record import Record
from stoker.store.allocations import Allocation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PLACED = "placed"  # a file in the folder of a chunk
_IDLE_SECONDS = 60.0
_STATUS_SECONDS = 5.0  # an actor that does not answer for this long is late
_START_SECONDS = 0.3  # actors that were just created are asked again in the next poll
_CREATE_SECONDS = 30.0  # after this long, other Ray users have taken the GPUs of a new actor
_PATIENCE_SECONDS = 60.0  # an allocation that waits for longer has nodes reserved for it
_AVOID_SECONDS = 60.0  # no further worker on a node where one could not start
_POLL_SECONDS = 1.0
_BUSY_POLL_SECONDS = 0.3  # while actors start
_BATCH = 1000


class _Rank(Record):
    """One node of an allocation."""

    node: str
    name: str
    actor: str


class _Actor:
    """The actor of a node, as last seen."""

    def __init__(self, id: str, since: float) -> None:
        self.id = id
        self.since = since
        self.is_ready = False  # it has answered
        self.is_late = False
        self.gpus = 0  # that it was created with, until it is ready
        self.status: dict[str, Any] = {}

    @property
    def allocations(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.status.get("allocations", {})
        return found


class RayBackend:
    linger_seconds = 30.0  # to import Ray and to connect takes a second or more

    def __init__(
        self, name: str, options: dict[str, str], environment: dict[str, str], files: str
    ) -> None:
        """`files`: the folder with chunks, logs and outputs of jobs."""
        self.name = name
        self._options = options
        self._files = files
        self._batches = os.path.join(files, "batches")
        self._tag = _tag(files, name)
        self._ray = RayConnection(
            options.get("address") or environment.get("RAY_ADDRESS", "auto"),
            environment,
            options.get("token-file"),
        )
        self._actors: dict[str, _Actor] = {}  # by node
        self._nodes: dict[str, dict[str, Any]] = {}
        self._placed: dict[int, tuple[_Rank, ...]] = {}  # by allocation
        self._cancelled: set[int] = set()
        self._avoided: dict[str, tuple[float, str]] = {}  # nodes: until when, and why
        self._is_busy = False

    # -- capacity --------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        self._load_nodes()
        found: dict[str, Node] = {}
        for node in sorted(self._nodes.values(), key=lambda one: not one["is_alive"]):
            name = self._node_name(node["id"])
            if name not in found:
                found[name] = Node(
                    name=name,
                    gpus=node["gpus"],
                    used_gpus=node["gpus"] - node["free_gpus"] if node["is_alive"] else 0,
                    state=UP if node["is_alive"] else DOWN,
                    model=node["model"],
                    cpus=node["cpus"],
                    note="" if node["is_alive"] else "dead",
                )
        return sorted(found.values(), key=lambda one: one.name)

    def _load_nodes(self) -> None:
        self._nodes = {one["id"]: one for one in self._ray.call("nodes")}

    def _node_name(self, id: str) -> str:
        """The host name; with the address if several living nodes have the same."""
        node = self._nodes[id]
        alike = [
            one for one in self._nodes.values() if one["host"] == node["host"] and one["is_alive"]
        ]
        return f"{node['host']}/{node['address']}" if len(alike) > 1 else str(node["host"])

    def limits(self) -> Limits:
        return Limits(tasks=_BATCH, allocations=_BATCH)

    def room(self, request: AllocationRequest, known: Sequence[Allocation]) -> int:
        """As many as can run at a time may wait: the others stay in the queue, which has an order
        of priority."""
        up = [node for node in self._nodes.values() if node["is_alive"]]
        slots: int = sum(
            node["gpus"] // request.gpus if request.gpus else node["cpus"] for node in up
        ) // max(1, request.nodes)  # fmt: skip
        kind = (request.gpus, request.nodes)
        alike = [one for one in known if (one.request["gpus"], one.request["nodes"]) == kind]
        return max(0, 2 * max(1, slots) - len(alike))

    def poll_seconds(self) -> tuple[float, float]:
        first = _BUSY_POLL_SECONDS if self._is_busy else _POLL_SECONDS
        return first, first

    # -- submit and adopt ------------------------------------------------------------------------

    def submit(self, batch: Batch) -> dict[int, str]:
        return {task: f"{batch.token}/{task}" for task in batch.tasks}

    def adopt(self, token: str) -> dict[int, str]:
        try:
            tasks = [int(name) for name in os.listdir(self._path(token)) if name.isdigit()]
        except OSError:
            return {}
        return {task: f"{token}/{task}" for task in tasks}

    def _path(self, *words: str) -> str:
        return os.path.join(self._batches, *words)

    def _chunk(self, one: Allocation) -> str:
        return self._path(one.token, str(one.task))

    # -- poll ------------------------------------------------------------------------------------

    def poll(self, allocations: Iterable[Allocation]) -> dict[int, Status]:
        known = list(allocations)
        self._load_nodes()
        self._ask_actors(known)
        found: dict[int, Status] = {}
        waiting = []
        for one in known:
            ranks = self._ranks(one)
            if ranks:
                found[one.id] = self._status(one, ranks)
            elif one.id in self._cancelled:
                found[one.id] = Status(state=ENDED, reason="cancelled", cause="engine_cancel")
            else:
                waiting.append(one)
        found.update(self._place(waiting, known))
        self._forget(known)
        return found

    def _ranks(self, one: Allocation) -> tuple[_Rank, ...]:
        """Where an allocation was placed; empty if it waits."""
        if one.id not in self._placed:
            try:
                with open(os.path.join(self._chunk(one), _PLACED), encoding="utf-8") as file:
                    stored = json.load(file)
            except FileNotFoundError:
                return ()
            self._placed[one.id] = tuple(from_fields(_Rank, rank) for rank in stored)
        return self._placed[one.id]

    def _status(self, one: Allocation, ranks: tuple[_Rank, ...]) -> Status:
        rank = ranks[0]
        actor = self._actors.get(rank.node)
        if actor is None or actor.id != rank.actor:
            is_alive = self._is_alive(rank.node)
            words = "the Stoker actor on its node ended" if is_alive else "its node failed"
            return Status(state=ENDED, reason=words, node=rank.name, cause="lost")
        if not actor.is_ready or actor.is_late:
            return Status(state=RUNNING, reason="its node does not answer", node=rank.name)
        info = actor.allocations.get(_id(one))
        if info is None:  # the request to start it did not arrive
            self._start([(one, ranks)])
            return Status(state=PENDING, reason=f"starts on {rank.name}", node=rank.name)
        if info["is_running"]:
            return Status(state=RUNNING, node=rank.name)
        return self._ended(one, rank, info)

    def _ended(self, one: Allocation, rank: _Rank, info: dict[str, Any]) -> Status:
        if one.id in self._cancelled:
            return Status(state=ENDED, reason="cancelled", node=rank.name, cause="engine_cancel")
        code, why = info["code"], info["why"]
        if code == 0:
            return Status(state=ENDED, reason="completed", node=rank.name, cause="lost")
        how = f"was killed by signal {-code}" if code and code < 0 else "failed"
        words = f"its worker {how}{f': {why}' if why else ''}"
        if not os.path.exists(os.path.join(self._chunk(one), chunk_files.OWNER)):
            # Its jobs return to the queue; they must not come back here at once.
            self._avoided[rank.node] = (time.monotonic() + _AVOID_SECONDS, words)
        return Status(state=ENDED, reason=words, node=rank.name, cause="lost")

    def _is_alive(self, node: str) -> bool:
        return node in self._nodes and bool(self._nodes[node]["is_alive"])

    # -- actors ----------------------------------------------------------------------------------

    def _actor_name(self, node: str) -> str:
        return f"stoker-{self._tag}-{node[:20]}"

    def _ask_actors(self, known: list[Allocation]) -> None:
        """Find the actors of this queue, and what they do."""
        now = time.monotonic()
        ids = self._ray.call("actors", f"stoker-{self._tag}-")
        for node in self._nodes:
            id = ids.get(self._actor_name(node))
            if id is None or not self._is_alive(node):
                self._actors.pop(node, None)
            elif node not in self._actors or self._actors[node].id != id:
                self._actors[node] = _Actor(id, now)
        self._actors = {node: one for node, one in self._actors.items() if node in self._nodes}
        self._ask_new(known, now)
        ready = [node for node, actor in self._actors.items() if actor.is_ready]
        calls = [(self._actors[node].id, "status", ()) for node in ready]
        for node, (outcome, value) in zip(ready, self._call(calls), strict=True):
            actor = self._actors[node]
            actor.is_late = outcome != OK
            if outcome == OK:
                actor.status = value
            elif outcome == DEAD:
                del self._actors[node]
        self._is_busy = any(not one.is_ready for one in self._actors.values()) or any(
            one.status.get("growing") for one in self._actors.values()
        )

    def _ask_new(self, known: list[Allocation], now: float) -> None:
        """Prepare actors that have just been created or found."""
        new = [node for node, actor in self._actors.items() if not actor.is_ready]
        calls = [(self._actors[node].id, "prepare", ()) for node in new]
        for node, (outcome, _) in zip(new, self._call(calls, _START_SECONDS), strict=True):
            actor = self._actors[node]
            actor.is_ready = outcome == OK
            if outcome == DEAD:
                del self._actors[node]
            elif not actor.is_ready and now - actor.since > _CREATE_SECONDS:
                used = {rank.actor for one in known for rank in self._ranks(one)}
                if actor.id not in used:
                    self._ray.call("kill", actor.id)
                    del self._actors[node]

    def _call(
        self, calls: list[tuple[str, str, tuple[Any, ...]]], seconds: float = _STATUS_SECONDS
    ) -> list[tuple[str, Any]]:
        if not calls:
            return []
        found: list[tuple[str, Any]] = self._ray.call("call", calls, seconds)
        return found

    def _create(self, node: str, gpus: int) -> None:
        config = {
            "tag": self._tag,
            "idle": float(self._options.get("idle") or _IDLE_SECONDS),
            "python": self._options.get("python"),
            "folder": self._options.get("node-folder"),
            "version": chunk_files.VERSION,
        }
        id = self._ray.call("create", self._actor_name(node), node, gpus, config)
        actor = self._actors[node] = _Actor(id, time.monotonic())
        actor.gpus = gpus

    # -- place -----------------------------------------------------------------------------------

    def _place(self, waiting: list[Allocation], known: list[Allocation]) -> dict[int, Status]:
        """Start what fits, in order; request GPUs from Ray for the rest."""
        if not waiting:
            return {}
        places, problems = self._places(known)
        found = {}
        starts = []
        for one in sorted(waiting, key=lambda one: one.id):
            request = from_fields(AllocationRequest, one.request)
            chosen = choose(places, request.gpus, request.nodes, request.model)
            if chosen is None:
                if time.time() - one.created_at > _PATIENCE_SECONDS:
                    reserve_for(places, request.gpus, request.nodes, request.model)
                words = waiting_words(request.gpus, request.nodes, request.model)
                if problems:
                    words += f" ({'; '.join(problems)})"
                found[one.id] = Status(state=PENDING, reason=words)
                continue
            is_held = [place.take(request.gpus) for place in chosen]
            names = ", ".join(self._node_name(place.node) for place in chosen)
            if all(is_held):
                starts.append((one, tuple(self._rank(place.node) for place in chosen)))
            found[one.id] = Status(state=PENDING, reason=f"starts on {names}")
        self._request_gpus(places)
        self._start(starts)
        return found

    def _rank(self, node: str) -> _Rank:
        return _Rank(node=node, name=self._node_name(node), actor=self._actors[node].id)

    def _places(self, known: list[Allocation]) -> tuple[list[Place], list[str]]:
        """What is free on the nodes, and why some nodes cannot be used."""
        now = time.monotonic()
        users: dict[str, int] = {}  # jobs without a GPU, by node
        for one in known:
            if not one.request["gpus"]:
                for rank in self._ranks(one):
                    users[rank.node] = users.get(rank.node, 0) + 1
        places, problems = [], []
        for id, node in self._nodes.items():
            if not node["is_alive"]:
                continue
            actor = self._actors.get(id)
            until, why = self._avoided.get(id, (0.0, ""))
            problem = why if now < until else actor.status.get("problem") if actor else None
            if problem:
                problems.append(f"{self._node_name(id)}: {problem}")
                continue
            if actor is not None and actor.is_late:
                continue
            is_ready = actor is not None and actor.is_ready
            coming = 0 if actor is None else actor.status["growing"] if is_ready else actor.gpus
            places.append(Place(
                id,
                gpus=node["gpus"],
                free=actor.status["free"] if actor and is_ready else 0,
                coming=coming,
                in_ray=max(0, node["free_gpus"] - coming),
                cpus=node["cpus"] - users.get(id, 0),
                model=node["model"],
                has_actor=is_ready,
            ))  # fmt: skip
        return places, problems

    def _request_gpus(self, places: list[Place]) -> None:
        """Create actors where there is work for them, and let others request more GPUs."""
        calls: list[tuple[str, str, tuple[Any, ...]]] = []
        for place in places:
            actor = self._actors.get(place.node)
            if actor is None:
                if place.is_chosen:
                    self._create(place.node, place.wanted)
                    self._is_busy = True
            elif place.wanted and actor.is_ready:
                calls.append((actor.id, "grow", (place.wanted,)))
                self._is_busy = True
        self._call(calls)

    def _start(self, starts: list[tuple[Allocation, tuple[_Rank, ...]]]) -> None:
        """Record where allocations run, and start their workers."""
        calls: list[tuple[str, str, tuple[Any, ...]]] = []
        for one, ranks in starts:
            chunk = self._chunk(one)
            chunk_files.write_whole(
                os.path.join(chunk, _PLACED), json.dumps([rank._asdict() for rank in ranks])
            )
            self._placed[one.id] = ranks
            for rank in ranks:
                identity = f"{rank.actor[:12]}-{one.task}"
                calls.append((
                    rank.actor, "start",
                    (_id(one), chunk, one.request["gpus"], rank.name, identity),
                ))  # fmt: skip
        self._call(calls)

    # -- the end ---------------------------------------------------------------------------------

    def _forget(self, known: list[Allocation]) -> None:
        """Let actors forget allocations that have ended for the driver."""
        wanted = {_id(one) for one in known}
        calls: list[tuple[str, str, tuple[Any, ...]]] = []
        for actor in self._actors.values():
            gone = [
                id for id in actor.allocations
                if id not in wanted and chunk_files.is_revoked(self._path(id))
            ]  # fmt: skip
            if gone:
                calls.append((actor.id, "forget", (gone,)))
        self._call(calls)
        ids = {one.id for one in known}
        self._cancelled &= ids
        self._placed = {id: ranks for id, ranks in self._placed.items() if id in ids}

    def cancel(self, allocations: Iterable[Allocation]) -> None:
        calls: list[tuple[str, str, tuple[Any, ...]]] = []
        for one in allocations:
            self._cancelled.add(one.id)
            calls += [(rank.actor, "stop", ([_id(one)], 10.0)) for rank in self._ranks(one)]
        self._call(calls)

    def worker_output(self, folder: str, task: int) -> str:
        return ""  # it is in the reason of the status

    def close(self) -> None:
        self._ray.close()


def _id(one: Allocation) -> str:
    return f"{one.token}/{one.task}"


def _tag(files: str, name: str) -> str:
    """Distinguishes the actors of queues: of other users, hosts, state folders and backends."""
    text = "\n".join((socket.gethostname(), str(os.getuid()), os.path.realpath(files), name))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
