"""`stoker backend`: add, list, test and remove backends such as Slurm clusters."""

from __future__ import annotations

import sys

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, print_change, print_json, table
from stoker.client.queue import Queue
from stoker.errors import UsageError
from stoker.features.backends import store as backends
from stoker.features.backends.backend_requests import find_backend
from stoker.features.backends.views import backend_json, nodes_summary
from stoker.text.command_line import Option, Parsed, Verb, count
from stoker.text.durations import parse_duration

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
    if action not in _ACTIONS:
        raise UsageError(
            f"`{action}` is not an action of `stoker backend`", f"actions: {', '.join(_ACTIONS)}"
        )
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
    from stoker.features.backends.administration import add_backend

    options = dict(text.lstrip("-").partition("=")[::2] for text in parsed["option"] or ())
    row = add_backend(queue, name, kind, options, parsed["folder"])
    words = f"added the backend {name}: {nodes_summary(row.nodes)}"
    if row.folder is not None:
        words += f"\nfiles of its jobs: {row.folder}"
    return print_change(
        parsed, f"{words}\ntry it with: stoker backend test {name}", backend=backend_json(row)
    )


def _remove(queue: Queue, parsed: Parsed, name: str) -> int:
    from stoker.features.backends.administration import remove_backend

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
    from stoker.features.backends.probe import probe

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
