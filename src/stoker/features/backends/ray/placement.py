"""Choose nodes for allocations: what is free there, and how many GPUs to request from Ray."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.text.plurals import plural


class Place:
    """What a node can still take in this round. Choosing it changes the numbers."""

    def __init__(
        self,
        node: str,
        *,
        gpus: int = 0,
        free: int = 0,
        coming: int = 0,
        in_ray: int = 0,
        cpus: int = 0,
        model: str = "",
        has_actor: bool = False,
    ) -> None:
        self.node = node
        self.gpus = gpus  # in all
        self.free = free  # held by the actor and not used
        self.coming = coming  # requested from Ray
        self.in_ray = in_ray  # that Ray could give
        self.cpus = cpus  # not used by jobs without a GPU
        self.model = model
        self.has_actor = has_actor
        self.wanted = 0  # GPUs to request from Ray
        self.is_chosen = False

    @property
    def available(self) -> int:
        return self.free + self.coming + self.in_ray

    def has_model(self, model: str | None) -> bool:
        return model is None or model.lower() in self.model.lower()

    def take(self, gpus: int) -> bool:
        """Use GPUs, or one CPU for a job without; returns whether they are all held already."""
        self.is_chosen = True
        if not gpus:
            self.cpus -= 1
            return self.has_actor
        now = min(self.free, gpus)
        soon = min(self.coming, gpus - now)
        later = gpus - now - soon
        self.free -= now
        self.coming -= soon
        self.in_ray -= later
        self.wanted += later
        return now == gpus and self.has_actor

    def reserve(self) -> None:
        """Keep what is free here for an allocation that needs more."""
        self.free = self.coming = self.in_ray = self.cpus = 0


def choose(
    places: Iterable[Place], gpus: int, nodes: int = 1, model: str | None = None
) -> list[Place] | None:
    """The places for an allocation with `gpus` on each of `nodes` nodes; None if it must wait.

    Places where the GPUs are held already come first, then those with the least left over.
    """
    if gpus:
        fitting = [one for one in places if one.available >= gpus and one.has_model(model)]
        fitting.sort(
            key=lambda one: (one.free < gpus, one.free + one.coming < gpus, one.available, one.node)
        )
    else:
        fitting = [one for one in places if one.cpus > 0]
        fitting.sort(key=lambda one: (not one.has_actor, -one.cpus, one.node))
    return fitting[:nodes] if len(fitting) >= nodes else None


def reserve_for(places: Iterable[Place], gpus: int, nodes: int, model: str | None) -> None:
    """Let nothing else start on the nodes that an allocation will probably get."""
    able = [one for one in places if one.gpus >= gpus and one.has_model(model)]
    able.sort(key=lambda one: (-one.available, one.node))
    for one in able[:nodes]:
        one.reserve()


def waiting_words(gpus: int, nodes: int, model: str | None) -> str:
    """Why an allocation waits.

    >>> waiting_words(2, 1, None)
    'waits for a node with 2 free GPUs'
    """
    what = plural(gpus, "free GPU") if gpus else "a free CPU"
    if model is not None:
        what += f" of the model {model}"
    where = "a node" if nodes == 1 else f"{nodes} nodes"
    on_each = " each" if nodes > 1 else ""
    return f"waits for {where} with {what}{on_each}"
