"""`stoker edit`: change a job that has not started."""

from __future__ import annotations

import os
import sys

from stoker.api import Queue
from stoker.cli.options import Option, Parsed, Verb, count, whole_number
from stoker.cli.output import print_json
from stoker.core.commands import display
from stoker.core.durations import parse_duration
from stoker.core.text import maybe_bytes, pack_words
from stoker.errors import Conflict, UsageError
from stoker.store import find

VERBS = {
    "edit": Verb(
        "edit",
        "edit [OPTIONS] JOB",
        "Change a waiting job by flags, or its command in $EDITOR when no flag is given.",
        (
            Option("-c --command", "the new command, as shell text", "TEXT"),
            Option("-G --gpus", "GPUs", "N", count),
            Option("-n --name", "name", "NAME"),
            Option("-p --priority", "priority", "N", whole_number),
            Option(
                "-t --time-limit", "time limit (bare: minutes; 0: none)", "TIME", parse_duration
            ),
            Option("-r --retries", "retries", "N", count),
        ),
        (("stoker edit 7 --gpus 2", ""), ("stoker edit 7", "opens your editor")),
        words="jobs",
    )
}


def run(name: str, parsed: Parsed) -> int:
    queue = Queue()
    ids = queue.select(parsed.words)
    if len(ids) != 1:
        raise UsageError("which job? exactly one can be edited", "stoker edit 7 --gpus 2")
    row = find.job(queue.db, ids[0])
    if row.state not in ("held", "queued"):
        raise Conflict(
            f"job {row.id} is {row.state} and cannot be edited any more",
            f"`stoker rerun --hold {row.id}` makes a copy of an ended job to edit",
        )
    values: dict[str, object] = {}
    request = None if parsed["gpus"] is None else row.request._replace(gpus=parsed["gpus"])
    for key in ("priority", "retries"):
        if parsed[key] is not None:
            values[key] = parsed[key]
    if parsed["name"] is not None:
        values["name"] = maybe_bytes(parsed["name"] or None)
    if parsed["time_limit"] is not None:
        values["time_limit"] = parsed["time_limit"] or None
    text = parsed["command"]
    if text is None and not values and request is None:
        before = display(row.argv, row.shell)
        text = _in_editor(before)
        if text == before:
            return _say(parsed, f"job {row.id} is unchanged", None)
    if text is not None:
        if not text.strip() or "\0" in text:
            raise UsageError("the command is empty" if not text.strip() else "it holds a NUL byte")
        values["argv"], values["shell"] = pack_words((text,)), 1
    queue.edit(row.id, values, request)
    return _say(parsed, f"job {row.id} changed", row.id)


def _say(parsed: Parsed, text: str, changed: int | None) -> int:
    if parsed["json"]:
        print_json(changed=changed)
    else:
        print(text)
    return 0


def _in_editor(text: str) -> str:
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not sys.stdin.isatty():
        raise UsageError("nothing to change was given", "use flags, or set EDITOR on a terminal")
    with tempfile.NamedTemporaryFile("w+", suffix=".sh", errors="surrogateescape") as file:
        file.write(text + "\n")
        file.flush()
        if subprocess.run(["/bin/sh", "-c", f'{editor} "$1"', "sh", file.name]).returncode:
            raise Conflict("the editor failed; the job is unchanged")
        with open(file.name, errors="surrogateescape") as edited:
            return edited.read().rstrip("\n")
