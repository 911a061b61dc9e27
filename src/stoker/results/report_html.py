"""A report as one HTML file: no scripts, no other files, and a policy that forbids both."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from stoker.core.formats.plurals import plural
from stoker.core.formats.terminal import printable
from stoker.results import note_markup, svg_plot
from stoker.results.note_markup import Part, Span, parse_note
from stoker.results.report import Report, shown_cell
from stoker.results.table import Table

_STYLE = (
    """
:root { color-scheme: light dark; --bg: #fff; --ink: #1a1b1c; --dim: #5b6066; --line: #d7d7d2;
  --soft: #f4f4f1; --bad: #bf2626;
  --c0: #1a5fc2; --c1: #c2571a; --c2: #18733a; --c3: #87389f; --c4: #0b7a80; --c5: #8f6c10;
  --c6: #b3296b; --c7: #59626d; }
@media (prefers-color-scheme: dark) { :root { --bg: #121315; --ink: #e7e8ea; --dim: #a3a9b0;
  --line: #3a3e44; --soft: #1c1e21; --bad: #ff8078;
  --c0: #6fabff; --c1: #f19a4d; --c2: #5fc786; --c3: #d091e6; --c4: #4fc4ca; --c5: #dcc04f;
  --c6: #f283b4; --c7: #a3acb8; } }
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
.dim, figcaption, footer { color: var(--dim); }
.tag { border: 1px solid var(--line); border-radius: 4px; padding: 0 5px; font-size: .85em; }
.bad { color: var(--bad); }
figure { margin: 12px 0; }
figcaption { font-size: .85em; }
footer { margin-top: 40px; font-size: .85em; }
meter { width: 120px; }
@media print { body { max-width: none; } }
"""
    + svg_plot.STYLE
)


def html(report: Report) -> str:
    """The whole file. Everything from users is escaped."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"Sweep {_text(report.name)}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *_body(report),
            "</main>",
            f"<footer>{_text(report.made)}</footer>",
            "</body>",
            "</html>\n",
        ]
    )


def _body(report: Report) -> list[str]:
    parts = [f"<h1>{_text(report.name)}</h1>", _status(report)]
    if report.note:
        parts.append(f"<blockquote>\n{_note(report.note)}\n</blockquote>")
    facts = [
        f'<tr><th scope="row">{_text(name)}</th><td><code>{_text(value)}</code></td></tr>'
        for name, value in report.facts
    ]
    parts.append(f"<table>\n{chr(10).join(facts)}\n</table>")
    if report.failures:
        lines = [
            f'<li><b class="bad">{one.size}</b> {_text(one.result)}'
            + ("" if one.job is None else f" <code>stoker log {one.job}</code>")
            + "</li>"
            for one in report.failures
        ]
        parts += ["<h2>Failures</h2>", f"<ul>\n{chr(10).join(lines)}\n</ul>"]
    parts.append("<h2>Best trials</h2>")
    best_of = report.best_of or "No trial has a result yet."
    parts.append(f'<p class="dim">{_text(best_of)}</p>')
    if report.best.lines:
        parts.append(_table(report.best))
    if report.groups is not None:
        parts += ["<h2>Groups</h2>", f'<p class="dim">Over {_text(report.group_of)}.</p>']
        parts.append(_table(report.groups))
    if report.figures:
        parts.append("<h2>Curves and parameters</h2>")
    for figure in report.figures:
        note = f"{_text(figure.title)}" + (f": {_text(figure.note)}" if figure.note else "")
        parts.append(
            f'<figure>\n<div class="wide">\n{svg_plot.draw(figure)}\n</div>\n<figcaption>'
            f"{note}</figcaption>\n</figure>"
        )
    if report.importance:
        parts += ["<h2>Parameter importance</h2>", f"<p>{_text(report.explanation)}.</p>"]
        lines = [
            f"<tr><td><code>{_text(one.name)}</code></td>"
            f'<td><meter min="0" max="1" value="{one.score:.2f}"></meter></td>'
            f'<td class="num">{one.score:.2f}</td><td class="num">{one.n}</td></tr>'
            for one in report.importance
        ]
        head = (
            "<tr><th>parameter</th><th></th><th class=num>score</th><th class=num>trials</th></tr>"
        )
        parts.append(f"<table>\n{head}\n{chr(10).join(lines)}\n</table>")
    parts.append("<h2>Provenance</h2>")
    if report.provenance:
        lines = [
            f"<li>{_text(one.label)}: <code>{_text(one.text)}</code>"
            f' <span class="dim">({plural(one.trials, "trial")})</span></li>'
            for one in report.provenance
        ]
        parts.append(f"<ul>\n{chr(10).join(lines)}\n</ul>")
    else:
        parts.append(
            "<p>Nothing was recorded: no trial has started, or their jobs were removed.</p>"
        )
    parts.append("<h2>Repeat</h2>")
    for step in report.steps:
        parts.append(f"<p>{_text(step.text)}</p>\n<pre>{_lines(step.command)}</pre>")
    return parts


def _status(report: Report) -> str:
    words = [f"<b>{_text(report.state)}</b>", plural(report.total, "trial")]
    words += [f"{count} {_text(state)}" for state, count in report.trials.items()]
    text = ", ".join(words)
    if report.stopped:
        text += f"; stopped: {_text(report.stopped)}"
    tags = " ".join(f'<span class="tag">{_text(tag)}</span>' for tag in report.tags)
    return f"<p>{text} {tags}</p>"


def _table(table: Table) -> str:
    numeric = [all(_is_number(line[at]) for line in table.lines) for at in range(len(table.names))]
    kind = [' class="num"' if one else "" for one in numeric]
    head = "".join(
        f'<th scope="col"{kind[at]}>{_text(name)}</th>' for at, name in enumerate(table.names)
    )
    lines = [
        "<tr>"
        + "".join(f"<td{kind[at]}>{_text(shown_cell(value))}</td>" for at, value in enumerate(line))
        + "</tr>"
        for line in table.lines
    ]
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{chr(10).join(lines)}\n</table></div>'


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _note(note: str) -> str:
    lines: list[str] = []
    is_list = False
    for part in parse_note(note):
        if (part.kind == note_markup.ITEM) != is_list:
            is_list = not is_list
            lines.append("<ul>" if is_list else "</ul>")
        lines.append(_part(part))
    return "\n".join([*lines, *(["</ul>"] if is_list else [])])


def _part(part: Part) -> str:
    if part.kind == note_markup.BLOCK:
        return f"<pre>{_lines(part.spans[0].text)}</pre>"
    tag = {note_markup.ITEM: "li", note_markup.HEADING: "h3"}.get(part.kind, "p")
    return f"<{tag}>{''.join(map(_span, part.spans))}</{tag}>"


def _span(span: Span) -> str:
    tag = {note_markup.CODE: "code", note_markup.BOLD: "strong", note_markup.EMPHASIS: "em"}.get(
        span.kind
    )
    inner = _lines(span.text)
    return inner if tag is None else f"<{tag}>{inner}</{tag}>"


def _lines(text: str) -> str:
    return "\n".join(_text(line) for line in text.split("\n"))


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
