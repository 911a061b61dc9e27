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
import secrets
import socket
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

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
from stoker.backends.ray.copied_folder import FolderReader, TooLarge
from stoker.backends.ray.placement import Place, choose, reserve_for, waiting_words
from stoker.backends.ray.returned_files import Return
from stoker.backends.ray.sent_files import NodePlace, Sender, read_jobs
from stoker.core.backends.nodes import DOWN, UP, Node
from stoker.core.fields import from_fields
from stoker.core.formats.sizes import parse_size
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
_COPY_SECONDS = 20.0  # for one message with a part of a file
_MAX_SIZE = "200M"
_ACTOR_ENDED = "the Stoker actor on its node ended"


class _NodeProblem(Exception):
    """A node did not answer, or could not read or write a file."""


class _Rank(Record):
    """One node of an allocation."""

    node: str
    name: str
    actor: str
    is_shared: bool


class _Actor:
    """The actor of a node, as last seen."""

    def __init__(self, id: str, since: float) -> None:
        self.id = id
        self.since = since
        self.is_ready = False  # it has answered
        self.is_late = False
        self.gpus = 0  # that it was created with, until it is ready
        self.is_shared = True  # it sees the files of the queue
        self.place = NodePlace(folder="", python="")
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
        self._folders = FolderReader(parse_size(options.get("max-size", _MAX_SIZE)))
        self._returns: dict[int, Return] = {}  # of nodes that do not share files
        self._probe_file: tuple[str, str] | None = None

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
        requests = [_request(one.request) for one in known]
        alike = [one for one in requests if (one.gpus, one.nodes) == kind]
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
        is_gone = actor is None or actor.id != rank.actor
        if not self._is_alive(rank.node):
            return Status(state=ENDED, reason="its node failed", node=rank.name, cause="lost")
        if is_gone and rank.is_shared:
            return Status(state=ENDED, reason=_ACTOR_ENDED, node=rank.name, cause="lost")
        if actor is None:  # a new actor finds the files of the earlier one
            self._create(rank.node, 0)
            return Status(state=RUNNING, reason=_ACTOR_ENDED, node=rank.name)
        if not actor.is_ready or actor.is_late:
            return Status(state=RUNNING, reason="its node does not answer", node=rank.name)
        info = actor.allocations.get(_id(one))
        if info is None and is_gone:
            return Status(state=ENDED, reason=_ACTOR_ENDED, node=rank.name, cause="lost")
        if info is None:  # the request to start it did not arrive
            self._start([(one, ranks)])
            return Status(state=PENDING, reason=f"starts on {rank.name}", node=rank.name)
        problem = None if rank.is_shared else self._exchange(one, actor)
        if info["is_running"] or problem is not None:
            return Status(state=RUNNING, reason=problem or "", node=rank.name)
        return self._ended(one, rank, info)

    def _exchange(self, one: Allocation, actor: _Actor) -> str | None:
        """Exchange files with a node that does not share them; None if everything is here."""
        if one.id not in self._returns:
            self._returns[one.id] = Return(
                _id(one), self._chunk(one), self._files, partial(self._call_one, actor.id)
            )
        try:
            is_complete = self._returns[one.id].exchange()
        except _NodeProblem as error:
            return f"files cannot be fetched: {error}"
        return None if is_complete else "its files are fetched"

    def _ended(self, one: Allocation, rank: _Rank, info: dict[str, Any]) -> Status:
        if one.id in self._cancelled:
            return Status(state=ENDED, reason="cancelled", node=rank.name, cause="engine_cancel")
        code, why = info["code"], info["why"]
        if code is None:
            return Status(state=ENDED, reason=why, node=rank.name, cause="lost")
        if code == 0:
            return Status(state=ENDED, reason="completed", node=rank.name, cause="lost")
        how = f"was killed by signal {-code}" if code < 0 else "failed"
        words = f"its worker {how}{f': {why}' if why else ''}"
        if not os.path.exists(os.path.join(self._chunk(one), chunk_files.EVENTS)):
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
        calls = [(self._actors[node].id, "prepare", self._probe()) for node in new]
        for node, (outcome, value) in zip(new, self._call(calls, _START_SECONDS), strict=True):
            actor = self._actors[node]
            actor.is_ready = outcome == OK
            if outcome == OK:
                option = self._options.get("shared")
                actor.is_shared = value["sees"] if option is None else option == "yes"
                actor.place = NodePlace(folder=value["folder"], python=value["python"])
            elif outcome == DEAD:
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
        # A node that reads or writes large files may be slow, but the others must not wait.
        found: list[tuple[str, Any]] = self._ray.call("call", calls, seconds)
        return found

    def _call_one(self, actor: str, method: str, *arguments: Any) -> Any:
        """Call one actor. Raises _NodeProblem if it does not answer."""
        outcome, value = self._call([(actor, method, arguments)], _COPY_SECONDS)[0]
        if outcome != OK:
            raise _NodeProblem(value or "its node does not answer")
        return value

    def _probe(self) -> tuple[str, str]:
        """A file with a random value: nodes that see it share the files of the queue."""
        if self._probe_file is None:
            descriptor, path = tempfile.mkstemp(prefix=".ray-probe-", dir=self._files)
            value = secrets.token_hex(16)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(value)
            self._probe_file = (path, value)
        return self._probe_file

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
            request = _request(one.request)
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
        actor = self._actors[node]
        return _Rank(
            node=node, name=self._node_name(node), actor=actor.id, is_shared=actor.is_shared
        )

    def _places(self, known: list[Allocation]) -> tuple[list[Place], list[str]]:
        """What is free on the nodes, and why some nodes cannot be used."""
        now = time.monotonic()
        users: dict[str, int] = {}  # jobs without a GPU, by node
        for one in known:
            if not _request(one.request).gpus:
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
            try:
                folders = [self._send(one, rank) for rank in ranks]
            except (TooLarge, FileNotFoundError, NotADirectoryError, PermissionError) as error:
                self._refuse(one, str(error))
                continue
            except _NodeProblem:
                continue  # it is placed again in the next poll
            chunk_files.write_whole(
                os.path.join(chunk, _PLACED), json.dumps([rank._asdict() for rank in ranks])
            )
            self._placed[one.id] = ranks
            for rank, folder in zip(ranks, folders, strict=True):
                identity = f"{rank.actor[:12]}-{one.task}"
                calls.append((
                    rank.actor, "start",
                    (_id(one), folder, _request(one.request).gpus, rank.name, identity),
                ))  # fmt: skip
        self._call(calls)

    def _send(self, one: Allocation, rank: _Rank) -> str:
        """Send the files of an allocation if its node needs them; returns its folder there."""
        if rank.is_shared:
            return self._chunk(one)
        folder = f"batches/{_id(one)}"
        call = partial(self._call_one, rank.actor)
        sender = Sender(
            self._folders,
            self._actors[rank.node].place,
            lambda pieces: call("write", [piece._asdict() for piece in pieces]),
            partial(call, "has_folder"),
            partial(call, "finish_folder"),
        )
        sender.send(self._chunk(one), folder, self._files)
        return folder

    def _refuse(self, one: Allocation, why: str) -> None:
        """End the jobs of an allocation that cannot be started on any node."""
        events = chunk_files.Events(self._chunk(one))
        now = time.time()
        events.write("owned", by="driver", node="", at=now)
        for job in read_jobs(self._chunk(one)).values():
            events.write("ended", job=job.job, attempt=job.attempt, status=None, at=now,
                         cause="start_failed", detail=why)  # fmt: skip
        events.write("closed", at=now, why=why)
        events.close()

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
        self._returns = {id: one for id, one in self._returns.items() if id in ids}

    def cancel(self, allocations: Iterable[Allocation]) -> None:
        calls: list[tuple[str, str, tuple[Any, ...]]] = []
        for one in allocations:
            self._cancelled.add(one.id)
            calls += [(rank.actor, "stop", ([_id(one)], 10.0)) for rank in self._ranks(one)]
        self._call(calls)

    def worker_output(self, folder: str, task: int) -> str:
        return ""  # it is in the reason of the status

    def close(self) -> None:
        if self._probe_file is not None:
            os.unlink(self._probe_file[0])
            self._probe_file = None
        self._ray.close()


@lru_cache(maxsize=10_000)
def _request(text: str) -> AllocationRequest:
    return from_fields(AllocationRequest, json.loads(text))


def _id(one: Allocation) -> str:
    return f"{one.token}/{one.task}"


def _tag(files: str, name: str) -> str:
    """Distinguishes the actors of queues: of other users, hosts, state folders and backends."""
    text = "\n".join((socket.gethostname(), str(os.getuid()), os.path.realpath(files), name))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
