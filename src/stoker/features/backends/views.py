"""Backends and their nodes as text and JSON, for all interfaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.client.views.job import iso
from stoker.engine.model import Request
from stoker.engine.policy.explain import needs
from stoker.engine.policy.host_words import declared_words
from stoker.engine.store.database import Database
from stoker.features.backends import store as backends
from stoker.features.backends.nodes import UP, Node
from stoker.features.backends.store import BackendRow
from stoker.text.plurals import plural


def nodes_summary(nodes: Sequence[Node]) -> str:
    """`4 nodes, 16 GPUs (5 in use), 1 node not available`."""
    up = [node for node in nodes if node.state == UP]
    used = sum(node.used_gpus for node in up)
    gpus = sum(node.gpus for node in up)
    words = f"{plural(len(up), 'node')}, {plural(gpus, 'GPU')}"
    if used:
        words += f" ({used} in use)"
    rest = len(nodes) - len(up)
    return f"{words}, {plural(rest, 'node')} not available" if rest else words


def request_words(request: Request) -> str:
    """`2 GPUs`, on a backend `2 GPUs on lab` or `2 GPUs on each of 4 nodes of lab`."""
    words = needs(request) if request.gpus else ", ".join(("no GPU", *declared_words(request)))
    if not request.backend:
        return words
    nodes = f"each of {request.nodes} nodes of " if request.nodes > 1 else ""
    return f"{words} on {nodes}{request.backend}"


def backends_json(db: Database) -> list[dict[str, Any]]:
    """All backends as JSON."""
    return [backend_json(row) for row in backends.backends(db)]


def backend_json(row: BackendRow) -> dict[str, Any]:
    """A backend as JSON, without the environment that leads to its engine."""
    return {
        "name": row.name,
        "kind": row.kind,
        "options": row.options,
        "folder": row.folder,
        "problem": row.problem,
        "summary": nodes_summary(row.nodes),
        "checked_at": iso(row.checked_at),
        "nodes": [node._asdict() for node in row.nodes],
    }
