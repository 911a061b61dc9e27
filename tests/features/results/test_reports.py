"""Reports as Markdown and HTML: snapshots, and texts that try to become markup.

A missing snapshot is written and the test fails once; check the new file before committing it.
"""

from __future__ import annotations

import base64
import html.parser
import re
import sys
from array import array
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stoker.features.results.chart import Band, Curve
from stoker.features.results.figure import (
    CurveAxes,
    TrialCurve,
    band_plot,
    learning_curves,
    overview,
)
from stoker.features.results.importance import TREND, Influence
from stoker.features.results.note_markup import parse_note
from stoker.features.results.report_html import html as html_of
from stoker.features.results.report_markdown import code, escape, markdown
from stoker.features.results.sweep_report_model import (
    FailedAlike,
    Provenance,
    Report,
    Step,
    groups_over_seeds,
    seed_like,
)
from stoker.features.results.table import Group, Row, Table

SNAPSHOTS = Path(__file__).parent / "snapshots"
NOTE = """# Question

Which `lr` is **best**, and does it hold
for *both* datasets?

- seed 2 is an outlier
- see run_12

```
lr  loss
```
"""
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]] ](javascript:alert(1)) [x](javascript:alert(1))",
    "![x](http://evil/x.png)",
    "`` ` ``` `` | a \\| b |",
    "a\n\n# Heading\n\n---\n\n> quote",
    "</code></pre></svg><script>alert(1)</script>",
    "&lt;script&gt; &#60;b&#62;",
    "*bold* _em_ ~~gone~~ $x$ http://evil www.evil.com",
    "\x1b[31mred \u202e\u0000",
    "<!-- ",
    "]]>",
)


def a_report(text: str | None = None, note: str = NOTE) -> Report:
    """A report; with `text`, every text of a user is this one."""
    rows = [
        Row(1, 11, {"lr": 0.1, "seed": 0}, {"loss": 0.5}, "done", 3.0),
        Row(2, 12, {"lr": 0.1, "seed": 1}, {"loss": 0.7}, "done", 3.0),
        Row(3, 13, {"lr": 0.01, "seed": 0}, {"loss": 0.9}, "done", 3.0),
        Row(4, 14, {"lr": 0.01, "seed": 1}, {"loss": 0.8}, "done", 3.0),
    ]
    metric = text or "loss"
    if text is not None:
        rows = [
            row._replace(params={text: text, "seed": row.trial}, metrics={metric: 1.0 / row.job})
            for row in rows
            if row.job
        ]
    curves = [
        TrialCurve(
            trial,
            [(step, trial / (step + 1)) for step in range(5)],
            text or f"lr={trial}",
            trial / 5,
        )
        for trial in (1, 2)
    ]
    line = Curve(array("d", [0, 1, 2]), array("d", [1, 0.6, 0.5]))
    group = Group({"lr": 0.1}, 2, 0.6, 0.14, 0.5, 0.7, 0, (1, 2))
    band = Band(text or "lr=0.1", 0.1, 2, line, line, line, group)
    return Report(
        name=text or "lr-sweep",
        note=text or note,
        tags=(text or "paper",),
        state="stopped",
        stopped=text or "5 trials failed",
        trials={"done": 4, "failed": 2},
        total=6,
        facts=(("command", text or "python train.py --lr {lr}"), ("folder", text or "/home/ada")),
        failures=(FailedAlike(2, text or "out of GPU memory", 16),),
        best=Table(
            ("trial", text or "lr", "loss"), [(1, text or 0.1, 0.5), (4, text or "x", None)]
        ),
        best_of=text or "Sorted by the last loss, the smallest first.",
        groups=Table((text or "lr", "n", "mean"), [(text or 0.1, 2, 0.6)]),
        group_of=text or "seed: loss of trials that are equal in lr",
        figures=(
            learning_curves(curves, metric),
            band_plot([band], metric, "min", CurveAxes()),
            overview(rows, f"metric.{metric}"),
        ),
        importance=(Influence(text or "lr", 0.8, -1, 4, TREND),),
        explanation=text or "lr explains most of the ranking by loss (0.80 of 1)",
        provenance=(Provenance("code", text or "commit 1a2b3c on main", 6),),
        steps=(Step("Run it again", text or "stoker sweep 'python train.py --lr {lr}' lr=0.1"),),
        made="Made 2026-01-01 12:00:00 by Stoker 1.0",
    )


@pytest.mark.parametrize("form", ["md", "html"])
def test_report_matches_its_snapshot(form: str) -> None:
    report = a_report()
    text = markdown(report) if form == "md" else _without_images(html_of(report))
    path = SNAPSHOTS / f"report.{form}"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"wrote {path}; check it")
    assert text == path.read_text()


def _without_images(text: str) -> str:
    """HTML without the content of its images, which depends on the version of matplotlib."""
    return re.sub(r"(?<=;base64,)[^\"]+", "", text)


def test_markdown_refers_to_images_beside_it() -> None:
    text = markdown(a_report(), ["a b-1.png", "x>)y.png", "c.png"])
    assert "![loss over steps](<a b-1.png>)" in text
    assert "(<x%3E%29y.png>)" in text
    assert "```text" in text  # the block of the note
    assert "┤" not in text


class _Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _elements(text: str) -> _Elements:
    found = _Elements()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_element_to_the_html(text: str) -> None:
    usual = _elements(html_of(a_report()))
    hostile = html_of(a_report(text))
    found = _elements(hostile)
    assert found.found <= usual.found
    assert found.attributes <= usual.attributes
    assert not found.found & {"script", "iframe", "a", "link", "object", "form", "b>"}
    images = re.findall(r'<img alt="[^"<>]*" src="data:image/svg\+xml;base64,([^"]+)">', hostile)
    assert len(images) == hostile.count("<img") == 3
    for image in images:
        elements = {
            one.tag.rpartition("}")[2] for one in ElementTree.fromstring(_svg(image)).iter()
        }
        assert not elements & {"script", "image", "a", "foreignObject"}


def _svg(image: str) -> bytes:
    return base64.b64decode(image)


def test_html_without_matplotlib_has_plots_as_text_and_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = html_of(a_report())
    assert text.count('<pre class="plot">loss over steps') == 2
    assert text.count("pip install &#x27;stoker[plot]&#x27;") == 3
    assert "<img" not in text


def test_html_loads_nothing() -> None:
    text = html_of(a_report())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe" not in policy[1]
    assert "img-src data:;" in policy[1]
    addresses = re.findall(r"\b(?:src|href|action)=\"([^\"]*)", text)
    assert [one.partition(",")[0] for one in addresses] == ["data:image/svg+xml;base64"] * 3
    for one in addresses:
        loaded = re.findall(
            r"\b(?:src|href)=\"([^#\"][^\"]*)|url\(([^#][^)]*)", str(_svg(one.partition(",")[2]))
        )
        assert not loaded
    assert not re.findall(r"https?://[^\s\"]+", text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_no_markup_in_markdown(text: str) -> None:
    usual, found = markdown(a_report()), markdown(a_report(text))
    headings = re.compile(r"^#{1,6} .*", re.M)
    outside = _without_code(found)
    # The first heading has the name of the sweep.
    assert headings.findall(outside)[1:] == headings.findall(_without_code(usual))[1:]
    for bad in (r"(?<!\\)<[a-zA-Z!/]", r"(?<!\\)\]\(", r"(?<!\\)!\[", r"\bhttps?://", r"\bwww\.e"):
        assert not re.search(bad, outside), (bad, outside)
    columns = {line.count("|") for line in outside.split("\n") if line[:2] == "| "}
    assert columns <= {3, 4}


def _without_code(text: str) -> str:
    """Markdown without fenced blocks, code spans and <code> of escaped text."""
    text = re.sub(r"^(?:> )?(`{3,})\w*\n.*?^(?:> )?\1$", "", text, flags=re.M | re.S)
    text = re.sub(r"<code>[\w &#;]*</code>", "", text)
    return re.sub(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


def test_note_is_limited_to_simple_markdown() -> None:
    kinds = [part.kind for part in parse_note(NOTE)]
    assert kinds == ["heading", "paragraph", "item", "item", "block"]
    (spans,) = [part.spans for part in parse_note("a <b>x</b> **c** `d` snake_case_name *e*")]
    assert [(span.kind, span.text) for span in spans] == [
        ("text", "a <b>x</b> "), ("bold", "c"), ("text", " "), ("code", "d"),
        ("text", " snake_case_name "), ("emphasis", "e"),
    ]  # fmt: skip


def test_code_spans_and_escapes_keep_the_text() -> None:
    assert code("a`b") == "`` a`b ``"
    assert code("plain") == "`plain`"
    assert escape("1. a*b <i>") == r"1\. a\*b \<i\>"
    assert escape("- x") == r"\- x"


def test_seeds_are_recognized_and_grouped_over() -> None:
    assert [seed_like(name) for name in ("seed", "data_seed", "fold", "speed", "lr")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    rows = [Row(n, n, {"lr": lr, "seed": seed}, {}) for n, (lr, seed) in enumerate(
        [(0.1, 0), (0.1, 1), (0.2, 0)])]  # fmt: skip
    assert groups_over_seeds(rows) == ["lr"]
    assert groups_over_seeds([row._replace(params={"seed": row.trial}) for row in rows]) == []
    assert groups_over_seeds([row._replace(params={"lr": row.trial}) for row in rows]) == []
