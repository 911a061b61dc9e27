"""Plots: text against snapshots, images against the calls to matplotlib.

A missing snapshot is written and the test fails once; check the new file before committing it.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import Unavailable, UsageError
from stoker.features.results import figure, image_plot, terminal_plot
from stoker.features.results.figure import Axis, Figure, Panel, Series, TrialCurve
from stoker.features.results.table import Row
from stoker.features.results.terminal_plot import Scale

SNAPSHOTS = Path(__file__).parent / "snapshots"


def curve(trial: int, points: list[tuple[float, float]]) -> TrialCurve:
    return TrialCurve(trial, points, result=points[-1][1])


def curves(count: int) -> list[TrialCurve]:
    return [
        curve(
            trial,
            [
                (float(s), 0.1 * (trial * 7 % 11) + 2 * math.exp(-s / (20 + trial)))
                for s in range(100)
            ],
        )
        for trial in range(1, count + 1)
    ]


def rows() -> list[Row]:
    result = []
    for i in range(30):
        lr = 10 ** (-5 + 4 * i / 29)
        opt = ("adam", "sgd", "lion")[i % 3]
        loss = 0.2 + (math.log10(lr) + 3) ** 2 / 8 + (0.1 if opt == "sgd" else 0) + i % 5 / 50
        params: dict[str, object] = {"lr": lr, "opt": opt, "layers": 2 + i * 7 % 4, "arch": "vit"}
        result.append(Row(i + 1, 100 + i, params, {"loss": loss}))
    return result


FIGURES = {
    "curves": lambda: figure.learning_curves(curves(4), "loss"),
    "curves_many": lambda: figure.learning_curves(curves(12), "loss", "max"),
    "curves_log": lambda: figure.learning_curves(
        [curve(1, [(x, 1000 / x**2) for x in range(1, 60)])],
        "loss",
        axes=figure.CurveAxes(log_x=True),
    ),
    "curve_with_gap": lambda: figure.learning_curves(
        [curve(1, [(x, math.nan if 20 < x < 30 else x % 7) for x in range(50)])], "acc", "max"
    ),
    "number": lambda: figure.parameter_plot(rows(), "lr", "loss"),
    "category": lambda: figure.parameter_plot(rows(), "opt", "loss"),
    "overview": lambda: figure.overview(rows(), "loss"),
    "nothing": lambda: figure.learning_curves([], "loss"),
}


def check(name: str, text: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if not path.exists():
        path.write_text(text, "utf-8")
        pytest.fail(f"{path} was not there; it is now")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize("name", FIGURES)
def test_figure_matches_its_snapshot(name: str) -> None:
    check(name, terminal_plot.draw(FIGURES[name]()))


@pytest.mark.parametrize("name", ["curves", "category", "overview"])
def test_ascii_figure_matches_its_snapshot(name: str) -> None:
    text = terminal_plot.draw(FIGURES[name](), 60, 18, ascii=True)
    assert text.isascii()
    check(f"{name}_ascii", text)


def test_colored_figure_differs_only_in_escape_sequences() -> None:
    made = FIGURES["number"]()
    colored = terminal_plot.draw(made, color=True)
    assert "\x1b[" in colored
    assert re.sub("\x1b\\[[0-9;]*m", "", colored) == terminal_plot.draw(made)
    assert all(line.count("\x1b[") % 2 == 0 for line in colored.splitlines())


def test_colored_curves_have_no_letters() -> None:
    text = re.sub("\x1b\\[[0-9;]*m", "", terminal_plot.draw(FIGURES["curves"](), color=True))
    assert "━ trial 2 (best)  ━ trial 4" in text
    assert not re.search(r"\b[abcd] trial", text)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("size", [(80, 24), (40, 12), (24, 6), (200, 50)])
def test_figure_fits_into_the_given_size(name: str, size: tuple[int, int]) -> None:
    lines = terminal_plot.draw(FIGURES[name](), *size).splitlines()
    assert max(map(len, lines)) <= size[0]
    assert len(lines) <= size[1]


@pytest.mark.parametrize("height", range(6, 13))
@pytest.mark.parametrize("name", ["curves", "curves_many", "curve_with_gap", "number", "category"])
def test_small_figure_overwrites_nothing(name: str, height: int) -> None:
    made = FIGURES[name]()
    lines = terminal_plot.draw(made, 30, height, ascii=True).splitlines()
    axis = next(place for place, line in enumerate(lines) if line.lstrip().startswith("+-"))
    assert lines[0] == made.title
    assert axis >= 3
    assert lines[axis + 2].strip() == made.panels[0].x.label
    assert all(line.startswith(("a ", "c ", "@ ", "best (")) for line in lines[axis + 3 :])


def test_panels_without_space_are_counted() -> None:
    text = terminal_plot.draw(FIGURES["overview"](), 30, 12, ascii=True)
    assert text.splitlines()[-1].startswith("not enough space for 1 more")


def test_untrusted_text_cannot_send_escape_sequences() -> None:
    evil = "\x1b]0;gotcha\x07\n\u202ex"
    made = Figure(evil, (Panel(Axis(evil, "category", (evil,)), Axis(evil),
                               (Series(evil, ((0, 1), (0, 2)), "line", "best"),),
                               title=evil),), evil)  # fmt: skip
    for panel in (made.panels[0], made.panels[0]._replace(title="")):
        text = terminal_plot.draw(made._replace(panels=(panel,)))
        assert all(char.isprintable() or char == "\n" for char in text)
        assert len(text.splitlines()) <= 24


def test_wide_characters_take_two_cells() -> None:
    made = Figure("損失" * 30, (), "損失" * 50)
    for line in terminal_plot.draw(made).splitlines():
        assert sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) <= 80


ANY_POINTS = st.lists(
    st.tuples(st.floats() | st.integers(-3, 3), st.floats() | st.integers(-3, 3)), max_size=8
)
SCALES = st.sampled_from(["linear", "log"])


@given(ANY_POINTS, SCALES, SCALES, st.booleans(), st.sampled_from(["line", "dots"]))
def test_any_points_can_be_drawn(
    points: list[tuple[float, float]], x: str, y: str, ascii: bool, style: str
) -> None:
    series = Series("s", tuple(points), style, "best")
    made = Figure("t", (Panel(Axis("x", x), Axis("y", y), (series,)),))
    lines = terminal_plot.draw(made, 40, 12, ascii=ascii).splitlines()
    assert max(map(len, lines)) <= 40
    assert len(lines) <= 12


@given(
    st.floats(1e-200, 1e200),
    st.floats(1e-6, 1e6),
    st.integers(2, 9),
    SCALES,
    st.sampled_from([-1, 1]),
)
def test_axes_have_ticks_in_order(low: float, span: float, most: int, kind: str, sign: int) -> None:
    low = low if kind == "log" else sign * low
    ticks = Scale(Axis("x", kind), [low, low + abs(low) * span]).ticks(most)
    assert 2 <= len(ticks) <= 3 * most + 2
    assert [tick.place for tick in ticks] == sorted({tick.place for tick in ticks})
    assert len({tick.label for tick in ticks}) == len(ticks)


# -- builders -------------------------------------------------------------------------------------


def test_best_trial_depends_on_the_goal() -> None:
    trials = [curve(1, [(0, 1.0), (1, 5.0)]), curve(2, [(0, math.nan), (1, 9.0)])]
    for goal, label in (("min", "trial 1 (best)"), ("max", "trial 2 (best)")):
        (panel,) = figure.learning_curves(trials, "loss", goal).panels
        assert [s.label for s in panel.series if s.role == "best"] == [label]
    assert (
        "best (max): trial 2 with 9 at the end" in figure.learning_curves(trials, "acc", "max").note
    )


def test_best_curve_has_the_best_last_value() -> None:
    """As in the table of results: a value in between does not count."""
    trials = [curve(1, [(0, 0.1), (1, 0.9)]), curve(2, [(0, 0.8), (1, 0.5)])]
    assert "best (min): trial 2 with 0.5" in figure.learning_curves(trials, "loss", "min").note
    without_goal = figure.learning_curves(trials, "gamma", None)
    assert "best" not in without_goal.note
    assert [one.role for one in without_goal.panels[0].series] == ["plain", "plain"]


def test_only_the_best_trials_have_labels() -> None:
    made = figure.learning_curves(curves(12), "loss")
    labels = [series.label for series in made.panels[0].series]
    assert labels.count("") == 12 - figure.MAX_NAMED
    assert "4 more without a label" in made.note


def test_parameter_over_two_decades_has_a_log_axis() -> None:
    def scale(*values: object) -> str:
        entries = [Row(i, i, {"p": value}, {"m": i}) for i, value in enumerate(values)]
        return figure.parameter_plot(entries, "p", "m").panels[0].x.scale

    assert scale(0.001, 1.0) == "log"
    assert scale(0.001, 0.1) == "log"
    assert scale(0.02, 1.0) == "linear"
    assert scale(0, 1000) == "linear"
    assert scale("a", 1) == "category"
    assert scale(True, False) == "category"


def test_categories_have_boxes_where_there_are_enough_values() -> None:
    entries = [Row(i, i, {"p": "ab"[i > 4]}, {"m": float(i)}) for i in range(6)]
    (box,) = figure.parameter_plot(entries, "p", "m").panels[0].boxes
    assert box == figure.Box(0, 0, 1, 2, 3, 4)


def test_trials_without_the_metric_are_counted() -> None:
    entries = [Row(1, 1, {"p": 1}, {"m": 1}), Row(2, 2, {"p": 2}, {"m": math.nan})]
    assert figure.parameter_plot(entries, "p", "m").note == "1 of 2 trials have no value"


def test_unknown_parameter_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown column `rl`"):
        figure.parameter_plot(rows(), "rl", "loss")


def test_overview_omits_constant_parameters() -> None:
    panels = figure.overview(rows(), "loss").panels
    assert sorted(panel.x.label for panel in panels) == ["layers", "lr", "opt"]
    assert panels[0].x.label == "lr"


@pytest.mark.parametrize(
    ("encoding", "knows"), [("utf-8", True), ("UTF8", True), ("ascii", False), (None, False)]
)
def test_braille_needs_utf_8(encoding: str | None, knows: bool) -> None:
    assert terminal_plot.knows_unicode(encoding) is knows


# -- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["curves_log", "category", "overview", "nothing"])
def test_image_is_drawn_without_pyplot(name: str) -> None:
    content = image_plot.draw(FIGURES[name](), dpi=50)
    assert content.startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules


def test_svg_is_drawn() -> None:
    assert b"<svg" in image_plot.draw(FIGURES["number"](), "svg")
    with pytest.raises(UsageError, match="`gif` is not a supported image format"):
        image_plot.draw(FIGURES["number"](), "gif")


def test_untrusted_text_cannot_break_an_image() -> None:
    evil = r"_$\frac{ $x$ \$ \x00 損" + "\x1b\n"
    panel = Panel(Axis(evil, "category", (evil, "$")), Axis(evil),
                  (Series(evil, ((0, 1), (1, math.inf), (1, 1e308)), "line", "best"),
                   Series(evil, ((0, -1), (1, math.nan)), "line")), title=evil)  # fmt: skip
    for one in (panel, panel._replace(title="", y=Axis("y", "log"))):
        assert image_plot.draw(Figure(evil, (one,), evil), dpi=40)


def test_missing_matplotlib_error_has_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Unavailable) as caught:
        image_plot.draw(FIGURES["number"]())
    assert caught.value.hint == "pip install 'stoker[plot]'"


@settings(max_examples=10)
@given(ANY_POINTS, SCALES, SCALES)
def test_any_points_can_be_drawn_as_an_image(
    points: list[tuple[float, float]], x: str, y: str
) -> None:
    made = Figure("t", (Panel(Axis("x", x), Axis("y", y), (Series("s", tuple(points)),)),))
    assert image_plot.draw(made, dpi=20)


def test_locale_c_has_no_braille(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(key, raising=False)
    assert terminal_plot.knows_unicode("utf-8")
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert terminal_plot.knows_unicode("utf-8") and not terminal_plot.knows_unicode("latin-1")
    monkeypatch.setenv("LC_ALL", "C")
    assert not terminal_plot.knows_unicode("utf-8")
