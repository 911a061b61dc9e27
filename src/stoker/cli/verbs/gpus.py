"""`stoker gpus`: the cards, who is on them, and whether they are used."""

from __future__ import annotations

from stoker.cli.open_queue import open_queue
from stoker.cli.output import as_json, print_json, report_change, table
from stoker.client.gpu_views import GpuView, load_gpu_views
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Option, Parsed, Verb, count
from stoker.core.model import Device
from stoker.core.policy.placement import is_named
from stoker.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ACTIONS = ("drain", "restore", "slots")

VERB = Verb(
    "gpus",
    "gpus [drain|restore GPU... | slots N GPU...]",
    "Show the cards: memory, load, jobs, strangers, holders. Or change how they are used.",
    (Option("-w --watch", "keep showing it; Ctrl-C ends (--json: a line at each change)"),),
    (
        ("stoker gpus", ""),
        ("stoker gpus drain 3", "its jobs finish, no more are started there"),
        ("stoker gpus restore 3", "use it again, also after trouble"),
        ("stoker gpus slots 2 0 1", "two jobs without --gpu-mem share each of these cards"),
    ),
    words="actions",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed.words:
        return _change(queue, parsed)
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(queue, lambda room: _render(load_gpu_views(queue.db, queue.settings)),
                     (lambda: _as_json(queue)) if parsed["json"] else None)  # fmt: skip
    if parsed["json"]:
        print_json(**_as_json(queue))
    else:
        print(_render(load_gpu_views(queue.db, queue.settings)))
    return 0


def _as_json(queue: Queue) -> dict[str, Any]:
    cards, trouble = load_gpu_views(queue.db, queue.settings)
    return {"gpus": [card.as_json() for card in cards], "trouble": trouble}


def _render(found: tuple[list[GpuView], str | None]) -> str:
    cards, trouble = found
    parts = []
    rows: list[tuple[object, ...]] = []
    for card in cards:
        facts = (
            card.device.visible, card.device.model or "-", card.memory_words(), card.load_words(),
            card.heat_words(), card.state,
        )  # fmt: skip
        tenants = card.tenant_words()
        rows.append((*facts, tenants[0] if tenants else "-"))
        rows += [("", "", "", "", "", "", line) for line in tenants[1:]]
    if rows:
        parts.append(table(("GPU", "MODEL", "MEMORY", "UTIL", "TEMP", "STATE", "ON IT"), rows))
    if trouble is not None:
        parts.append(trouble)
    return "\n".join(parts) or "no GPU"


def _change(queue: Queue, parsed: Parsed) -> int:
    action, *words = parsed.words
    if action not in _ACTIONS:
        raise UsageError(f"`{action}`: what should be done?", f"one of: {', '.join(_ACTIONS)}")
    slots = None
    if action == "slots":
        if not words:
            raise UsageError("how many slots?", "stoker gpus slots 2 0 1")
        slots = count(words.pop(0))
        if not 1 <= slots <= 64:
            raise UsageError(f"{slots} slots make no sense", "1 to 64")
    devices = _named(queue, words)
    for device in devices:
        if action == "drain":
            queue.decide_card(device.uuid, drained=1)
        elif action == "restore":
            queue.decide_card(device.uuid, drained=0, quarantine=None)
        else:
            queue.decide_card(device.uuid, slots=slots)
    done = {"drain": "drained: no more jobs start there", "restore": "in use again",
            "slots": f"now with {slots} slots each"}[action]  # fmt: skip
    names = ", ".join(device.visible for device in devices)
    report_change(as_json(changed=[device.uuid for device in devices]) if parsed["json"] else
                  f"gpu {names} {done}")  # fmt: skip
    return 0


def _named(queue: Queue, words: list[str]) -> list[Device]:
    devices = queue.devices()
    if not words:
        raise UsageError("which GPU?", "give indices or UUIDs, or `all`")
    if words == ["all"] and devices:
        return list(devices)
    if not devices:
        raise NotFound("there is no GPU on this host")
    found = []
    for word in words:
        matches = [device for device in devices if is_named(device, (word,))]
        if not matches:
            raise NotFound(f"there is no GPU `{word}`", "`stoker gpus` shows them")
        found += matches
    return found
