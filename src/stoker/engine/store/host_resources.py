"""Resources of the host that the daemon published, for `submit`, `why` and the web UI."""

from __future__ import annotations

from stoker.engine.model import HostResources
from stoker.engine.store.database import Database
from stoker.engine.store.meta import get_meta, set_meta

_KEY = "host_resources"


def publish(db: Database, resources: HostResources) -> None:
    """Record the resources as `cores=16 memory=68719476736 need:licence=2`."""
    values = {"cores": resources.cores, "memory": resources.memory}
    words = [f"{key}={value}" for key, value in values.items() if value is not None]
    words += [f"need:{name}={amount}" for name, amount in resources.counters]
    set_meta(db, _KEY, " ".join(words))


def published(db: Database) -> HostResources | None:
    """Return the resources of the newest daemon; None if it did not publish any."""
    text = get_meta(db, _KEY)
    if text is None:
        return None
    values = {key: int(value) for key, _, value in (w.rpartition("=") for w in str(text).split())}
    counters = ((key[5:], value) for key, value in values.items() if key.startswith("need:"))
    return HostResources(values.get("cores"), values.get("memory"), tuple(counters))
