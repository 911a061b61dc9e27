"""A report as Markdown (CommonMark with the tables of GitHub).

Untrusted text is written as code spans, in which nothing is markup, or with its punctuation
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stoker.core.formats.plurals import plural
from stoker.core.formats.terminal import printable
from stoker.results import note_markup, terminal_plot
from stoker.results.figure import Figure
from stoker.results.note_markup import Part, Span, parse_note
from stoker.results.report import Report, shown_cell
from stoker.results.table import Table

_PLOT_SIZE = (96, 24)
_NUMBERS = re.compile(r"[-+]?[0-9][0-9.e+-]*$|-$|true$|false$")
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>#|~&!$^])")
# Columns with a meaning of their own.
_OWN_NAMES = (
    "",
    "trial",
    "job",
    "time",
    "n",
    "mean",
    "sd",
    "min",
    "max",
    "missing",
    "parameter",
    "score",
    "trials",
)
_AT_START = re.compile(r"^(\s*)([-+=]|[0-9]+[.)])", re.M)


def markdown(report: Report, images: Sequence[str] | None = None) -> str:
    """`images`: files beside the report, one for each figure; without them, plots are text."""
    parts = [f"# Sweep {code(report.name)}", _status(report)]
    if report.note:
        parts.append(_note(report.note))
    parts.append(_table(Table(("", ""), list(report.facts)), code_from=1))
    if report.failures:
        lines = [
            f"- {one.size} {code(one.result)}"
            + ("" if one.job is None else f" (`stoker log {one.job}`)")
            for one in report.failures
        ]
        parts += ["## Failures", "\n".join(lines)]
    parts += ["## Best trials", escape(report.best_of or "No trial has a result yet.")]
    parts.append(_table(report.best) if report.best.lines else "")
    if report.groups is not None:
        parts += ["## Groups", f"Over {escape(report.group_of)}.", _table(report.groups)]
    if report.figures:
        parts.append("## Curves and parameters")
    for number, figure in enumerate(report.figures):
        parts += _figure(figure, None if images is None else images[number])
    if report.importance:
        parts += ["## Parameter importance", f"{escape(_sentence(report.explanation))}"]
        names = ("parameter", "score", "trials")
        lines_of = [(one.name, f"{one.score:.2f}", one.n) for one in report.importance]
        parts.append(_table(Table(names, list(lines_of))))
    parts.append("## Provenance")
    if report.provenance:
        lines = [
            f"- {escape(one.label)}: {code(one.text)} ({plural(one.trials, 'trial')})"
            for one in report.provenance
        ]
        parts.append("\n".join(lines))
    else:
        parts.append("Nothing was recorded: no trial has started, or their jobs were removed.")
    parts.append("## Repeat")
    for step in report.steps:
        parts += [f"{escape(_sentence(step.text))}", _block(step.command, "console", "$ ")]
    parts.append(f"*{escape(report.made)}*")
    return "\n\n".join(part for part in parts if part) + "\n"


def _status(report: Report) -> str:
    words = [f"**{escape(report.state)}**", f"{plural(report.total, 'trial')}"]
    words += [f"{count} {escape(state)}" for state, count in report.trials.items()]
    text = ", ".join(words)
    if report.stopped:
        text += f"; stopped: {code(report.stopped)}"
    if report.tags:
        text += "; tags: " + ", ".join(map(code, report.tags))
    return text


def _figure(figure: Figure, image: str | None) -> list[str]:
    if image is not None:
        return [f"![{escape(figure.title)}](<{_path(image)}>)", escape(figure.note)]
    return [_block(terminal_plot.draw(figure, *_PLOT_SIZE).rstrip("\n"), "text")]


def _path(name: str) -> str:
    """A relative path in <>: percent-encoded, so that no character ends it."""
    from urllib.parse import quote

    return quote(name.encode("utf-8", "surrogateescape"), safe="/-._~ ")


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


# -- notes ----------------------------------------------------------------------------------------


def _note(note: str) -> str:
    lines: list[str] = []
    before = ""
    for part in parse_note(note):
        if lines and not part.kind == before == note_markup.ITEM:
            lines.append("")
        lines += _note_lines(part)
        before = part.kind
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _note_lines(part: Part) -> list[str]:
    if part.kind == note_markup.BLOCK:
        return _block(part.spans[0].text, "text").split("\n")
    text = "".join(map(_span, part.spans))
    if part.kind == note_markup.ITEM:
        return [f"- {text}"]
    if part.kind == note_markup.HEADING:
        return [f"### {text}"]
    return text.split("\n")


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


def _block(text: str, kind: str, prompt: str = "") -> str:
    """A fenced block. The fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    lines = [printable(line) for line in text.split("\n")]
    return "\n".join([f"{fence}{kind}", prompt + lines[0], *lines[1:], fence])


def _table(table: Table, code_from: int = 0) -> str:
    header = [name if name in _OWN_NAMES else _cell(name) for name in table.names]
    lines = [
        [escape(str(cell)) if at < code_from else _cell(cell) for at, cell in enumerate(line)]
        for line in table.lines
    ]
    rule = ["---"] * len(header)
    return "\n".join(_row(cells) for cells in (header, rule, *lines))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    text = printable(shown_cell(value))
    if _NUMBERS.match(text):
        return text
    if "|" not in text:
        return code(text)
    # A bar ends the cell even in a code span, and a backslash before it may be escaped itself.
    return "<code>" + re.sub(r"[^\w ]", lambda char: f"&#{ord(char[0])};", text) + "</code>"
