"""Man pages, from the tables that parse the options: stoker(1) and stoker-COMMAND(1).

    python -m stoker.cli.man_pages FOLDER

The build hook writes them when a wheel is built (hatch_build.py), and the wheel installs them in
share/man/man1. They are roff for the `man` macros, without features of one formatter.
"""

from __future__ import annotations

import os
import sys

from stoker import __version__
from stoker.cli import help
from stoker.cli.main import ALIASES, VERBS, load
from stoker.core.formats.command_line import Verb, all_options

# As in docs/reference.md.
_EXIT_CODES = {
    "0": "Success.",
    "1": "The job does not exist, or its state does not allow the change.",
    "2": "The command line is not valid.",
    "65": "The host can never satisfy the request.",
    "69": "The daemon does not start, or ssh cannot connect.",
    "70": "The database is damaged or belongs to a newer release.",
    "74": "The output could not be written; changes are kept.",
    "75": "The disk is full or the database is busy: try again later.",
    "77": "The state folder belongs to another user, is not private, or is on a network file"
    " system.",
    "124": "A timeout expired.",
}
_ENVIRONMENT = {
    "STOKER_STATE_DIR": "The folder with the queue and the logs.",
    "STOKER_SETTINGS": "The settings file.",
    "STOKER_HOST, STOKER_CONTEXT": "The machine on which commands run, like --host.",
    "NO_COLOR": "Print no colors.",
}
_FILES = {
    "~/.config/stoker/settings.toml": "Settings.",
    "~/.local/state/stoker/HOST/": "The queue and the logs of this host.",
}


def man_pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    found = {"stoker.1": _main_page()}
    for name in VERBS:
        found[f"stoker-{name}.1"] = _page(load(name).VERB, VERBS[name])
    for alias, name in ALIASES.items():
        found[f"stoker-{alias}.1"] = f".so man1/stoker-{name}.1\n"
    return found


def _main_page() -> str:
    lines = [
        *_head("stoker", "schedule jobs on the GPUs of this host, or of another one over ssh"),
        ".SH SYNOPSIS",
        r"\fBstoker\fR [\fB\-\-host\fR \fIHOST\fR] [\fICOMMAND\fR] [\fIOPTIONS\fR]",
        ".SH DESCRIPTION",
        "Stoker takes commands, runs each on the right GPU as soon as one is free, and loses none."
        " Without a command, it shows GPUs, running jobs and waiting jobs.",
        ".PP",
        "A background daemon starts on first use. Stopping it does not stop jobs.",
        ".SH COMMANDS",
    ]
    for name, summary in VERBS.items():
        lines += [".TP", rf"\fBstoker\-{_text(name)}\fR(1)", _line(_sentence(summary))]
    lines += [".SH OPTIONS"]
    lines += [".TP", r"\fB\-\-host\fR \fIHOST\fR", "Run the command on another machine over ssh."]
    lines += [".TP", r"\fB\-\-json\fR", "Print JSON instead of text, where a command prints data."]
    lines += [".TP", r"\fB\-\-version\fR", "Print the version."]
    lines += [".SH SELECTING JOBS", *_literal(help.SELECTORS.split("\n"))]
    for title, table in (
        ("EXIT STATUS", _EXIT_CODES),
        ("ENVIRONMENT", _ENVIRONMENT),
        ("FILES", _FILES),
    ):
        lines.append(f".SH {title}")
        for name, text in table.items():
            lines += [".TP", rf"\fB{_text(name)}\fR", _line(text)]
    lines += [".SH EXAMPLES", *_literal(help.FIRST_STEPS)]
    names = ", ".join(rf"\fBstoker\-{_text(name)}\fR(1)" for name in VERBS)
    return "\n".join([*lines, ".SH SEE ALSO", names]) + "\n"


def _page(verb: Verb, summary: str) -> str:
    lines = [
        *_head(f"stoker-{verb.name}", summary),
        ".SH SYNOPSIS",
        rf"\fBstoker\fR {_text(verb.usage)}",
        ".SH DESCRIPTION",
        _line(verb.summary),
    ]
    for block in verb.text.strip().split("\n\n") if verb.text else ():
        lines += _block(block.split("\n"))
    lines.append(".SH OPTIONS")
    for option in all_options(verb):
        names = ", ".join(rf"\fB{_text(name)}\fR" for name in option.names.split())
        value = option.value_words
        if value:
            names += rf"\fI{_text(value)}\fR" if value[0] == " " else _text(value)
        lines += [".TP", names, _line(_sentence(option.help))]
    if verb.examples:
        lines.append(".SH EXAMPLES")
        for line, comment in verb.examples:
            lines += _literal([line])
            if comment:
                lines += [_line(f"({comment})")]
    aliases = [alias for alias, target in ALIASES.items() if target == verb.name]
    if aliases:
        words = " and ".join(rf"\fBstoker {_text(alias)}\fR" for alias in aliases)
        lines += [".SH ALIASES", words]
    return "\n".join([*lines, ".SH SEE ALSO", r"\fBstoker\fR(1)"]) + "\n"


def _head(name: str, summary: str) -> list[str]:
    title = _text(name.upper())
    return [
        r".\" Generated from the tables of the command line; see cli/man_pages.py.",
        f'.TH {title} 1 "" "Stoker {__version__}" "Stoker Manual"',
        ".nh",  # no hyphenation: options would be hard to copy
        ".ad l",
        ".SH NAME",
        rf"{_text(name)} \- {_text(summary)}",
    ]


def _block(lines: list[str]) -> list[str]:
    """A paragraph; lines that begin with a space are kept as they are."""
    found: list[str] = []
    text: list[str] = []
    kept: list[str] = []
    for line in [*lines, ""]:
        if line.startswith(" "):
            kept.append(line)
            continue
        if kept:
            found += [*([".PP", _line(" ".join(text))] if text else []), *_literal(kept)]
            text, kept = [], []
        if line:
            text.append(line)
    return [*found, ".PP", _line(" ".join(text))] if text else found


def _literal(lines: list[str]) -> list[str]:
    return [".PP", ".RS 4", ".nf", *map(_line, lines), ".fi", ".RE", ".PP"]


def _sentence(text: str) -> str:
    """The help text of an option as a sentence; names of programs keep their spelling."""
    first = text.partition(" ")[0]
    text = text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
    return text if text.endswith((".", "?")) else f"{text}."


def _line(text: str) -> str:
    """A line of text; a leading dot or quote would be a request."""
    escaped = _text(text)
    return rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _text(text: str) -> str:
    """Escape the characters that roff would change: quotes and dashes must stay copyable."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    text = text.replace("`", r"\(ga").replace("^", r"\(ha").replace("~", r"\(ti")
    return text.replace("·", r"\(bu")  # plain ASCII has no middle dot


def main(arguments: list[str]) -> int:
    """Write the pages into a folder, and remove other pages from it. Returns 0."""
    (folder,) = arguments
    os.makedirs(folder, exist_ok=True)
    pages = man_pages()
    for name in set(os.listdir(folder)) - pages.keys():
        os.unlink(os.path.join(folder, name))
    for name, text in pages.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
