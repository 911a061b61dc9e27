"""Time that a slot stays empty between two jobs of about 100 ms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.lab import Lab
from bench.race import BenchPlan, RaceResults, fault_report, race
from bench.report import Section
from bench.table import median, number, spread, table
from bench.tools.base import Tool
from bench.workload import Form

TITLE = "Slot gap with jobs of 70 to 130 ms"
HEADINGS = (
    "tool",
    "jobs",
    "gap p50 ms",
    "ratio to reference (range)",
    "gap p99 ms (range)",
    "slots idle %",
)


def measure_gap(lab: Lab, tools: Sequence[Tool], plan: BenchPlan) -> Section:
    results = race(lab, tools, plan)
    parts = []
    for form in plan.forms:
        for slots in plan.slots:
            title = f"**{form} lines, {slots} slots** (medians of {plan.repeats})"
            parts += [title, table(HEADINGS, _rows(results, tools, form, slots))]
    text = "\n\n".join([*parts, fault_report(results)])
    return Section("gap", TITLE, text, results.records(), results.conditions)


def _rows(
    results: RaceResults, tools: Sequence[Tool], form: Form, slots: int
) -> list[tuple[str, ...]]:
    rows = []
    for tool in tools:
        key = (tool.name, form, slots)
        runs = results.of(*key)
        if not runs:
            continue
        gap = median(results.values(*key, lambda f: f.gap_p50_ms))
        digits = 2 if gap < 100 else 0
        row = (
            f"{tool.name} {tool.version()}".strip(),
            str(runs[0].jobs),
            number(gap, digits),
            spread(results.ratios(*key, lambda f: f.gap_p50_ms), digits),
            spread(results.values(*key, lambda f: f.gap_p99_ms), 0),
            number(100 * median(results.values(*key, lambda f: f.idle)), 1),
        )
        rows.append((math.inf if math.isnan(gap) else gap, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]
