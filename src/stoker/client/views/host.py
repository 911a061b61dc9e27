"""What jobs reserve of the cores, memory and counters of this host, as text and JSON."""

from __future__ import annotations

from stoker.engine.daemon.queue_snapshot import running_job
from stoker.engine.daemon.status import known_resources
from stoker.engine.model import HostResources
from stoker.engine.policy.host_share import (
    CORES,
    COUNTER,
    MEMORY,
    MILLI,
    claim_of_running,
    limits_of,
)
from stoker.engine.store import attempts, meta
from stoker.engine.store.database import Database
from stoker.engine.store.device_settings import load_devices
from stoker.record import Record
from stoker.settings import Settings, cpu_slots
from stoker.text.plurals import plural_word
from stoker.text.sizes import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class HostView(Record):
    """The resources of the host, and what its running jobs reserve of them."""

    resources: HostResources
    cores: float
    memory: int
    counters: dict[str, int]

    def words(self) -> str:
        """`5 of 16 cores, 20 GiB of 64 GiB of memory and 1 of 2 licence reserved`.

        Memory is left out if no job reserves any, and all of it if no job reserves anything.
        """
        total = self.resources
        words = []
        if total.cores is not None and self.cores:
            cores = plural_word(total.cores, "core")
            words.append(f"{self.cores:.3g} of {total.cores} {cores}")
        if total.memory is not None and self.memory:
            words.append(f"{format_size(self.memory)} of {format_size(total.memory)} of memory")
        words += [
            f"{self.counters[name]} of {amount} {name}"
            for name, amount in total.counters
            if self.counters[name]
        ]
        listed = " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
        return f"{listed} reserved" if listed else ""

    def as_json(self) -> dict[str, Any]:
        total = self.resources
        return {
            "cores": total.cores,
            "cores_reserved": self.cores,
            "memory_bytes": total.memory,
            "memory_reserved_bytes": self.memory,
            "counters": {
                name: {"total": amount, "reserved": self.counters[name]}
                for name, amount in total.counters
            },
            "words": self.words(),
        }


def load_host_view(db: Database, settings: Settings) -> HostView:
    """Sum up the claims of all attempts on this host that have not ended."""
    resources = known_resources(db, settings)
    slots = meta.get_meta(db, "cpu_slots")
    limits = limits_of(
        resources,
        int(str(slots)) if slots is not None else cpu_slots(settings),
        load_devices(db),
    )
    sums: dict[str, int] = {}
    for attempt in attempts.open_attempts(db, of_this_boot=True):
        for name, amount in claim_of_running(running_job(attempt, 0.0), limits).items():
            sums[name] = sums.get(name, 0) + amount
    return HostView(
        resources=resources,
        cores=sums.get(CORES, 0) / MILLI,
        memory=sums.get(MEMORY, 0),
        counters={name: sums.get(COUNTER + name, 0) for name, _ in resources.counters},
    )
