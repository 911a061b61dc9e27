"""The nodes of a backend, and whether they can satisfy a request."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import Request
from stoker.record import Record
from stoker.text.plurals import plural

UP = "up"
DRAINED = "drained"
DOWN = "down"


class Node(Record):
    """A node of a backend. `used_gpus` counts the GPUs that any user's jobs have."""

    name: str
    gpus: int
    used_gpus: int = 0
    state: str = UP
    model: str = ""
    gpu_memory: int = 0  # bytes of each GPU; 0: unknown
    cpus: int = 0
    note: str = ""  # the engine's word for its state, if it is not up


def impossible_reason(request: Request, nodes: Iterable[Node], backend: str) -> str | None:
    """Why no set of these nodes can ever satisfy the request; None if one can.

    Nodes that are down or drained count, because they may come back. Without any known node
    nothing is refused: the engine decides.
    """
    known = list(nodes)
    if not known:
        return None
    if request.nodes > len(known):
        return (
            f"the job requests {plural(request.nodes, 'node')}, "
            f"but the backend `{backend}` has {plural(len(known), 'node')}"
        )
    fitting = [node for node in known if _fits(request, node)]
    if len(fitting) >= request.nodes:
        return None
    on_each = " on each node" if request.nodes > 1 else ""
    cpus = max(node.cpus for node in known)
    if cpus and request.cpus > cpus:
        return (
            f"the job requests {plural(request.cpus, 'core')}{on_each}, "
            f"but a node of the backend `{backend}` has at most {cpus}"
        )
    requests = f"the job requests {plural(request.gpus, 'GPU')}{on_each}"
    most = max(node.gpus for node in known)
    if request.gpus > most:
        has = f"at most {plural(most, 'GPU')}" if most else "no GPU"
        return f"{requests}, but a node of the backend `{backend}` has {has}"
    wanted = []
    if request.model is not None:
        wanted.append(f"`{request.model}` in the model name")
    if request.min_memory is not None or request.memory is not None:
        wanted.append("that much memory")
    with_what = f" with {' and '.join(wanted)}" if wanted else ""
    if not fitting:
        return f"{requests}{with_what}, but no node of the backend `{backend}` has such GPUs"
    return (
        f"{requests}{with_what} on {plural(request.nodes, 'node')}, "
        f"but the backend `{backend}` has {plural(len(fitting), 'such node')}"
    )


def _fits(request: Request, node: Node) -> bool:
    if node.cpus and node.cpus < request.cpus:
        return False
    if node.gpus < request.gpus:
        return False
    if not request.gpus:
        return True
    if request.model is not None and request.model.lower() not in node.model.lower():
        return False
    needed = max(request.memory or 0, request.min_memory or 0)
    return not (needed and node.gpu_memory and node.gpu_memory < needed)
