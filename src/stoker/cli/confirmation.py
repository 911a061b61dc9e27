"""What a command is about to do: `--dry-run` shows it, and on a terminal the user is asked."""

from __future__ import annotations

import sys

from stoker.cli.output import notice, plural, print_json
from stoker.text.command_line import Option, Parsed

YES = Option("-y --yes", "do not ask for confirmation (only asked on a terminal)")
DRY_RUN = Option("--dry-run", "show what would be done, and do nothing")


def print_plan(parsed: Parsed, text: str, **content: object) -> int:
    """Print what a command would do (`--dry-run`), as text or as JSON. Returns the exit code 0."""
    if parsed["json"]:
        print_json(**content)
    else:
        print(f"{text} (--dry-run)")
    return 0


def print_kept(folders: list[str]) -> None:
    """Print where the files are that removed jobs created in their snapshots."""
    for folder in folders:
        notice(f"kept files that jobs created in their snapshot: {folder}")


def print_marked(count: int) -> None:
    """Say that jobs were kept because they have a note or a star."""
    if count:
        notice(f"kept {plural(count, 'job')} with a star or a note; stoker rm ID... removes them")


def is_asked(parsed: Parsed) -> bool:
    """Whether `is_confirmed` asks."""
    return not parsed["yes"] and not parsed["json"] and can_ask()


def can_ask() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())


def is_confirmed(parsed: Parsed, question: str, unchanged: str) -> bool:
    """Ask for confirmation on a terminal; scripts are not asked. `unchanged`: the reply to no."""
    if not is_asked(parsed):
        return True
    try:
        notice(f"{question}? [y/N] ", end="")
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        notice(f"\n{unchanged}")
        raise
    if answer.strip().lower() in ("y", "yes"):
        return True
    notice(unchanged if answer else f"\n{unchanged}")  # Ctrl-D leaves the cursor in the question
    return False
