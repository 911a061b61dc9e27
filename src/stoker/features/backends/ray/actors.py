"""The nodes of a Ray cluster and the actors of one queue on them, as a driver sees them."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Container
from typing import Any

from stoker.features.backends.chunk_files import VERSION, write_whole
from stoker.features.backends.ray.client_process import DEAD, OK
from stoker.features.backends.ray.connection import RayConnection
from stoker.features.backends.ray.sent_files import NodePlace

_IDLE_SECONDS = 60.0
_STATUS_SECONDS = 5.0  # an actor that does not answer for this long is late
_START_SECONDS = 0.3  # actors that were just created are asked again in the next poll
_CREATE_SECONDS = 30.0  # after this long, other Ray users have taken the GPUs of a new actor
_COPY_SECONDS = 20.0  # for one message with a part of a file
_AVOID_SECONDS = 60.0  # no further worker on a node where one could not start

Call = tuple[str, str, "tuple[Any, ...]"]  # actor, method, arguments


class NodeProblem(Exception):
    """A node did not answer, or could not read or write a file."""


class Actor:
    """The actor of a node, as last seen."""

    def __init__(self, id: str, since: float, gpus: int = 0) -> None:
        self.id = id
        self.since = since
        self.gpus = gpus  # that it was created with, until it is ready
        self.is_ready = False  # it has answered
        self.is_late = False
        self.is_shared = True  # it sees the files of the queue
        self.place = NodePlace(folder="", python="")
        self._status: dict[str, Any] = {}

    @property
    def answers(self) -> bool:
        return self.is_ready and not self.is_late

    def answered(self, status: dict[str, Any]) -> None:
        self._status, self.is_late = status, False

    @property
    def allocations(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self._status.get("allocations", {})
        return found

    @property
    def free(self) -> int:
        """GPUs that it holds and does not use."""
        return int(self._status.get("free", 0))

    @property
    def coming(self) -> int:
        """GPUs that it requested from Ray."""
        return int(self._status.get("growing", 0)) if self.is_ready else self.gpus

    @property
    def problem(self) -> str | None:
        """Why workers cannot run on its node."""
        found: str | None = self._status.get("problem")
        return found


class Actors:
    """Everything that talks to Ray may raise `Unreachable`."""

    def __init__(self, connection: RayConnection, options: dict[str, str], files: str) -> None:
        self._ray = connection
        self._options = options
        self._files = files
        self._tag = ""
        self.nodes: dict[str, dict[str, Any]] = {}  # as Ray lists them, by id
        self.by_node: dict[str, Actor] = {}
        self._avoided: dict[str, tuple[float, str]] = {}  # nodes: until when, and why
        self._probe_file: tuple[str, str] | None = None
        self.is_busy = False  # actors start, or wait for GPUs

    def set_name(self, backend: str) -> None:
        """Distinguish the actors of queues: of other users, hosts, state folders and backends."""
        words = (socket.gethostname(), str(os.getuid()), os.path.realpath(self._files), backend)
        text = "\n".join(words).encode("utf-8", "surrogateescape")
        self._tag = hashlib.sha256(text).hexdigest()[:12]

    def close(self) -> None:
        if self._probe_file is not None:
            try:
                os.unlink(self._probe_file[0])
            except FileNotFoundError:
                pass
            self._probe_file = None
        self._ray.close()

    # -- nodes -----------------------------------------------------------------------------------

    def load_nodes(self) -> None:
        self.nodes = {one["id"]: one for one in self._ray.call("nodes")}

    def is_alive(self, node: str) -> bool:
        return node in self.nodes and bool(self.nodes[node]["is_alive"])

    def name(self, node: str) -> str:
        """The host name of a node; with its address if several living nodes have the same."""
        found = self.nodes[node]
        alike = [
            one for one in self.nodes.values() if one["host"] == found["host"] and one["is_alive"]
        ]
        return f"{found['host']}/{found['address']}" if len(alike) > 1 else str(found["host"])

    def avoid(self, node: str, why: str) -> None:
        """Start no workers on a node for a while."""
        self._avoided[node] = (time.monotonic() + _AVOID_SECONDS, why)

    def problem(self, node: str) -> str | None:
        """Why no worker is started on a node."""
        until, why = self._avoided.get(node, (0.0, ""))
        return why if time.monotonic() < until else None

    # -- actors ----------------------------------------------------------------------------------

    def _name(self, node: str) -> str:
        return f"stoker-{self._tag}-{node[:20]}"

    def refresh(self, used: Container[str]) -> None:
        """Find the actors of this queue and ask what they do. `used`: ids of those with work."""
        now = time.monotonic()
        ids = self._ray.call("actors", f"stoker-{self._tag}-")
        found = {}
        for node in self.nodes:
            id = ids.get(self._name(node))
            if id is not None and self.is_alive(node):
                known = self.by_node.get(node)
                found[node] = known if known is not None and known.id == id else Actor(id, now)
        self.by_node = found
        self._ask_new(used, now)
        ready = [node for node, actor in self.by_node.items() if actor.is_ready]
        answers = self.call([(self.by_node[node].id, "status", ()) for node in ready])
        for node, (outcome, value) in zip(ready, answers, strict=True):
            if outcome == OK:
                actor = self.by_node[node]
                actor.answered(value)
                if actor.problem is not None:
                    self.avoid(node, actor.problem)  # also when the idle actor has ended
            elif outcome == DEAD:
                del self.by_node[node]
            else:
                self.by_node[node].is_late = True
        self.is_busy = any(one.coming or not one.is_ready for one in self.by_node.values())

    def _ask_new(self, used: Container[str], now: float) -> None:
        """Prepare actors that have just been created or found."""
        new = [node for node, actor in self.by_node.items() if not actor.is_ready]
        if not new:
            return
        calls: list[Call] = [(self.by_node[node].id, "prepare", self._probe()) for node in new]
        for node, (outcome, value) in zip(new, self.call(calls, _START_SECONDS), strict=True):
            actor = self.by_node[node]
            actor.is_ready = outcome == OK
            if outcome == OK:
                option = self._options.get("shared")
                actor.is_shared = value["sees"] if option is None else option == "yes"
                actor.place = NodePlace(folder=value["folder"], python=value["python"])
            elif outcome == DEAD:
                del self.by_node[node]
            elif now - actor.since > _CREATE_SECONDS and actor.id not in used:
                self._ray.call("kill", actor.id)
                del self.by_node[node]

    def _probe(self) -> tuple[str, str]:
        """A file with a random value: nodes that see it share the files of the queue."""
        if self._probe_file is None:
            # One name, so that killed drivers leave no more than one file.
            path, value = os.path.join(self._files, f".probe-{self._tag}"), secrets.token_hex(16)
            write_whole(path, value)
            self._probe_file = (path, value)
        return self._probe_file

    def create(self, node: str, gpus: int) -> None:
        """Create the actor of a node, with GPUs that Ray can give now."""
        config = {
            "tag": self._tag,
            "idle": float(self._options.get("idle") or _IDLE_SECONDS),
            "python": self._options.get("python"),
            "folder": self._options.get("node-folder"),
            "version": VERSION,
        }
        id = self._ray.call("create", self._name(node), node, gpus, config)
        self.by_node[node] = Actor(id, time.monotonic(), gpus)
        self.is_busy = True

    def call(self, calls: list[Call], seconds: float = _STATUS_SECONDS) -> list[tuple[str, Any]]:
        """Call methods of actors at the same time; returns (outcome, value) for each."""
        if not calls:
            return []
        found: list[tuple[str, Any]] = self._ray.call("call", calls, seconds)
        return found

    def call_one(self, actor: str, method: str, *arguments: Any) -> Any:
        """Call one actor. Raises NodeProblem if it does not answer, or fails."""
        outcome, value = self.call([(actor, method, arguments)], _COPY_SECONDS)[0]
        if outcome != OK:
            raise NodeProblem(value or "its node does not answer")
        return value
