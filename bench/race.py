"""Run all tools in turn on the same lines; shared by throughput and gap.

In each repeat every tool and the reference run once. Each repeat begins with another tool, so that
a slow minute of the machine does not always affect the same one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from bench.conditions import Conditions, observed
from bench.lab import Lab
from bench.measure import Figures, figures, invalid_reasons, parse_stamps
from bench.process import ToolError
from bench.tools import REFERENCE
from bench.tools.base import Tool
from bench.workload import Batch, Form, durations, prepare_batch


@dataclass(frozen=True)
class BenchPlan:
    """What to run; `sleeping` jobs take about 100 ms, others do nothing."""

    forms: Sequence[Form]
    slots: Sequence[int]
    jobs: int
    repeats: int
    sleeping: bool


@dataclass(frozen=True)
class Result:
    """One run of one tool. `figures` is None if it failed, and ignored if it has faults."""

    tool: str
    form: Form
    slots: int
    repeat: int
    jobs: int
    figures: Figures | None
    faults: list[str]


@dataclass
class RaceResults:
    results: list[Result] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)

    def of(self, tool: str, form: Form, slots: int) -> list[Result]:
        return [r for r in self.results if (r.tool, r.form, r.slots) == (tool, form, slots)]

    def valid(self, tool: str, form: Form, slots: int) -> dict[int, Figures]:
        """Figures of valid runs, by repeat."""
        runs = self.of(tool, form, slots)
        return {r.repeat: r.figures for r in runs if r.figures and not r.faults}

    def values(
        self, tool: str, form: Form, slots: int, pick: Callable[[Figures], float]
    ) -> list[float]:
        return [pick(figures) for figures in self.valid(tool, form, slots).values()]

    def ratios(
        self, tool: str, form: Form, slots: int, pick: Callable[[Figures], float]
    ) -> list[float]:
        """The tool's figure divided by the reference's, for each repeat."""
        base = self.valid(REFERENCE, form, slots)
        return [
            pick(figures) / pick(base[repeat]) if pick(base[repeat]) else math.nan
            for repeat, figures in self.valid(tool, form, slots).items()
            if repeat in base
        ]

    def records(self) -> list[dict[str, object]]:
        return [asdict(r) for r in self.results]


def race(lab: Lab, tools: Sequence[Tool], plan: BenchPlan) -> RaceResults:
    results = RaceResults()
    fit = [tool for tool in tools if _warmed_up(lab, tool, plan, results)]
    for repeat in range(plan.repeats):
        with observed(lab, repeat, results.conditions):
            for form in plan.forms:
                for slots in plan.slots:
                    for tool in _rotated(fit, repeat):
                        if form in tool.forms and not (tool.rounds and repeat):
                            result = _run_once(lab, tool, plan, form, slots, repeat)
                            results.results.append(result)
    return results


def fault_report(results: RaceResults) -> str:
    """One line for every fault and every failed warm-up."""
    lines = [
        f"- {r.tool}, {r.form}, {r.slots} slots, repeat {r.repeat + 1}: {'; '.join(r.faults)}"
        for r in results.results
        if r.faults
    ]
    lines += [f"- {name}: failed its warm-up: {why}" for name, why in results.unfit.items()]
    return "Faults:\n\n" + "\n".join(lines) if lines else "All runs were valid."


def _rotated(tools: Sequence[Tool], by: int) -> Iterator[Tool]:
    for place in range(len(tools)):
        yield tools[(place + by) % len(tools)]


def _warmed_up(lab: Lab, tool: Tool, plan: BenchPlan, results: RaceResults) -> bool:
    """Run one round that is not counted, to fill caches and to check that the tool works."""
    slots = plan.slots[0]
    batch = prepare_batch(
        lab.fresh_path(),
        lab.environ,
        stamp=lab.stamp,
        form=tool.forms[0],
        slots=slots,
        count=slots,
    )
    try:
        tool.run(batch)
        problem = _read(batch, 0)[1]
    except ToolError as error:
        problem = [str(error)]
    if problem:
        results.unfit[tool.name] = "; ".join(problem)
    return not problem


def _run_once(lab: Lab, tool: Tool, plan: BenchPlan, form: Form, slots: int, repeat: int) -> Result:
    count = tool.jobs_for(plan.jobs, slots)
    batch = prepare_batch(
        lab.fresh_path(),
        lab.environ,
        stamp=lab.stamp,
        form=form,
        slots=slots,
        count=count,
        sleeps=durations(count, seed=repeat) if plan.sleeping else None,
        timeout=60 + count,
    )
    found: Figures | None = None
    try:
        command_at_ns = tool.run(batch)
        found, problems = _read(batch, command_at_ns)
    except ToolError as error:
        problems = [str(error)]
    rate = f"{found.steady:8.1f} jobs/s, gap {found.gap_p50_ms:.1f} ms" if found else "failed"
    where = f"repeat {repeat + 1}  {form}  {slots} slots  {tool.name:<20}"
    print(where, rate, "; ".join(problems), file=sys.stderr, flush=True)
    return Result(tool.name, form, slots, repeat, count, found, problems)


def _read(batch: Batch, command_at_ns: int) -> tuple[Figures | None, list[str]]:
    """Figures and faults from the stamps of a batch."""
    stamps = parse_stamps(batch.stamps.read_text()) if batch.stamps.exists() else []
    if not stamps:
        return None, ["no job wrote a stamp"]
    found = figures(stamps, batch.slots, command_at_ns)
    return found, invalid_reasons(found, batch.count, batch.slots)
