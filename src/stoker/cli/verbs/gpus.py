"""`stoker gpus`: GPUs, the processes on them, and whether Stoker may use them."""

from __future__ import annotations

from typing import Any

from stoker.cli.open_queue import open_queue
from stoker.cli.output import as_json, plural, print_json, report_change, table
from stoker.client.queue import Queue
from stoker.client.views.gpus import GpuView, load_gpu_views
from stoker.client.views.host import load_host_view
from stoker.engine.model import MPS, TIME, Device
from stoker.engine.policy.eligible import is_named
from stoker.engine.store.idle_counts import idle_count
from stoker.errors import NotFound, UsageError
from stoker.features.backends import store as backends
from stoker.features.backends.backend_requests import find_backend, is_local
from stoker.features.backends.store import BackendRow
from stoker.text.command_line import Option, Parsed, Verb, check_action, count
from stoker.text.plurals import plural_word

_ACTIONS = ("drain", "restore", "slots", "share")

VERB = Verb(
    "gpus",
    "gpus [--history TIME | drain|restore GPU... | slots N GPU... | share mps|time GPU...]",
    "Show GPUs with their jobs, other processes and leases, or change how they are used.",
    (
        Option("--on", "only this backend; local is this host", "NAME"),
        Option(
            "--history",
            "what each GPU did in this time, and why it was idle while jobs waited, e.g. 24h or 7d",
            "TIME",
        ),
        Option("-v --verbose", "also show how GPUs are connected: NUMA node, near CPUs, NVLink"),
        Option("-w --watch", "refresh until Ctrl-C; with --json, print a line for each change"),
    ),
    (
        ("stoker gpus", ""),
        ("stoker gpus -v", "with NUMA nodes and NVLink"),
        ("stoker gpus --history 24h", "busy and idle time of each GPU, with reasons"),
        ("stoker gpus drain 3", "running jobs finish, and no more jobs start on it"),
        ("stoker gpus restore 3", "use it again after a drain or a GPU error"),
        ("stoker gpus slots 2 0 1", "two jobs without --gpu-mem share each of GPU 0 and 1"),
        ("stoker gpus share mps 0", "jobs share GPU 0 under NVIDIA's MPS; time: by time slices"),
    ),
    words="actions",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed["history"] is not None:
        return _show_history(queue, parsed)
    if parsed.words:
        return _change(queue, parsed)
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(
            queue,
            lambda room: _text(queue, parsed),
            (lambda: _as_json(queue, parsed)) if parsed["json"] else None,
        )
    if parsed["json"]:
        print_json(**_as_json(queue, parsed))
    else:
        print(_text(queue, parsed))
    return 0


def _show_history(queue: Queue, parsed: Parsed) -> int:
    from stoker.features.history.gpu_history import history_json, history_text
    from stoker.text.durations import parse_duration

    if parsed.words:
        raise UsageError(
            f"--history only shows GPUs, and `{parsed.words[0]}` changes them",
            "stoker gpus --history 24h",
        )
    if parsed["on"] is not None and not is_local(parsed["on"]):
        raise UsageError(
            f"--history shows the GPUs of this host, not of `{parsed['on']}`",
            "stoker gpus --history 24h",
        )
    seconds = parse_duration(parsed["history"], "h")
    if seconds <= 0:
        raise UsageError("--history needs a time above 0", "stoker gpus --history 24h")
    if parsed["watch"]:
        from stoker.cli.verbs.watch import watch

        return watch(
            queue,
            lambda room: history_text(queue, seconds),
            (lambda: history_json(queue.db, queue.settings, seconds)) if parsed["json"] else None,
        )
    if parsed["json"]:
        print_json(**history_json(queue.db, queue.settings, seconds))
    else:
        print(history_text(queue, seconds))
    return 0


def _backends(queue: Queue, parsed: Parsed) -> list[BackendRow]:
    """The backends to show. Raises NotFound for an unknown name."""
    if parsed["on"] is None:
        return backends.backends(queue.db)
    return [] if is_local(parsed["on"]) else [find_backend(queue.db, parsed["on"])]


def _as_json(queue: Queue, parsed: Parsed) -> dict[str, Any]:
    shown = _backends(queue, parsed)
    nodes = [{"on": row.name, **node._asdict()} for row in shown for node in row.nodes]
    if parsed["on"] is not None and shown:
        return {"gpus": [], "gpu_error": None, "nodes": nodes}
    gpus, error = _gpus(queue)
    host = load_host_view(queue.db, queue.settings).as_json()
    return {
        "gpus": [gpu.as_json() for gpu in gpus],
        "gpu_error": error,
        "host": host,
        "nodes": nodes,
        "idle_with_runnable_job": idle_count(queue.db).as_json(),
    }


def _text(queue: Queue, parsed: Parsed) -> str:
    shown = _backends(queue, parsed)
    nodes = [
        (row.name, node.name, node.gpus, node.used_gpus, node.model or "-", node.note or node.state)
        for row in shown
        for node in row.nodes
    ]
    parts = []
    if parsed["on"] is None or not shown:
        parts.append(_render(_gpus(queue), parsed["verbose"]))
        if reserved := load_host_view(queue.db, queue.settings).words():
            parts.append(reserved)
    if nodes:
        parts.append(table(("BACKEND", "NODE", "GPUS", "USED", "MODEL", "STATE"), nodes))
    parts += [f"backend {row.name}: {row.problem}" for row in shown if row.problem]
    return "\n\n".join(parts)


def _gpus(queue: Queue) -> tuple[list[GpuView], str | None]:
    """All GPUs with the jobs for which they are reserved, and the error of the driver or None."""
    from stoker.client.views.why import with_reservations

    found = load_gpu_views(queue.db, queue.settings)
    return with_reservations(queue.db, queue.settings, found), found[1]


def _render(found: tuple[list[GpuView], str | None], is_verbose: bool) -> str:
    gpus, error = found
    parts = []
    rows: list[tuple[object, ...]] = []
    has_slots = any(gpu.device.slots > 1 for gpu in gpus)
    header = (
        "GPU",
        "MODEL",
        "MEMORY",
        "UTIL",
        "TEMP",
        *(("SLOTS",) if has_slots else ()),
        *(("NUMA", "NEAR CPUS", "NVLINK") if is_verbose else ()),
        "STATE",
        "USED BY",
    )
    names = {gpu.device.uuid: gpu.device.visible for gpu in gpus}
    for gpu in gpus:
        facts = (
            gpu.device.visible,
            gpu.device.model or "-",
            gpu.memory_words(),
            gpu.load_words(),
            gpu.temperature_words(),
            *((gpu.device.slots,) if has_slots else ()),
            *(_connections(gpu.device, names) if is_verbose else ()),
            gpu.state,
        )
        users = gpu.user_words()
        rows.append((*facts, users[0] if users else "-"))
        rows += [(*("" for _ in facts), line) for line in users[1:]]
    if rows:
        parts.append(table(header, rows))
    if error is not None:
        parts.append(error)
    return "\n".join(parts) or "no GPUs found"


def _connections(device: Device, names: dict[str, str]) -> tuple[str, str, str]:
    """NUMA node, CPUs and the GPUs that NVLink connects, for cells."""
    linked = ",".join(names.get(uuid, uuid) for uuid in device.links)
    return "-" if device.numa is None else str(device.numa), device.cpus or "-", linked or "-"


def _change(queue: Queue, parsed: Parsed) -> int:
    action, *words = parsed.words
    check_action("gpus", action, _ACTIONS)
    slots = None
    if action == "slots":
        if not words:
            raise UsageError("no number of slots given", "example: stoker gpus slots 2 0 1")
        slots = count(words.pop(0))
        if not 1 <= slots <= 64:
            raise UsageError(f"the number of slots must be 1 to 64, not {slots}")
    share = _share(words) if action == "share" else None
    devices = _named(queue, words)
    for device in devices:
        if action == "drain":
            queue.change_device_settings(device.uuid, drained=1)
        elif action == "restore":
            queue.change_device_settings(device.uuid, drained=0, quarantine=None)
        elif action == "slots":
            queue.change_device_settings(device.uuid, slots=slots)
        else:
            queue.change_device_settings(device.uuid, share=share)
    them = "it" if len(devices) == 1 else "them"
    done = {
        "drain": "drained: running jobs finish, no more jobs start",
        "restore": f"restored: jobs can start on {them}",
        "share": "shared by time slices" if share == TIME else "shared under MPS",
        "slots": f"set to {plural(slots or 0, 'slot')}",
    }[action]
    names = ", ".join(device.visible for device in devices)
    report_change(
        as_json(changed=[device.uuid for device in devices])
        if parsed["json"]
        else f"{plural_word(len(devices), 'GPU')} {names} {done}"
    )
    return 0


def _share(words: list[str]) -> str:
    """Remove the way to share GPUs from the words of the command."""
    given = [word for word in words if word.lower() in (MPS, TIME)]
    if len(given) != 1:
        raise UsageError(
            "`stoker gpus share` needs one of mps and time", "example: stoker gpus share mps 0"
        )
    words.remove(given[0])
    return given[0].lower()


def _named(queue: Queue, words: list[str]) -> list[Device]:
    devices = queue.devices()
    if not words:
        raise UsageError("no GPU given", "give indices or UUIDs, or `all`")
    if words == ["all"] and devices:
        return list(devices)
    if not devices:
        raise NotFound("this host has no GPU")
    found = []
    for word in words:
        matches = [device for device in devices if is_named(device, (word,))]
        if not matches:
            raise NotFound(f"there is no GPU `{word}`", "`stoker gpus` lists the GPUs")
        found += matches
    return found
