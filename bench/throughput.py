"""Jobs per second of each tool, with jobs that do nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bench.lab import Lab
from bench.race import BenchPlan, RaceResults, fault_report, race
from bench.report import Section
from bench.table import median, number, spread, table
from bench.tools.base import Tool
from bench.workload import Form

TITLE = "Throughput of no-op jobs"
HEADINGS = (
    "tool",
    "jobs",
    "jobs/s",
    "including startup",
    "ratio to reference (range)",
    "peak",
    "record kept",
)


def measure_throughput(lab: Lab, tools: Sequence[Tool], plan: BenchPlan) -> Section:
    results = race(lab, tools, plan)
    parts = []
    for form in plan.forms:
        for slots in plan.slots:
            title = f"**{form} lines, {slots} slots** (medians of {plan.repeats})"
            parts += [title, table(HEADINGS, _rows(results, tools, form, slots))]
    text = "\n\n".join([*parts, fault_report(results)])
    return Section("throughput", TITLE, text, results.records(), results.conditions)


def _rows(
    results: RaceResults, tools: Sequence[Tool], form: Form, slots: int
) -> list[tuple[str, ...]]:
    rows = []
    for tool in tools:
        key = (tool.name, form, slots)
        runs = results.of(*key)
        if not runs:
            continue
        rate = median(results.values(*key, lambda f: f.steady))
        digits = 0 if rate >= 10 else 1
        row = (
            f"{tool.name} {tool.version()}".strip(),
            str(runs[0].jobs),
            number(rate, digits),
            number(median(results.values(*key, lambda f: f.with_start_up)), digits),
            spread(results.ratios(*key, lambda f: f.steady), 4 if digits else 2),
            str(max((r.figures.peak for r in runs if r.figures), default=0)),
            tool.keeps,
        )
        rows.append((rate, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0], reverse=True)]
