"""`stoker run`: a job file, stdin or one command in the foreground."""

from __future__ import annotations

import os
import sys
import time
import zlib

from stoker import board
from stoker.cli.lines import check_file
from stoker.cli.options import Option, Parsed, Verb, count
from stoker.cli.output import print_json, tell
from stoker.cli.run_screen import Screen, log_path
from stoker.cli.run_sources import LineSource, WordSource
from stoker.cli.specs import JOB_OPTIONS, SpecMaker, base_of
from stoker.cli.wait import code_of
from stoker.core.commands import display
from stoker.core.model import CardState, Device
from stoker.core.space import is_named
from stoker.core.states import WAITING
from stoker.core.terminal import printable
from stoker.daemon.cards import Cards, WatchedCards
from stoker.daemon.foreground import Foreground, done_commands, remove_store
from stoker.daemon.lookout import find_cards
from stoker.daemon.loop import Host
from stoker.devices.probe import has_driver, parse_devices
from stoker.devices.watch import sample_once
from stoker.errors import Conflict, UsageError
from stoker.settings import Settings, cpu_slots, load_settings, prepare_state_dir
from stoker.store import changes, find
from stoker.store.database import FILE_NAME, Database, open_database
from stoker.store.ledger import store_tag
from stoker.supervisor import locks
from stoker.supervisor.runner import boot_id
from stoker.supervisor.spare_logs import PREFIX as SPARE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.cli.run_sweep import SweepSource
    from stoker.sweeps.spec import SweepSpec

_RUN_JOB_KEYS = (
    "gpus",
    "gpu_mem",
    "gpu_ids",
    "prefer",
    "gpu_model",
    "min_gpu_mem",
    "exclusive",
    "on_oom",
    "cwd",
    "env",
    "env_file",
    "time_limit",
    "grace",
    "signal",
    "retries",
    "keep_children",
)

VERBS = {
    "run": Verb(
        "run",
        "run [OPTIONS] FILE | - | [--] COMMAND...",
        "Run jobs in the foreground, without the daemon: as many at a time as there are devices.",
        (
            Option("-g --devices", "0,1,1,2: a repeated device is another slot; 0+1 is a pair",
                   "LIST"),
            Option("--gpu-file", "a file that says which cards may be used; may change", "FILE"),
            Option("-j --jobs", "without GPUs: so many at a time (default: cores)", "N", count),
            Option("-f --file", "the job file, or - for stdin", "FILE"),
            Option("-l --log-dir", "keep logs and records there", "DIR"),
            Option("--stream", "jobs write to this terminal instead of log files"),
            Option("--resume", "skip what already succeeded in the same log folder"),
            Option("-q --quiet", "no progress line"),
            *(o for o in JOB_OPTIONS if o.key in _RUN_JOB_KEYS),
        ),
        (
            ("stoker run --devices 0,1 jobs.txt", ""),
            ("stoker run --devices 0,0,1 --resume jobs.txt", "two at a time on gpu 0"),
            ("stoker run --devices 0,1 sweep.toml", "a sweep; again: only what is missing"),
            ("tail -f -n 0 queue | stoker run --devices 0,1 -", "a queue in a file"),
            ("stoker run python train.py", "one job: streams, and returns its exit code"),
        ),
        """A file or stdin: one job a line; the exit code is the number of failed jobs, 101 for more
than 100. A command: its own exit code. Ctrl-C (or SIGUSR1) once: start nothing more and let running
jobs finish; twice, or SIGTERM: cancel them. With a single command, once is enough.""",
        keeps_words=True,
        words="files",
    )
}  # fmt: skip
_KINDS = ("log", "jsonl", "stop", "requeue")  # endings of files that jobs leave in a log folder
_OPEN = CardState()


def run(name: str, parsed: Parsed) -> int:
    settings = load_settings()
    if parsed["gpu_file"] is not None:
        settings = settings._replace(gpu_file=os.path.abspath(parsed["gpu_file"]))
    path = _file_of(parsed)
    sweep = _sweep_of(path)
    folder = _folder(parsed, settings, path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder `{folder}`: {error.strerror}") from None
    lock = _lock(folder, settings)
    if not parsed["resume"] and sweep is None:  # a sweep lasts: it goes on where it was
        _begin_anew(folder)
    db = open_database(folder, durable=False)
    if parsed["resume"] or sweep is not None:
        _forget_waiting(db)
    cards = _cards(parsed, settings, store_tag(db))
    maker = SpecMaker(settings, _usable(cards), parsed)
    source: LineSource | WordSource | SweepSource
    if sweep is not None:
        from stoker.cli.run_sweep import SweepSource

        source = SweepSource(db, folder, sweep, base_of(settings, _usable(cards), sweep, parsed),
                             _at_a_time(cards, parsed, settings))  # fmt: skip
    elif path is None:
        source = WordSource(maker.command(parsed.words))
    else:
        if path != "-":
            check_file(path, maker.line)
        source = LineSource(path, maker, done_commands(db) if parsed["resume"] else {})
    streams = bool(parsed["stream"]) or path is None
    screen = Screen(parsed, db, folder, streams, source)
    slots = parsed["jobs"] or cpu_slots(settings)
    engine = Foreground(
        db, source, Host(slots, boot_id()), cards, settings._replace(state_dir=folder), screen,
        lambda job, number: None if streams else log_path(folder, job, number),
        lambda job: os.path.join(folder, str(job)),
        cancels_at_once=path is None,
    )  # fmt: skip
    screen.engine = engine
    engine.work(screen.tick)
    screen.close()
    os.close(lock)
    return _end(parsed, db, folder, source, screen, engine.interrupts, path is None)


def _file_of(parsed: Parsed) -> str | None:
    """The job file that is meant, or None when the words are a command."""
    if parsed["file"] is not None:
        return str(parsed["file"])
    words = parsed.words
    if not words:
        if sys.stdin.isatty():
            raise UsageError("there is nothing to run", "stoker run jobs.txt, or stoker run CMD...")
        return "-"
    if len(words) == 1 and not parsed.dashed:
        if words[0] == "-":
            return "-"
        if os.path.isfile(words[0]) and not os.access(words[0], os.X_OK):
            return str(words[0])
        if os.path.exists(words[0]) and not os.path.isfile(words[0]) \
                and not os.path.isdir(words[0]):  # a FIFO  # fmt: skip
            return words[0]
    return None


def _sweep_of(path: str | None) -> SweepSpec | None:
    """The sweep in a file that is one, by its name."""
    if path is None or not path.lower().endswith((".toml", ".yaml", ".yml")):
        return None
    from stoker.sweeps.files import load

    return load(path)


def _at_a_time(cards: Cards, parsed: Parsed, settings: Settings) -> int:
    slots = sum(device.slots for device in cards.devices)
    return slots or parsed["jobs"] or cpu_slots(settings)


def _cards(parsed: Parsed, settings: Settings, tag_base: int) -> Cards:
    """The devices of this run: named, simulated, or all that the driver tells of."""
    named = parsed["devices"]
    if named is None and not settings.devices:
        named = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    if named is None:
        cards = find_cards(settings, tag_base)
    else:
        devices = parse_devices(named)
        # Pairs such as 0+1 are devices of our own making; the driver knows nothing of them.
        if settings.devices or not has_driver() or any("," in d.visible for d in devices):
            return Cards(devices)
        # Inside a job, its cards are leased already, and to us as well.
        held = os.environ.get("STOKER_GPU_UUIDS", "").split(",")
        cards = WatchedCards(tag_base, settings.leases, settings.gpus_by_uuid, held)
        cards.use_only({device.visible: device.slots for device in devices})
    if isinstance(cards, WatchedCards):
        cards.hear(sample_once(), {})
        if cards.trouble is not None:
            tell(f"no GPU can be used: {cards.trouble}")
        elif named is not None:
            for name in (device.visible for device in parse_devices(named)):
                if not any(is_named(device, (name,)) for device in cards.devices):
                    raise UsageError(f"there is no GPU `{name}` on this host",
                                     "`stoker gpus` shows them")  # fmt: skip
    return cards


def _usable(cards: Cards) -> tuple[Device, ...]:
    """What a job of this run may ask for."""
    return tuple(d for d in cards.devices if cards.states.get(d.number, _OPEN).closed is None)


def _folder(parsed: Parsed, settings: Settings, path: str | None) -> str:
    if parsed["log_dir"]:
        return os.path.abspath(str(parsed["log_dir"]))
    prepare_state_dir(settings)
    os.makedirs(os.path.join(settings.state_dir, "runs"), 0o700, exist_ok=True)
    if path is None or path == "-":
        if parsed["resume"]:
            raise UsageError("--resume needs to know which run", "give --log-dir, or a job file")
        return os.path.join(settings.state_dir, "runs", f"{int(time.time() * 1000)}-{os.getpid()}")
    key = zlib.crc32(os.fsencode(os.path.realpath(path)))
    return os.path.join(settings.state_dir, "runs", f"{os.path.basename(path)}-{key:08x}")


def _lock(folder: str, settings: Settings) -> int:
    """Two runs in one folder would overwrite each other's records and logs."""
    if os.path.realpath(folder) == os.path.realpath(settings.state_dir):
        raise UsageError(f"`{folder}` is the queue's own folder", "give another --log-dir")
    try:
        return locks.take(folder, locks.RUN_LOCK)
    except Conflict:
        holder = locks.holder(folder, locks.RUN_LOCK)
        raise Conflict(f"another run uses `{folder}` (pid {holder})",
                       "wait for it, or give this one its own --log-dir") from None  # fmt: skip


def _begin_anew(folder: str) -> None:
    """Forget the last run here; its logs would otherwise be added to."""
    if os.path.exists(os.path.join(folder, FILE_NAME)):
        import shutil

        for name in os.listdir(folder):
            stem, _, kind = name.partition(".")
            is_ours = stem.isdigit() and kind.rpartition(".")[2] in _KINDS
            if is_ours or name.startswith(SPARE):
                os.unlink(os.path.join(folder, name))
            elif name.isdigit() and os.path.isdir(os.path.join(folder, name)):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    remove_store(folder)


def _forget_waiting(db: Database) -> None:
    """What a killed run left in its queue: the same lines are about to be read again."""
    left = [row.id for row in find.page(db, WAITING, 10**9)]
    changes.cancel(db, left, time.time())
    changes.remove(db, left)


def _end(
    parsed: Parsed,
    db: Database,
    folder: str,
    source: LineSource | WordSource | SweepSource,
    screen: Screen,
    interrupts: int,
    is_command: bool,
) -> int:
    if is_command:
        row = find.page(db, ("done", "failed", "cancelled", "lost", "queued"), 1, newest_first=True)
        code = code_of(row[0]) if row else 1
        if row and row[0].detail:
            tell(f"error: {row[0].detail}")
            if code == 127 and len(parsed.words) == 1 and not parsed.dashed:
                tell(f"hint: `{printable(parsed.words[0])}` is no job file either")
        return 130 if interrupts and row and row[0].state == "cancelled" else code
    if parsed["json"]:
        _print_results(db, folder)
    elif not parsed["quiet"]:
        skipped = f", {source.skipped} skipped (done before)" if source.skipped else ""
        failed = f", {screen.failed} failed" if screen.failed else ""
        where = "" if parsed["stream"] else f"; logs in {folder}"
        tell(f"{screen.done} done{failed}{skipped}{where}")
        if not isinstance(source, (LineSource, WordSource)):
            source.print_results()
    if interrupts:
        return 130
    return min(screen.failed, 101)


def _print_results(db: Database, folder: str) -> None:
    rows = find.page(db, ("done", "failed", "cancelled", "lost"), 10**9)
    print_json(log_dir=folder, jobs=[
        {"id": row.id, "state": row.state, "cause": row.cause,
         "command": display(row.argv, row.shell),
         "exit_code": board.exit_code(row), "signal": board.signal_number(row),
         "devices": list(row.devices), "attempts": row.attempts,
         "started_at": board.iso(row.started_at), "ended_at": board.iso(row.ended_at)}
        for row in rows])  # fmt: skip
