"""Writes the pages that are printed from the code: `python docs/generate.py [--check] [PAGE...]`.

With `--check` nothing is written; the exit code is 1 when a page is stale. `make docs` runs this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from stoker.cli import help
from stoker.cli import main as cli
from stoker.core.formats.command_line import all_options
from stoker.core.states import ACTIVE, EVENTS, FINAL, TABLE, WAITING

FOLDER = Path(__file__).parent
MARK = "<!-- Printed by docs/generate.py; change the code and run `make docs`. -->"


def states_page() -> str:
    """The life of a job: what each event means, the table, the picture."""
    groups = {
        **dict.fromkeys(WAITING, "waiting"),
        **dict.fromkeys(ACTIVE, "active"),
        **dict.fromkeys(FINAL, "final"),
    }
    lines = [
        MARK,
        "",
        "# The life of a job",
        "",
        "A job is always in exactly one state, and events move it. An event that is not listed for",
        "a state is refused and changes nothing. Final states never change: a rerun is a new job.",
        "A retry is a new attempt of the same job, which goes back to `queued`. That somebody",
        "asked a job to stop is a fact beside its state, not a state.",
        "",
        *_diagram(),
        "",
        "## Events",
        "",
        "| event | meaning |",
        "|---|---|",
        *(f"| `{event}` | {meaning} |" for event, meaning in EVENTS.items()),
        "",
        "## Moves",
        "",
        "| state | group | event | next state |",
        "|---|---|---|---|",
    ]
    for state, moves in TABLE.items():
        for event, end in moves.items() or (("", ""),):
            arrow = f"`{event}` | `{end}`" if event else "none |"
            lines.append(f"| `{state}` | {groups[state]} | {arrow} |")
    return "\n".join(lines) + "\n"


def _diagram() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued", "    [*] --> held"]
    for state, moves in TABLE.items():
        ends: dict[str, list[str]] = {}
        for event, end in moves.items():
            ends.setdefault(end, []).append(event)
        for end, events in ends.items():
            lines.append(f"    {state} --> {end}: {', '.join(events)}")
    lines += [f"    {state} --> [*]" for state in FINAL]
    return [*lines, "```"]


def commands_page() -> str:
    """The reference of the command line, from the tables that parse it."""
    lines = [
        MARK,
        "",
        "# Commands",
        "",
        "`stoker COMMAND --help` prints the same. Options come before the words of a command that",
        "is to be queued: what follows its first word belongs to it.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    lines += [f"| [`{name}`](#{name}) | {_cell(text)} |" for name, text in cli.VERBS.items()]
    for name in cli.VERBS:
        lines += ["", *_command(name)]
    lines += ["", "## Selectors", "", "```text", help.SELECTORS, "```"]
    return "\n".join(lines) + "\n"


def _command(name: str) -> list[str]:
    verb = cli.load(name).VERB
    aliases = [alias for alias, target in cli.ALIASES.items() if target == name]
    lines = [f"## {name}", "", "```text", f"stoker {verb.usage}", "```", "", verb.summary]
    if aliases:
        lines += ["", "Also: " + ", ".join(f"`stoker {alias}`" for alias in aliases) + "."]
    if verb.text:
        lines += ["", "```text", verb.text.strip(), "```"]
    lines += ["", "| option | meaning |", "|---|---|"]
    for option in all_options(verb):
        value = f" {option.value}" if option.value else ""
        names = ", ".join(f"`{spelling}{value}`" for spelling in option.names.split())
        lines.append(f"| {_cell(names)} | {_cell(option.help)} |")
    if verb.examples:
        lines += ["", "```sh"]
        for line, comment in verb.examples:
            lines += [f"# {comment}", line] if comment else [line]
        lines.append("```")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


PAGES: dict[str, Callable[[], str]] = {"states.md": states_page, "commands.md": commands_page}


def main(words: list[str]) -> int:
    is_check = "--check" in words
    names = [word for word in words if word != "--check"] or list(PAGES)
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        print(f"error: `{unknown[0]}` is none of {', '.join(PAGES)}", file=sys.stderr)
        return 2
    stale = 0
    for name in names:
        path, text = FOLDER / name, PAGES[name]()
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if not is_check:
            path.write_text(text, "utf-8")
            continue
        print(f"error: docs/{name} is stale\nhint: make docs", file=sys.stderr)
        stale = 1
    return stale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
