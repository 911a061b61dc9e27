"""A report as one HTML file: no scripts, no other files, and a policy that forbids both."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from stoker.errors import Unavailable
from stoker.features.results import image_plot, note_markup, terminal_plot
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

_PLOT_SIZE = (96, 24)  # as text
_STYLE = """
:root { color-scheme: light dark; --bg: #fff; --ink: #1a1b1c; --dim: #5b6066; --line: #d7d7d2;
  --soft: #f4f4f1; }
@media (prefers-color-scheme: dark) { :root { --bg: #121315; --ink: #e7e8ea; --dim: #a3a9b0;
  --line: #3a3e44; --soft: #1c1e21; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 60px; max-width: 900px; background: var(--bg);
  color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 34px 0 8px; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 10px 0 4px; }
code, pre { font: .87em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: 10px 12px; border-radius: 6px; white-space: pre-wrap; }
blockquote { margin: 14px 0; padding: 2px 14px; border-left: 3px solid var(--line); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; max-width: 40ch; overflow-wrap: anywhere; }
th, td.num { white-space: nowrap; }
td.num, th.num { text-align: right; }
figure { margin: 12px 0; }
figcaption { color: var(--dim); font-size: .85em; }
img { max-width: 100%; height: auto; border-radius: 6px; }
.plot { white-space: pre; overflow-x: auto; overflow-wrap: normal; line-height: 1.2; }
@media print { body { max-width: none; } }
"""
_TAGS = {
    TITLE: "h1",
    SECTION: "h2",
    note_markup.HEADING: "h3",
    note_markup.ITEM: "li",
    note_markup.PARAGRAPH: "p",
}
_SPAN_TAGS = {note_markup.CODE: "code", note_markup.BOLD: "strong", note_markup.EMPHASIS: "em"}


def html(report: Report) -> str:
    """The whole file. Everything from users is escaped."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none';"
    policy += " form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_text(policy)}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sweep {_text(report.name)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{_joined(blocks(report))}
</main>
</body>
</html>
"""


def _joined(content: Iterable[Block]) -> str:
    lines: list[str] = []
    is_list = False
    for block in content:
        if (isinstance(block, Part) and block.kind == note_markup.ITEM) != is_list:
            is_list = not is_list
            lines.append("<ul>" if is_list else "</ul>")
        lines.append(_block(block))
    return "\n".join([*lines, *(["</ul>"] if is_list else [])])


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Quote):
        return f"<blockquote>\n{_joined(block.parts)}\n</blockquote>"
    if isinstance(block, Figure):
        note = _text(f"{block.title}: {block.note}" if block.note else block.title)
        return f"<figure>\n{_plot(block)}\n<figcaption>{note}</figcaption>\n</figure>"
    if block.kind in (note_markup.BLOCK, COMMAND):
        return f"<pre>{_lines(block.spans[0].text)}</pre>"
    tag = _TAGS[block.kind]
    return f"<{tag}>{''.join(map(_span, block.spans))}</{tag}>"


def _plot(figure: Figure) -> str:
    """An image without other files; without matplotlib, text, and how to get images."""
    try:
        image = image_plot.draw(figure._replace(title="", note=""), "svg")
    except Unavailable as error:
        text = terminal_plot.draw(figure._replace(note=""), *_PLOT_SIZE)
        why = f"as text, because {error.message}: {error.hint}"
        return f'<pre class="plot">{_lines(text)}</pre>\n<p>{_text(why)}</p>'
    data = base64.b64encode(image).decode()
    return f'<img alt="{_text(figure.title)}" src="data:image/svg+xml;base64,{data}">'


def _table(table: Table) -> str:
    """The first column of a table without names has the names of its rows."""
    numeric = [all(_is_number(line[at]) for line in table.lines) for at in range(len(table.names))]
    kind = [' class="num"' if one else "" for one in numeric]
    rows = []
    if any(table.names):
        names = enumerate(table.names)
        rows.append("".join(f'<th scope="col"{kind[at]}>{_text(name)}</th>' for at, name in names))
        for line in table.lines:
            cells = enumerate(map(shown_cell, line))
            rows.append("".join(f"<td{kind[at]}>{_text(cell)}</td>" for at, cell in cells))
    else:
        for name, value in table.lines:
            head = f'<th scope="row">{_text(str(name))}</th>'
            rows.append(f"{head}<td><code>{_text(str(value))}</code></td>")
    lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table>\n{lines}\n</table></div>'


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _span(span: Span) -> str:
    tag = _SPAN_TAGS.get(span.kind)
    inner = _lines(span.text)
    return inner if tag is None else f"<{tag}>{inner}</{tag}>"


def _lines(text: str) -> str:
    return "\n".join(_text(line) for line in text.split("\n"))


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
