"""A report as Markdown (CommonMark with the tables of GitHub).

Untrusted text is written as code spans, in which nothing is markup, or with its punctuation
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from stoker.features.results import note_markup, terminal_plot
from stoker.features.results.figure import Figure
from stoker.features.results.note_markup import Part, Span
from stoker.features.results.sweep_report_model import (
    COMMAND,
    SECTION,
    TITLE,
    Block,
    Quote,
    Report,
    blocks,
    shown_cell,
)
from stoker.features.results.table import Table
from stoker.text.terminal import printable

_PLOT_SIZE = (96, 24)
_NUMBERS = re.compile(r"[-+]?[0-9][0-9.e+-]*$|-$|true$|false$")
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>#|~&!$^])")
# Columns with a meaning of their own.
_OWN_NAMES = re.compile("(trials?|job|time|n|mean|sd|min|max|missing|parameter|score)?")
_PREFIXES = {TITLE: "# ", SECTION: "## ", note_markup.HEADING: "### ", note_markup.ITEM: "- "}
_AT_START = re.compile(r"^(\s*)([-+=]|[0-9]+[.)])", re.M)


def markdown(report: Report, images: Sequence[str] | None = None) -> str:
    """`images`: files beside the report, one for each figure; without them, plots are text."""
    return _joined(blocks(report), None if images is None else iter(images)) + "\n"


def _joined(content: Iterable[Block], images: Iterator[str] | None = None) -> str:
    text, was_item = "", False
    for block in content:
        is_item = isinstance(block, Part) and block.kind == note_markup.ITEM
        gap = "" if not text else "\n" if is_item and was_item else "\n\n"
        text, was_item = f"{text}{gap}{_block(block, images)}", is_item
    return text


def _block(block: Block, images: Iterator[str] | None) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Quote):
        return "\n".join(f"> {line}".rstrip() for line in _joined(block.parts).split("\n"))
    if isinstance(block, Figure):
        if images is None:
            return _fenced(terminal_plot.draw(block, *_PLOT_SIZE).rstrip("\n"), "text")
        picture = f"![{escape(block.title)}](<{_path(next(images))}>)"
        return f"{picture}\n\n{escape(block.note)}" if block.note else picture
    if block.kind == COMMAND:
        return _fenced(block.spans[0].text, "console", "$ ")
    if block.kind == note_markup.BLOCK:
        return _fenced(block.spans[0].text, "text")
    return _PREFIXES.get(block.kind, "") + "".join(map(_span, block.spans))


def _path(name: str) -> str:
    """A relative path in <>: percent-encoded, so that no character ends it."""
    from urllib.parse import quote

    return quote(name.encode("utf-8", "surrogateescape"), safe="/-._~ ")


def _span(span: Span) -> str:
    if span.kind == note_markup.CODE:
        return code(span.text)
    mark = {note_markup.BOLD: "**", note_markup.EMPHASIS: "*"}.get(span.kind, "")
    inner = "\n".join(escape(line) for line in span.text.split("\n"))
    return f"{mark}{inner}{mark}" if inner.strip() == inner or not mark else inner


# -- escapes --------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """One line of running text, in which nothing is markup."""
    text = _PUNCTUATION.sub(r"\\\1", printable(text))
    text = _AT_START.sub(lambda found: found[1] + found[2][:-1] + "\\" + found[2][-1], text)
    # Bare addresses become links otherwise.
    return text.replace("://", ":\\//").replace("www.", "www\\.")


def code(text: str) -> str:
    """A code span of one line.

    >>> code("a `b`")
    '`` a `b` ``'
    """
    text = " ".join(printable(text.replace("\n", " ")).split(" ")) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    room = " " if "`" in text or text != text.strip() else ""
    return f"{fence}{room}{text}{room}{fence}"


def _fenced(text: str, kind: str, prompt: str = "") -> str:
    """A fenced block. The fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    lines = [printable(line) for line in text.split("\n")]
    return "\n".join([f"{fence}{kind}", prompt + lines[0], *lines[1:], fence])


def _table(table: Table) -> str:
    """The first column of a table without names has the names of its rows."""
    header = [name if _OWN_NAMES.fullmatch(name) else _cell(name) for name in table.names]
    is_named = any(table.names)
    lines = [
        [_cell(cell) if at or is_named else escape(str(cell)) for at, cell in enumerate(line)]
        for line in table.lines
    ]
    rows = (header, ["---"] * len(header), *lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _cell(value: object) -> str:
    text = printable(shown_cell(value))
    if _NUMBERS.match(text):
        return text
    if "|" not in text:
        return code(text)
    # A bar ends the cell even in a code span, and a backslash before it may be escaped itself.
    return "<code>" + re.sub(r"[^\w ]", lambda char: f"&#{ord(char[0])};", text) + "</code>"
