"""`stoker note`: write a note about a job or sweep, or print it."""

from __future__ import annotations

import os
import sys

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, print_change, print_json
from stoker.client.queue import Queue
from stoker.errors import Conflict, UsageError
from stoker.features.notes.client import MAX_BYTES, Targets, full_note_json, note_of, set_note
from stoker.features.notes.targets import SWEEP, chosen, counted
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.commands.shell_words import quote
from stoker.text.terminal import printable

VERB = Verb(
    "note",
    "note [OPTIONS] JOB|SWEEP [TEXT...]",
    "Write a note about a job or sweep. Without TEXT, print the note.",
    (
        Option("-a --append", "add TEXT as a new paragraph"),
        Option("-e --edit", "edit the note in $EDITOR"),
        Option("--clear", "remove the note"),
        Option("--previous", "print the note as it was before the last edit"),
        Option("--restore", "replace the note by the one before the last edit"),
        SWEEP,
    ),
    (
        ('stoker note 7 "diverges after step 900; lr too high?"', ""),
        ("stoker note brave-otter --append 'seed 2 is an outlier'", "a sweep"),
        ("stoker note 7 - < findings.md", "a longer text from stdin"),
        ("stoker note 7 --edit", "opens your editor"),
        ("stoker note 7", "prints the note"),
    ),
    """Several TEXT words are joined by spaces; several jobs are selected as 3-9 or 7,8. A note can
have many lines and contain Markdown. `stoker show` and `stoker report` include it. When a note is
replaced, the text before the edit is kept: --previous prints it and --restore brings it back.""",
    words="jobs",
)
_ACTIONS = ("append", "edit", "clear", "previous", "restore")


def run(parsed: Parsed) -> int:
    given = [name for name in _ACTIONS if parsed[name]]
    if len(given) > 1:
        raise UsageError(
            f"`--{given[0]}` and `--{given[1]}` cannot be combined", "give one of them"
        )
    queue = open_queue()
    selected, words = parsed.words[:1], parsed.words[1:]
    if parsed["sweep"]:
        selected, words = [], parsed.words
    targets = chosen(queue, parsed, selected)
    action = given[0] if given else "set" if words else "print"
    if action in ("edit", "clear", "previous", "restore") and words:
        raise UsageError(
            f"`--{action}` takes no text, but `{words[0]}` was given",
            "to write that text, leave the option out",
        )
    if action == "append" and not words:
        raise UsageError("`--append` needs a text", "example: stoker note 7 --append 'a sentence'")
    if action in ("print", "previous"):
        return _print(queue, targets, parsed, is_previous=action == "previous")
    return _change(queue, targets, parsed, action, words)


def _change(queue: Queue, targets: Targets, parsed: Parsed, action: str, words: list[str]) -> int:
    names = _names(targets)
    if action == "edit" and len(names) != 1:
        raise UsageError(
            f"`--edit` needs one job or sweep, not {counted(targets)}",
            "give a text to write the same note for all of them",
        )
    text = "" if not words else _stdin() if words == ["-"] else " ".join(words)
    if action == "set" and not text.strip():
        which = " ".join(map(quote, parsed.words[:1]))
        raise UsageError("the text is empty", f"to remove the note: stoker note {which} --clear")
    for name in names:
        before = note_of(queue, name)
        if action == "append":
            new = f"{before.text}\n\n{text.strip()}" if before.text else text.strip()
        elif action == "edit":
            new = _in_editor(before.text)
        elif action == "restore":
            new = before.previous
        else:
            new = text
        set_note(queue, name, new)
    done = {"clear": "removed from", "restore": "restored for"}.get(action, "written for")
    result = f"note {done} {_described(targets)}"
    return print_change(parsed, result, changed=len(names))


def _names(targets: Targets) -> list[int | str]:
    return [*targets.jobs, *targets.sweeps]


def _described(targets: Targets) -> str:
    """`job 7`, `sweep brave-otter`, or `3 jobs`."""
    if len(targets) != 1:
        return counted(targets)
    return f"job {targets.jobs[0]}" if targets.jobs else f"sweep {printable(targets.sweeps[0])}"


def _print(queue: Queue, targets: Targets, parsed: Parsed, *, is_previous: bool) -> int:
    known = [(name, note_of(queue, name)) for name in _names(targets)]
    if parsed["json"]:
        print_json(
            notes=[
                {
                    "job": None if isinstance(name, str) else name,
                    "sweep": name if isinstance(name, str) else None,
                    **full_note_json(one),
                }
                for name, one in known
            ]
        )
        return 0
    texts = []
    for name, one in known:
        text = one.previous if is_previous else one.text
        what = f"sweep {name}" if isinstance(name, str) else f"job {name}"
        if not text:
            previous = "previous " if is_previous else ""
            notice(f"{printable(what)} has no {previous}note")
            continue
        lines = [printable(line) for line in text.split("\n")]
        texts.append("\n".join([f"{printable(what)}:"] * (len(known) > 1) + lines))
    if texts:
        print("\n\n".join(texts))
    return 0


def _stdin() -> str:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    return data.decode("utf-8", "surrogateescape")


def _in_editor(text: str) -> str:
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not sys.stdin.isatty():
        raise UsageError(
            "`--edit` needs a terminal and an editor", "set EDITOR, or give the text as an argument"
        )
    with tempfile.NamedTemporaryFile("w+", suffix=".md", errors="surrogateescape") as file:
        file.write(text + "\n" if text else "")
        file.flush()
        if subprocess.run(["/bin/sh", "-c", f'{editor} "$1"', "sh", file.name]).returncode:
            raise Conflict("the editor failed; the note is unchanged")
        with open(file.name, errors="surrogateescape") as edited:
            return edited.read()
