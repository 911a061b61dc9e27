"""Help texts, wrapped between words to the width of the terminal."""

from __future__ import annotations

import textwrap

from stoker.cli.output import columns
from stoker.text.command_line import Verb, all_options

_PIPE_WIDTH = 100
_NARROW = 60  # below this width, the description of an option starts on its own line
_NAMES_WIDTH = 28


SELECTORS = """How to select jobs, wherever a command takes JOB:
  7  3-9  1,4,7     ids and ranges of ids
  @  @~1            the last submitted job, the one before it
  running failed    a state: held queued starting running stopping done failed cancelled lost
  waiting active final all
                    groups of states
  7_3  7_3-5        index 3 of the array 7, indices 3 to 5
  array:7           all jobs of the array 7
  sweep:NAME        the jobs of a sweep
  starred           jobs with a star, see `stoker star`
  NAME  TAG         all jobs with that name or tag (name:X or tag:X if X is also a state)"""

FIRST_STEPS = [
    "stoker submit python train.py --lr 0.1",
    "stoker log -f @",
    "stoker run --devices 0,1 jobs.txt",
]


def overview(verbs: dict[str, str]) -> str:
    """The text of `stoker help`. `verbs` maps each command to its one-line summary."""
    width = columns() or _PIPE_WIDTH
    more = (
        "`stoker COMMAND --help` shows options and examples; `stoker help selectors` explains how"
        " to select jobs."
    )
    return "\n".join(
        (
            "usage: stoker [--host HOST] [COMMAND] [OPTIONS]\n",
            "Schedule jobs on the GPUs of this host, or of another one over ssh (--host).\n",
            "commands:",
            *(two_columns(name, summary, width, 12) for name, summary in verbs.items()),
            "",
            wrap(more, width),
            "",
            "first steps:",
            *(f"  {line}" for line in FIRST_STEPS),
        )
    )


def help_text(verb: Verb) -> str:
    """The text of `stoker VERB --help`."""
    width = columns() or _PIPE_WIDTH
    parts = [wrap(f"usage: stoker {verb.usage}", width, "    "), "", wrap(verb.summary, width)]
    if verb.text:
        parts += ["", wrap_text(verb.text.strip(), width)]
    parts += ["", "options:"]
    for option in all_options(verb):
        names = ", ".join(option.names.split()) + option.value_words
        parts.append(two_columns(names, option.help, width, _NAMES_WIDTH))
    if verb.examples:
        parts += ["", "examples:"]
        for line, comment in verb.examples:
            parts.append(f"  {line}")  # not wrapped, so that it can be copied
            if comment:
                parts.append(wrap(f"      {comment}", width, "      "))
    return "\n".join(parts)


def two_columns(left: str, right: str, width: int, left_width: int) -> str:
    """A name and its description, indented by two spaces."""
    if width < _NARROW:
        return f"  {left}\n" + wrap(" " * 6 + right, width, " " * 6)
    indent = " " * (left_width + 2)
    if len(left) >= left_width - 1:
        return f"  {left}\n" + wrap(indent + right, width, indent)
    return wrap(f"  {left:<{left_width}}{right}", width, indent)


def wrap_text(text: str, width: int) -> str:
    """Fill paragraphs; keep lines that start with a space (tables, examples) as lines."""
    out: list[str] = []
    for block in text.split("\n\n"):
        lines: list[str] = []
        for line in block.split("\n"):
            if lines and not line.startswith(" ") and not lines[-1].startswith(" "):
                lines[-1] += " " + line
            else:
                lines.append(line)
        out.append("\n".join(wrap(line, width, _hanging_indent(line)) for line in lines))
    return "\n\n".join(out)


def _hanging_indent(line: str) -> str:
    depth = len(line) - len(line.lstrip())
    return " " * (depth + 2) if depth else ""


def wrap(text: str, width: int, indent: str = "") -> str:
    """Wrap one paragraph. `indent` starts every line but the first."""
    return textwrap.fill(
        text,
        max(width, len(indent) + 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
