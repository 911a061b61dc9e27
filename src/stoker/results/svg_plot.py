"""Draw figures as SVG elements for a page of HTML, without scripts and without matplotlib.

Colors come from the style sheet of the page (`STYLE`), so that they suit light and dark pages.
"""

from __future__ import annotations

from html import escape

from stoker.core.formats.terminal import printable
from stoker.results.axis import Scale
from stoker.results.figure import Axis, Box, Figure, Panel, Series

_COLORS = 8
_ALONE = (760, 360)
_SMALL = (370, 250)
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 40
_LABEL_CHARS = 44
_LEGEND_LINE = 18

STYLE = """
svg { max-width: 100%; min-width: 560px; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--dim); }
svg .frame { fill: none; stroke: var(--line); }
svg .grid { stroke: var(--line); stroke-opacity: .6; }
svg .line { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
svg .best { stroke-width: 2.4; }
svg .faint { stroke: var(--line); fill: var(--line); }
svg .box { fill: none; stroke: var(--dim); }
svg .fill { stroke: none; fill-opacity: .16; }
svg .c0 { stroke: var(--c0); fill: var(--c0); } svg .c1 { stroke: var(--c1); fill: var(--c1); }
svg .c2 { stroke: var(--c2); fill: var(--c2); } svg .c3 { stroke: var(--c3); fill: var(--c3); }
svg .c4 { stroke: var(--c4); fill: var(--c4); } svg .c5 { stroke: var(--c5); fill: var(--c5); }
svg .c6 { stroke: var(--c6); fill: var(--c6); } svg .c7 { stroke: var(--c7); fill: var(--c7); }
svg .line.c0, svg .line.c1, svg .line.c2, svg .line.c3, svg .line.c4, svg .line.c5, svg .line.c6,
svg .line.c7, svg .line.faint { fill: none; }
"""


def draw(figure: Figure) -> str:
    """The SVG element of a figure; all texts are escaped."""
    panels = figure.panels
    width, height = _ALONE if len(panels) < 2 else _SMALL
    across = 1 if len(panels) < 2 else 2
    rows = max(1, -(-len(panels) // across))
    legend = [one for panel in panels[:1] for one in panel.series if one.label]
    if len(panels) > 1:
        legend = []
    total = (width * across, height * rows + _LEGEND_LINE * len(legend))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}"'
        f' width="{total[0]}" height="{total[1]}" role="img">',
        f"<title>{_text(figure.title)}</title>",
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, across)
        parts.append(f'<g transform="translate({column * width} {row * height})">')
        parts += _panel(panel, width, height)
        parts.append("</g>")
    for place, series in enumerate(legend):
        y = height * rows + _LEGEND_LINE * place + 10
        kind = _classes(series, panels[0].series)
        parts.append(f'<path class="{kind}" d="M{_LEFT} {y}h22"/>')
        parts.append(f'<text x="{_LEFT + 28}" y="{y + 4}">{_text(series.label, 90)}</text>')
    parts.append("</svg>")
    return "\n".join(parts)


def _panel(panel: Panel, width: int, height: int) -> list[str]:
    points = [point for series in panel.series for point in series.points]
    ends = [end for box in panel.boxes for end in (box.low, box.high)]
    edges = [point for fill in panel.fills for point in (*fill.low, *fill.high)]
    x = Scale(panel.x, [at for at, _ in (*points, *edges)])
    y = Scale(panel.y, [*(value for _, value in (*points, *edges)), *ends])
    area = _Area(x, y, width, height)
    parts = area.frame(panel.x, panel.y)
    for fill in panel.fills:
        kind = f"fill {_color(panel.series[fill.series], panel.series)}"
        outline = area.path([*fill.low, *reversed(fill.high)])
        if outline:
            parts.append(f'<path class="{kind}" d="{outline}Z"/>')
    parts += [area.box(box) for box in panel.boxes]
    for series in panel.series:
        kind = _classes(series, panel.series)
        if series.style == "dots":
            parts += area.dots(series, kind)
        else:
            parts += [f'<path class="{kind}" d="{d}"/>' for d in area.lines(series)]
    return parts


def _color(series: Series, among: tuple[Series, ...]) -> str:
    if series.role == "faint":
        return "faint"
    colored = [one for one in among if one.role != "faint"]
    return f"c{colored.index(series) % _COLORS}"


def _classes(series: Series, among: tuple[Series, ...]) -> str:
    kind = "dot" if series.style == "dots" else "line"
    best = " best" if series.role == "best" else ""
    return f"{kind} {_color(series, among)}{best}"


class _Area:
    """The inner part of a panel, with its scales."""

    def __init__(self, x: Scale, y: Scale, width: int, height: int) -> None:
        self._x, self._y = x, y
        self._width = width - _LEFT - _RIGHT
        self._height = height - _TOP - _BOTTOM

    def _at(self, point: tuple[float, float]) -> str:
        left = _LEFT + self._x.place(point[0]) * self._width
        top = _TOP + (1 - self._y.place(point[1])) * self._height
        return f"{left:.1f} {top:.1f}"

    def _has(self, point: tuple[float, float]) -> bool:
        return self._x.has(point[0]) and self._y.has(point[1])

    def frame(self, x: Axis, y: Axis) -> list[str]:
        bottom, right = _TOP + self._height, _LEFT + self._width
        parts = []
        for tick in self._y.ticks(5):
            if not 0 <= tick.place <= 1:
                continue
            at = _TOP + (1 - tick.place) * self._height
            parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>')
            parts.append(
                f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_text(tick.label, 9)}'
                "</text>"
            )
        for tick in self._x.ticks(max(2, self._width // 90)):
            if not 0 <= tick.place <= 1:
                continue
            at = _LEFT + tick.place * self._width
            parts.append(
                f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{_text(tick.label, 12)}'
                "</text>"
            )
        parts.append(
            f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{self._width}"'
            f' height="{self._height}"/>'
        )
        middle = _LEFT + self._width / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{bottom + 31}" text-anchor="middle">{_text(x.label)}</text>'
        )
        parts.append(
            f'<text transform="translate(12 {_TOP + self._height / 2:.0f}) rotate(-90)"'
            f' text-anchor="middle">{_text(y.label)}</text>'
        )
        return parts

    def path(self, points: list[tuple[float, float]]) -> str:
        places = [self._at(point) for point in points if self._has(point)]
        return f"M{places[0]}" + "".join(f"L{place}" for place in places[1:]) if places else ""

    def lines(self, series: Series) -> list[str]:
        """The paths of a series; values that cannot be drawn are gaps."""
        parts: list[list[tuple[float, float]]] = [[]]
        for point in series.points:
            if self._has(point):
                parts[-1].append(point)
            elif parts[-1]:
                parts.append([])
        return [self.path(part) + ("h0.1" if len(part) == 1 else "") for part in parts if part]

    def dots(self, series: Series, kind: str) -> list[str]:
        found = []
        for point in series.points:
            if self._has(point):
                left, top = self._at(point).split()
                found.append(f'<circle class="{kind}" cx="{left}" cy="{top}" r="2.5"/>')
        return found

    def box(self, box: Box) -> str:
        if not all(map(self._y.has, (box.low, box.q1, box.median, box.q3, box.high))):
            return ""
        left = [float(self._at((box.at + side, box.q1)).split()[0]) for side in (-0.28, 0, 0.28)]
        low, q1, median, q3, high = (
            float(self._at((box.at, value)).split()[1])
            for value in (box.low, box.q1, box.median, box.q3, box.high)
        )
        return (
            f'<path class="box" d="M{left[0]:.1f} {q1}H{left[2]:.1f}V{q3}H{left[0]:.1f}Z'
            f"M{left[0]:.1f} {median}H{left[2]:.1f}M{left[1]:.1f} {q1}V{low}M{left[1]:.1f} {q3}"
            f'V{high}"/>'
        )


def _text(text: str, most: int = _LABEL_CHARS) -> str:
    text = printable(text)
    return escape(text if len(text) <= most else text[: most - 1] + "…")
