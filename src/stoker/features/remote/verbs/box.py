"""`stoker box`: the end of `stoker --host` on the box. Not for users, and not in `stoker help`.

    stoker box VERB SETTINGS WORDS...

runs a command with settings that no user gives: a JSON object, in which unknown keys are ignored.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from stoker.errors import Unavailable, UsageError
from stoker.text.command_line import Option, Parsed, Verb, parse

Settings = dict[str, Any]

VERB = Verb(
    "box",
    "box VERB SETTINGS WORDS...",
    "Used by `stoker --host` on the other machine.",
    keeps_words=True,
    words="actions",
)
_SELECT = Verb("select", "select JOB...", "Select jobs.", words="jobs")
_PULL = Verb("pull", "pull JOB...", "Send files.", (Option("--sweep", "", "NAME"),), words="jobs")


def run(parsed: Parsed) -> int:
    if len(parsed.words) < 2 or parsed.words[0] not in _ACTIONS:
        raise UsageError(
            f"this Stoker cannot do `{' '.join(parsed.words[:1])}` for another machine",
            "upgrade Stoker on this machine",
        )
    return _ACTIONS[parsed.words[0]](json.loads(parsed.words[1]), parsed.words[2:])


def _submit(settings: Settings, words: list[str]) -> int:
    from stoker.cli.verbs import submit

    parsed = parse(submit.VERB, words)
    _receive_stdin(settings["bytes"])
    parsed.values.update(token=settings["token"], sync=None, program=settings.get("program"))
    return submit.run(parsed)


def _sweep(settings: Settings, words: list[str]) -> int:
    from stoker.features.sweeps.verbs import sweep

    parsed = parse(sweep.VERB, words)
    parsed.values.update(token=settings["token"], sync=None, program=settings.get("program"))
    return sweep.run(parsed)


def _receive_stdin(size: int) -> None:
    """Replace stdin by a file with all of its bytes; a submit of it can be repeated."""
    data = sys.stdin.buffer.read()
    if len(data) != size:
        raise Unavailable(
            f"only {len(data)} of {size} bytes of the job file arrived; no job was queued"
        )
    copy = os.memfd_create("stdin")
    with open(copy, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(copy, 0, os.SEEK_SET)
    os.dup2(copy, 0)


def _log(settings: Settings, words: list[str]) -> int:
    from stoker.cli.verbs import log

    return log.stream(parse(log.VERB, words), settings)


def _wait(settings: Settings, words: list[str]) -> int:
    from stoker.cli.verbs import wait

    parsed = parse(wait.VERB, words)
    if "timeout" in settings:
        parsed.values["timeout"] = settings["timeout"]
    if "jobs" in settings:
        parsed.values["selected"] = settings["jobs"]
    return wait.run(parsed)


def _select(settings: Settings, words: list[str]) -> int:
    """Print what a `wait` waits for, as selectors: `3-9` for a range of ids without gaps."""
    from stoker.cli.open_queue import open_queue
    from stoker.cli.output import print_json
    from stoker.engine.store.waited_jobs import select_waited

    print_json(jobs=select_waited(open_queue().db, parse(_SELECT, words).words).words())
    return 0


def _results(settings: Settings, words: list[str]) -> int:
    from stoker.features.results.verbs import results

    return _to_stdout(results, words)


def _plot(settings: Settings, words: list[str]) -> int:
    from stoker.features.results.verbs import plot

    return _to_stdout(plot, words)


def _report(settings: Settings, words: list[str]) -> int:
    from stoker.features.results.verbs import report

    return _to_stdout(report, words)


def _to_stdout(module: Any, words: list[str]) -> int:
    parsed = parse(module.VERB, words)
    parsed.values["to_stdout"] = True
    return int(module.run(parsed))


def _web(settings: Settings, words: list[str]) -> int:
    from stoker.cli.verbs import web

    return web.serve_tunnel(parse(web.VERB, words), settings["port"])


def _words(settings: Settings, words: list[str]) -> int:
    from stoker.cli.completion.words import print_words

    return print_words(words)


def _sync(settings: Settings, words: list[str]) -> int:
    from stoker.features.remote import sync_receiver

    folder = os.path.expanduser(settings["folder"])
    if words == ["plan"]:
        print(json.dumps(sync_receiver.plan(folder, json.load(sys.stdin)["files"])))
    elif words == ["receive"]:
        sync_receiver.receive(folder, sys.stdin.buffer)
    else:
        sync_receiver.finish(folder)
    return 0


def _pull(settings: Settings, words: list[str]) -> int:
    from stoker.features.artifacts.verbs import pull
    from stoker.features.remote.pull_stream import send

    parsed = parse(_PULL, words)
    send(pull.find_files(parsed), json.load(sys.stdin)["have"], sys.stdout.buffer)
    return 0


_ACTIONS = {
    "submit": _submit,
    "sweep": _sweep,
    "log": _log,
    "wait": _wait,
    "select": _select,
    "results": _results,
    "plot": _plot,
    "report": _report,
    "web": _web,
    "words": _words,
    "sync": _sync,
    "pull": _pull,
}
