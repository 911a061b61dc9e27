"""The Ray backend: places allocations on nodes, through one actor on each node (node_actor.py).

Ray has no queue of its own for us: an allocation waits here until a node has enough free GPUs, and
`poll` places those that wait. Where an allocation was placed is in the file `placed` in the folder
of its chunk, written before the worker is started. So a driver that starts later finds out whether
a worker may have run: an allocation whose actor is gone is lost, and is never started twice.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from stoker.features.backends import chunk_files
from stoker.features.backends.nodes import DOWN, UP, Node
from stoker.features.backends.protocol import (
    ENDED,
    PENDING,
    RUNNING,
    AllocationRequest,
    Batch,
    Limits,
    Status,
    Unreachable,
)
from stoker.features.backends.ray.actors import Actor, Actors, Call, NodeProblem
from stoker.features.backends.ray.connection import RayConnection
from stoker.features.backends.ray.placement import Place, choose, reserve_for, waiting_words
from stoker.features.backends.ray.ranks import Ranks, rank_folder, write_ranks
from stoker.features.backends.ray.returned_files import Return
from stoker.features.backends.ray.sent_files import FolderReader, Sender, TooLarge, read_jobs
from stoker.features.backends.store_allocations import Allocation
from stoker.fields import from_fields
from stoker.record import Record
from stoker.text.sizes import parse_size

_PLACED = "placed"  # a file in the folder of a chunk
_PATIENCE_SECONDS = 60.0  # an allocation that waits for longer has nodes reserved for it
_POLL_SECONDS = 1.0
_BUSY_POLL_SECONDS = 0.3  # while actors start
_BATCH = 1000
_GRACE_SECONDS = 10.0  # of jobs on other nodes, when one node was lost
_MAX_SIZE = "200M"
_ACTOR_ENDED = "the Stoker actor on its node ended"


class _Rank(Record):
    """One node of an allocation, where a worker runs the chunk in `folder`."""

    id: str
    folder: str
    node: str
    name: str
    actor: str
    is_shared: bool


class RayBackend:
    linger_seconds = 30.0  # to import Ray and to connect takes a second or more

    def __init__(
        self, name: str, options: dict[str, str], environment: dict[str, str], files: str
    ) -> None:
        """`files`: the folder with chunks, logs and outputs of jobs."""
        self.name = name
        self._files = files
        self._batches = chunk_files.batches_folder(files, name)
        address = options.get("address") or environment.get("RAY_ADDRESS", "auto")
        connection = RayConnection(address, environment, options.get("token-file"))
        self._actors = Actors(connection, options, files)
        self._actors.set_name(name)
        self._folders = FolderReader(parse_size(options.get("max-size", _MAX_SIZE)))
        self._placed: dict[int, tuple[_Rank, ...]] = {}  # by allocation
        self._ranks: dict[int, Ranks] = {}  # of allocations on several nodes
        self._returns: dict[str, Return] = {}  # from nodes that do not share files
        self._cancelled: set[int] = set()

    # -- capacity --------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        self._actors.load_nodes()
        found: dict[str, Node] = {}
        for node in sorted(self._actors.nodes.values(), key=lambda one: not one["is_alive"]):
            name = self._actors.name(node["id"])
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

    def limits(self) -> Limits:
        return Limits(tasks=_BATCH, allocations=_BATCH)

    def room(self, request: AllocationRequest, known: Sequence[Allocation]) -> int:
        """As many as can run at a time may wait here: the others stay in the queue, which orders
        them by priority."""
        slots = 0
        for node in self._actors.nodes.values():
            if node["is_alive"]:
                slots += node["gpus"] // request.gpus if request.gpus else node["cpus"]
        kind = (request.gpus, request.nodes)
        requests = [_request(one.request) for one in known]
        alike = [one for one in requests if (one.gpus, one.nodes) == kind]
        return max(0, 2 * max(1, slots // request.nodes) - len(alike))

    def most_seconds(self, request: AllocationRequest) -> float | None:
        return None

    def poll_seconds(self) -> tuple[float, float]:
        seconds = _BUSY_POLL_SECONDS if self._actors.is_busy else _POLL_SECONDS
        return seconds, seconds

    # -- submit and adopt ------------------------------------------------------------------------

    def submit(self, batch: Batch) -> dict[int, str]:
        return {task: f"{batch.token}/{task}" for task in batch.tasks}

    def adopt(self, token: str) -> dict[int, str]:
        try:
            tasks = [int(name) for name in os.listdir(self._path(token)) if name.isdigit()]
        except OSError:
            return {}
        return {task: f"{token}/{task}" for task in tasks}

    def _path(self, id: str) -> str:
        return os.path.join(self._batches, id)

    def _chunk(self, one: Allocation) -> str:
        return self._path(_id(one))

    # -- poll ------------------------------------------------------------------------------------

    def poll(self, allocations: Iterable[Allocation]) -> dict[int, Status]:
        known = list(allocations)
        placed = {one.id: self._where(one) for one in known}
        self._actors.load_nodes()
        self._actors.refresh({rank.actor for ranks in placed.values() for rank in ranks})
        found: dict[int, Status] = {}
        waiting = []
        for one in known:
            if placed[one.id]:
                found[one.id] = self._status(one, placed[one.id])
            elif one.id in self._cancelled:
                found[one.id] = Status(state=ENDED, reason="cancelled", cause="engine_cancel")
            else:
                waiting.append(one)
        self._forget(known)
        if waiting:
            found.update(self._place(waiting, known))
        return found

    def _where(self, one: Allocation) -> tuple[_Rank, ...]:
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
        states = [self._rank_status(one, rank) for rank in ranks]
        if len(ranks) == 1:
            return states[0]
        names = ",".join(rank.name for rank in ranks)
        merged = self._ranks.get(one.id)
        if merged is None:
            merged = self._ranks[one.id] = Ranks(
                self._chunk(one), tuple(rank.name for rank in ranks), self._files
            )
        merged.update()
        ended = [state for state in states if state.state == ENDED]
        lost = [state for state in ended if state.reason != "completed"]
        if lost:  # the processes on the other nodes cannot continue
            self._stop(ranks)
            return lost[0]._replace(node=names)
        if len(ended) < len(states):
            reasons = [state.reason for state in states if state.reason]
            return Status(state=RUNNING, reason=reasons[0] if reasons else "", node=names)
        merged.finish()
        return ended[0]._replace(node=names)

    def _rank_status(self, one: Allocation, rank: _Rank) -> Status:
        actor = self._actors.by_node.get(rank.node)
        is_gone = actor is None or actor.id != rank.actor
        if not self._actors.is_alive(rank.node):
            return Status(state=ENDED, reason="its node failed", node=rank.name, cause="lost")
        if is_gone and rank.is_shared:
            return Status(state=ENDED, reason=_ACTOR_ENDED, node=rank.name, cause="lost")
        if actor is None:  # a new actor finds the files of the earlier one
            self._actors.create(rank.node, 0)
            return Status(state=RUNNING, reason=_ACTOR_ENDED, node=rank.name)
        if not actor.answers:
            return Status(state=RUNNING, reason="its node does not answer", node=rank.name)
        info = actor.allocations.get(rank.id)
        if info is None and is_gone:
            return Status(state=ENDED, reason=_ACTOR_ENDED, node=rank.name, cause="lost")
        if info is None:  # the request to start it did not arrive
            self._actors.call([self._start_call(one, rank)])
            return Status(state=RUNNING, reason=f"starts on {rank.name}", node=rank.name)
        problem = None if rank.is_shared else self._exchange(rank, actor)
        if info["is_running"] or problem is not None:
            return Status(state=RUNNING, reason=problem or "", node=rank.name)
        return self._ended(one, rank, info)

    def _exchange(self, rank: _Rank, actor: Actor) -> str | None:
        """Exchange files with a node that does not share them; None if everything is here."""
        if rank.id not in self._returns:
            self._returns[rank.id] = Return(rank.id, self._path(rank.id), self._files)
        try:
            is_complete = self._returns[rank.id].exchange(partial(self._actors.call_one, actor.id))
        except NodeProblem as error:
            return f"files cannot be fetched: {error}"
        return None if is_complete else "its files are fetched"

    def _ended(self, one: Allocation, rank: _Rank, info: dict[str, Any]) -> Status:
        """The status of an allocation whose worker has exited."""
        if one.id in self._cancelled:
            return Status(state=ENDED, reason="cancelled", node=rank.name, cause="engine_cancel")
        code, why = info["code"], info["why"]
        if code == 0:
            return Status(state=ENDED, reason="completed", node=rank.name, cause="lost")
        if code is None:
            words = why
        else:
            how = f"was killed by signal {-code}" if code < 0 else "failed"
            words = f"its worker {how}{f': {why}' if why else ''}"
        if not os.path.exists(os.path.join(self._path(rank.id), chunk_files.EVENTS)):
            # Its jobs return to the queue; they must not come back here at once.
            self._actors.avoid(rank.node, words)
        return Status(state=ENDED, reason=words, node=rank.name, cause="lost")

    # -- place -----------------------------------------------------------------------------------

    def _place(self, waiting: list[Allocation], known: list[Allocation]) -> dict[int, Status]:
        """Start what fits, in order; request GPUs from Ray for the rest."""
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
            names = ", ".join(self._actors.name(place.node) for place in chosen)
            if all(is_held):
                starts.append((one, [place.node for place in chosen]))
            found[one.id] = Status(state=PENDING, reason=f"starts on {names}")
        self._request_gpus(places)
        calls = [call for one, nodes in starts for call in self._prepare(one, nodes)]
        self._actors.call(calls)
        return found

    def _places(self, known: list[Allocation]) -> tuple[list[Place], list[str]]:
        """What is free on the nodes, and why some nodes cannot be used."""
        users: dict[str, int] = {}  # jobs without a GPU, by node
        for one in known:
            if not _request(one.request).gpus:
                for rank in self._where(one):
                    users[rank.node] = users.get(rank.node, 0) + 1
        places, problems = [], []
        for id, node in self._actors.nodes.items():
            if not node["is_alive"]:
                continue
            problem = self._actors.problem(id)
            if problem is not None:
                problems.append(f"{self._actors.name(id)}: {problem}")
                continue
            actor = self._actors.by_node.get(id)
            if actor is not None and actor.is_late:
                continue
            coming = 0 if actor is None else actor.coming
            places.append(
                Place(
                    id,
                    gpus=node["gpus"],
                    free=0 if actor is None else actor.free,
                    coming=coming,
                    in_ray=max(0, node["free_gpus"] - coming),
                    cpus=node["cpus"] - users.get(id, 0),
                    model=node["model"],
                    has_actor=actor is not None and actor.is_ready,
                )
            )
        return places, problems

    def _request_gpus(self, places: list[Place]) -> None:
        """Create actors where there is work for them, and let others request more GPUs."""
        calls: list[Call] = []
        for place in places:
            actor = self._actors.by_node.get(place.node)
            if actor is None and place.is_chosen:
                self._actors.create(place.node, place.wanted)
            elif actor is not None and actor.is_ready and place.wanted:
                calls.append((actor.id, "grow", (place.wanted,)))
                self._actors.is_busy = True
        self._actors.call(calls)

    def _prepare(self, one: Allocation, nodes: list[str]) -> list[Call]:
        """Send files and record where an allocation runs; returns the calls that start it."""
        ranks = tuple(self._rank(one, nodes, number) for number in range(len(nodes)))
        try:
            if len(ranks) > 1:
                address = self._actors.nodes[nodes[0]]["address"]
                port = self._actors.call_one(ranks[0].actor, "free_port")
                write_ranks(self._chunk(one), len(ranks), address, port)
            for rank in ranks:
                if not rank.is_shared:
                    self._send(rank)
        except (TooLarge, FileNotFoundError, NotADirectoryError, PermissionError) as error:
            self._refuse(one, str(error))
            return []
        except NodeProblem:
            return []  # it is placed again in the next poll
        path = os.path.join(self._chunk(one), _PLACED)
        chunk_files.write_whole(path, json.dumps([rank._asdict() for rank in ranks]))
        self._placed[one.id] = ranks
        return [self._start_call(one, rank) for rank in ranks]

    def _rank(self, one: Allocation, nodes: list[str], number: int) -> _Rank:
        node = nodes[number]
        actor = self._actors.by_node[node]
        id = _id(one) if len(nodes) == 1 else rank_folder(_id(one), number)
        return _Rank(
            id=id,
            folder=self._path(id) if actor.is_shared else f"batches/{id}",
            node=node,
            name=self._actors.name(node),
            actor=actor.id,
            is_shared=actor.is_shared,
        )

    def _start_call(self, one: Allocation, rank: _Rank) -> Call:
        gpus = _request(one.request).gpus
        identity = f"{rank.actor[:12]}-{one.task}"
        return rank.actor, "start", (rank.id, rank.folder, gpus, rank.name, identity)

    def _send(self, rank: _Rank) -> None:
        """Send the files of an allocation to a node that does not share them."""
        call = partial(self._actors.call_one, rank.actor)
        sender = Sender(
            self._folders,
            self._actors.by_node[rank.node].place,
            lambda pieces: call("write", [piece._asdict() for piece in pieces]),
            partial(call, "has_folder"),
            partial(call, "finish_folder"),
        )
        sender.send(self._path(rank.id), rank.folder, self._files)

    def _refuse(self, one: Allocation, why: str) -> None:
        """End the jobs of an allocation that cannot be started on any node."""
        events = chunk_files.Events(self._chunk(one))
        now = time.time()
        events.write("owned", by="driver", node="", at=now)
        for job in read_jobs(self._chunk(one)).values():
            events.write(
                "ended",
                job=job.job,
                attempt=job.attempt,
                status=None,
                at=now,
                cause="start_failed",
                detail=why,
            )
        events.write("closed", at=now, why=why)
        events.close()

    # -- the end ---------------------------------------------------------------------------------

    def _forget(self, known: list[Allocation]) -> None:
        """Let actors forget allocations that have ended for the driver."""
        ranks = {rank.id for one in known for rank in self._where(one)}
        calls: list[Call] = []
        for actor in self._actors.by_node.values():
            gone = [
                id
                for id in actor.allocations
                if id not in ranks and chunk_files.is_revoked(self._path(id))
            ]
            if gone:
                calls.append((actor.id, "forget", (gone,)))
        self._actors.call(calls)
        ids = {one.id for one in known}
        self._cancelled &= ids
        self._placed = {id: where for id, where in self._placed.items() if id in ids}
        self._ranks = {id: one for id, one in self._ranks.items() if id in ids}
        self._returns = {id: one for id, one in self._returns.items() if id in ranks}

    def cancel(self, allocations: Iterable[Allocation]) -> None:
        for one in allocations:
            self._cancelled.add(one.id)
            self._stop(self._where(one))

    def _stop(self, ranks: tuple[_Rank, ...]) -> None:
        """End the workers of an allocation."""
        self._actors.call([(rank.actor, "stop", ([rank.id], _GRACE_SECONDS)) for rank in ranks])

    def worker_output(self, folder: str, task: int) -> str:
        return ""  # it is in the reason of the status

    def close(self) -> None:
        try:
            self._forget([])  # copies on nodes of what has ended since the last poll
        except Unreachable:
            pass
        self._actors.close()


@lru_cache(maxsize=10_000)
def _request(text: str) -> AllocationRequest:
    return from_fields(AllocationRequest, json.loads(text))


def _id(one: Allocation) -> str:
    return f"{one.token}/{one.task}"
