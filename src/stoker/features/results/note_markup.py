"""The Markdown that notes can contain: headings, lists, `code`, **bold** and *emphasis*.

Everything else is text: HTML, links, images and tables of a note never become markup of a report.
"""

from __future__ import annotations

import re

from stoker.record import Record

TEXT, CODE, BOLD, EMPHASIS = "text", "code", "bold", "emphasis"
PARAGRAPH, HEADING, ITEM, BLOCK = "paragraph", "heading", "item", "block"
_FENCE = "```"
_SPANS = re.compile(
    r"(?P<code>`[^`\n]+`)|(?P<bold>\*\*[^*\n]+\*\*)|(?P<emphasis>(?<!\w)[*_][^*_\n]+[*_](?!\w))"
)


class Span(Record):
    kind: str
    text: str


class Part(Record):
    """A paragraph, heading or list item with its spans; a block of code has one span."""

    kind: str
    spans: tuple[Span, ...]


def parse_note(text: str) -> list[Part]:
    """
    >>> [part.kind for part in parse_note("# A\\n\\nb *c*\\n- d\\n- e")]
    ['heading', 'paragraph', 'item', 'item']
    """
    parts: list[Part] = []
    lines: list[str] = []

    def end_paragraph() -> None:
        if lines:
            parts.append(Part(PARAGRAPH, _spans("\n".join(lines))))
            lines.clear()

    block: list[str] | None = None
    for line in text.split("\n"):
        if block is not None:
            if line.strip() == _FENCE:
                parts.append(Part(BLOCK, (Span(CODE, "\n".join(block)),)))
                block = None
            else:
                block.append(line)
            continue
        bare = line.strip()
        if bare.startswith(_FENCE):
            end_paragraph()
            block = []
        elif not bare:
            end_paragraph()
        elif bare[:2] in ("- ", "* ", "+ "):
            end_paragraph()
            parts.append(Part(ITEM, _spans(bare[2:].strip())))
        elif bare.startswith("#") and bare.lstrip("#")[:1] == " ":
            end_paragraph()
            parts.append(Part(HEADING, _spans(bare.lstrip("#").strip())))
        else:
            lines.append(bare)
    if block is not None:
        parts.append(Part(BLOCK, (Span(CODE, "\n".join(block)),)))
    end_paragraph()
    return parts


def _spans(text: str) -> tuple[Span, ...]:
    found: list[Span] = []
    place = 0
    for match in _SPANS.finditer(text):
        if match.start() > place:
            found.append(Span(TEXT, text[place : match.start()]))
        kind = str(match.lastgroup)
        mark = 2 if kind == BOLD else 1
        found.append(Span(kind, match[0][mark:-mark]))
        place = match.end()
    if place < len(text):
        found.append(Span(TEXT, text[place:]))
    return tuple(found)
