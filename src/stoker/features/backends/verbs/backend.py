"""`stoker backend`: add, list, test and remove backends such as Slurm clusters."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, print_change, print_json, table
from stoker.client.live.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.client.submit.job_options import as_flag
from stoker.client.submit.parsed_options import make_spec, parse_options
from stoker.client.views.job import log_paths, result_words
from stoker.client.views.why import why
from stoker.engine.model import LOCAL
from stoker.engine.store import job_queries
from stoker.engine.store.meta import tag_base
from stoker.errors import Conflict, Unavailable, UsageError
from stoker.features.backends import store as backends
from stoker.features.backends.backend_requests import find_backend
from stoker.features.backends.nodes import UP, Node
from stoker.features.backends.options import CAPABILITIES, KINDS, RAY, SLURM, check_options
from stoker.features.backends.protocol import Rejected, Unreachable, open_backend
from stoker.features.backends.store import BackendRow
from stoker.features.backends.views import backend_json, nodes_summary
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.command_line import Option, Parsed, Verb, check_action, count
from stoker.text.durations import format_duration, parse_duration
from stoker.text.plurals import plural

_ACTIONS = ("add", "ls", "test", "rm")

VERB = Verb(
    "backend",
    "backend [ls | add NAME KIND | test NAME | rm NAME]",
    "Manage backends: other places than this host where jobs run (`submit --on NAME`). KIND is"
    " slurm or ray.",
    (
        Option(
            "--option",
            "add: option of the backend; for slurm, any option of sbatch: partition=gpu",
            "K=V",
            many=True,
        ),
        Option(
            "--folder",
            "add: folder for logs and outputs of jobs, on a file system that"
            " the nodes share (slurm: default in ~/.local/share/stoker)",
            "DIR",
        ),
        Option("--gpus", "test: number of GPUs of the probe job (default: 1)", "N", count),
        Option(
            "--timeout",
            "test: stop waiting after this long (default: 10m)",
            "TIME",
            lambda text: parse_duration(text, "s"),
        ),
    ),
    (
        ("stoker backend add lab slurm --option partition=gpu", ""),
        ("stoker backend test lab", "run a probe job and explain what fails"),
        ("stoker submit --on lab python train.py", ""),
        ("stoker backend ls", ""),
    ),
    words="actions",
)


def run(parsed: Parsed) -> int:
    action, *words = parsed.words or ["ls"]
    check_action("backend", action, _ACTIONS)
    queue = open_queue()
    if action == "ls":
        _check_words(action, words, 0)
        return _list(queue, parsed)
    if action == "add":
        _check_words(action, words, 2)
        return _add(queue, parsed, *words)
    _check_words(action, words, 1)
    return _test(queue, parsed, words[0]) if action == "test" else _remove(queue, parsed, words[0])


def _check_words(action: str, words: list[str], wanted: int) -> None:
    usage = {"ls": "ls", "add": "add NAME KIND", "test": "test NAME", "rm": "rm NAME"}[action]
    if len(words) > wanted:
        raise UsageError(f"unexpected argument `{words[wanted]}`", f"usage: stoker backend {usage}")
    if len(words) < wanted:
        missing = usage.split()[1 + len(words)]
        raise UsageError(f"{missing} is missing", f"usage: stoker backend {usage}")


def _add(queue: Queue, parsed: Parsed, name: str, kind: str) -> int:
    options = dict(text.lstrip("-").partition("=")[::2] for text in parsed["option"] or ())
    row = add_backend(queue, name, kind, options, parsed["folder"])
    words = f"added the backend {name}: {nodes_summary(row.nodes)}"
    if row.folder is not None:
        words += f"\nfiles of its jobs: {row.folder}"
    return print_change(
        parsed, f"{words}\ntry it with: stoker backend test {name}", backend=backend_json(row)
    )


def _remove(queue: Queue, parsed: Parsed, name: str) -> int:
    row = find_backend(queue.db, name)
    remove_backend(queue, name)
    kept = f"; the files of its jobs stay in {row.folder}" if row.folder else ""
    return print_change(parsed, f"removed the backend {name}{kept}", removed=name)


def _list(queue: Queue, parsed: Parsed) -> int:
    rows = backends.backends(queue.db)
    if parsed["json"]:
        print_json(backends=[{"name": "local", "kind": "local"}, *map(backend_json, rows)])
        return 0
    lines = [("local", "local", "this host", "-")]
    for row in rows:
        options = " ".join(f"{key}={value}" for key, value in row.options.items())
        lines.append((row.name, row.kind, row.problem or nodes_summary(row.nodes), options or "-"))
    print(table(("NAME", "KIND", "STATE", "OPTIONS"), lines))
    return 0


def _test(queue: Queue, parsed: Parsed, name: str) -> int:

    steps = []
    row = find_backend(queue.db, name)
    for step in probe(queue, row, parsed["timeout"] or 600.0, parsed["gpus"]):
        steps.append(step)
        if not parsed["json"]:
            mark = {True: "ok", False: "failed", None: "..."}[step.is_ok]
            print(f"{mark:<6}  {step.text}")
            sys.stdout.flush()
    is_ok = all(step.is_ok is not False for step in steps)
    if parsed["json"]:
        print_json(ok=is_ok, steps=[step._asdict() for step in steps])
    elif is_ok:
        notice(f"the backend {name} works")
    return 0 if is_ok else 1


_COMMAND = (
    'echo "stoker probe on $(hostname)"; echo "gpus=${CUDA_VISIBLE_DEVICES-}";'
    ' echo ok > "$STOKER_OUTPUT_DIR/probe"'
)


class Step(Record):
    """One step of the test. `is_ok` None: still going on."""

    text: str
    is_ok: bool | None


def probe(queue: Queue, row: BackendRow, timeout: float, gpus: int | None) -> Iterator[Step]:
    """Run the steps of the test; ends after the first that fails."""
    try:
        nodes = ask_nodes(queue, row)
    except Unavailable as error:
        yield Step(error.message, False)
        return
    with queue.db.transaction():
        backends.record_nodes(queue.db, row.name, nodes, time.time())
        backends.record_problem(queue.db, row.name, None, time.time())  # its driver tries again
    up = [node for node in nodes if node.state == UP]
    total = sum(node.gpus for node in up)
    yield Step(f"{plural(len(up), 'node')} with {plural(total, 'GPU')} up", bool(up))
    for node in nodes:
        if node.state != UP:
            yield Step(f"node {node.name} is {node.note or node.state}", None)
    if not up:
        return
    wanted = min(1, total) if gpus is None else gpus
    options = parse_options(
        {"on": row.name, "gpus": wanted, "name": "stoker-probe", "time_limit": 60.0}, as_flag
    )
    spec = make_spec(options, queue.settings, queue.devices())
    spec = spec._replace(argv=(_COMMAND,), context=spec.context._replace(cwd="/"))
    job = queue.submission().add([spec], time.time()).first
    queue.ensure_daemon()
    yield from _follow(queue, job, timeout)


def _follow(queue: Queue, job: int, timeout: float) -> Iterator[Step]:
    feed = ChangeFeed(queue.settings.state_dir)
    began, shown = time.monotonic(), ""
    try:
        while True:
            row = job_queries.job(queue.db, job)
            if row.state in FINAL:
                break
            if time.monotonic() - began > timeout:
                reason = "; ".join(why(queue.db, queue.settings, row))
                queue.cancel([job], 0.0)
                yield Step(
                    f"the probe job {job} did not finish in {format_duration(timeout)}: {reason}",
                    False,
                )
                return
            text = "; ".join(why(queue.db, queue.settings, row))
            if text != shown:
                shown = text
                yield Step(f"job {job}: {text}", None)
            feed.wait(1.0)
    finally:
        feed.close()
    seconds = format_duration(time.monotonic() - began)
    if row.state != "done":
        yield Step(f"the probe job {job} {row.state}: {result_words(row, queue.db)}", False)
        return
    yield Step(f"job {job} ran on {row.node} after {seconds}", True)
    yield from _check_files(queue, row)


def _check_files(queue: Queue, row: job_queries.JobRow) -> Iterator[Step]:
    """Whether log and output of the job have arrived here."""
    log = log_paths(queue.settings, row)[0]
    try:
        with open(log or "", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    if "stoker probe" not in text:
        yield Step(
            f"the log `{log}` of the job is not visible on this host: use a folder on a file "
            "system that the nodes share (stoker backend add ... --folder DIR)",
            False,
        )
        return
    output = os.path.join(os.path.dirname(log or ""), str(row.id), "probe")
    is_there = os.path.exists(output)
    if is_there:
        yield Step("log and output folder are visible on this host", True)
    else:
        yield Step(f"the output `{output}` of the job is not visible on this host", False)


_MARK = ".stoker-queue"  # file with the number and the state folder of the queue
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def add_backend(
    queue: Queue, name: str, kind: str, options: dict[str, str], folder: str | None
) -> BackendRow:
    """Add a backend, or change one of the same kind, after a first contact with its engine.

    Raises UsageError, Conflict, or Unavailable if the engine does not answer.
    """
    _check_name(name)
    if kind == LOCAL or kind not in KINDS:
        raise UsageError(
            f"`{kind}` is not a kind of backend",
            f"kinds: {', '.join(k for k in KINDS if k != LOCAL)}",
        )
    check_options(kind, options)
    known = backends.backend(queue.db, name)
    if known is not None and known.kind != kind:
        raise Conflict(
            f"`{name}` is a {known.kind} backend", f"remove it first: stoker backend rm {name}"
        )
    row = BackendRow(
        name=name,
        kind=kind,
        options=options,
        environment=_environment(kind),
        folder=_folder(queue, kind, name, folder, known),
        nodes=(),
        problem=None,
        checked_at=None,
    )
    nodes = ask_nodes(queue, row)
    if row.folder is not None:
        try:
            os.makedirs(row.folder, 0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create the folder `{row.folder}`: {error.strerror}") from None
        _take_folder(queue, row.folder)
    with queue.db.transaction():
        backends.add(queue.db, name, kind, options, row.folder, row.environment)
        backends.record_nodes(queue.db, name, nodes, time.time())
    return row._replace(nodes=tuple(nodes))


def _environment(kind: str) -> dict[str, str]:
    """The variables of this process that lead to the engine; the daemon may have others."""
    prefixes = {SLURM: ("SLURM_CONF",), RAY: ("RAY_ADDRESS", "RAY_AUTH_")}[kind]
    return {
        key: value for key, value in os.environ.items() if key == "PATH" or key.startswith(prefixes)
    }


def _check_name(name: str) -> None:
    if name == LOCAL:
        raise UsageError("`local` is this host; it is always there", "use another name")
    if not name or not set(name) <= _NAME_CHARS or name[0] in "-.":
        raise UsageError(
            f"`{name}` is not a valid name of a backend", "use letters, digits, - and _"
        )


def _take_folder(queue: Queue, folder: str) -> None:
    """Mark a folder as that of this queue. Raises Conflict if it is that of another one.

    Job ids are those of one queue, so two queues would overwrite each other's files.
    """
    own = f"{tag_base(queue.db)}"
    path = os.path.join(folder, _MARK)
    where = f"{os.path.abspath(queue.settings.state_dir)} on {os.uname().nodename}"
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"{own}\n{where}\n")
    except FileExistsError:
        with open(path, encoding="utf-8", errors="replace") as file:
            number, other = [*file.read().split("\n"), "", ""][:2]
        if number != own:
            raise Conflict(
                f"the folder `{folder}` holds files of another queue ({other})",
                "choose another one with --folder",
            ) from None
    except OSError as error:
        raise UsageError(f"cannot write to the folder `{folder}`: {error.strerror}") from None


def _folder(
    queue: Queue, kind: str, name: str, given: str | None, known: BackendRow | None
) -> str | None:
    """Where the files of jobs lie: on a file system that the nodes share, if they need one."""
    used = backends.folder_with_files(queue.db, name)
    if used is not None and given is not None and os.path.abspath(given) != used:
        raise Conflict(
            f"the files of the jobs of `{name}` are in {used}",
            "remove its jobs first, or add a backend with another name",
        )
    if given is not None:
        return os.path.abspath(given)
    if used is not None:
        return used
    if known is not None:
        return known.folder
    if not CAPABILITIES[kind].needs_shared_files:
        return None
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(base, "stoker", "backends", f"{name}-{os.uname().nodename}")


def ask_nodes(queue: Queue, row: BackendRow) -> list[Node]:
    """The nodes of a backend. Raises Unavailable if its engine does not answer."""
    backend = open_backend(row, queue.settings)
    try:
        return backend.nodes()
    except (Unreachable, Rejected) as error:
        raise Unavailable(f"the backend `{row.name}` cannot be used: {error}") from None
    finally:
        backend.close()


def remove_backend(queue: Queue, name: str) -> None:
    """Remove a backend. Raises Conflict if it has jobs that wait or run."""
    left = backends.unfinished_jobs(queue.db, name)
    if left:
        raise Conflict(
            f"{plural(left, 'job')} of the backend `{name}` {'has' if left == 1 else 'have'}"
            " not finished",
            f"cancel them first; `stoker ls --on {name}` lists them",
        )
    with queue.db.transaction():
        backends.remove(queue.db, name)
