"""Sweeps as rows: progress, failures and the best trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker.core.states import FINAL
from stoker.results.export import short
from stoker.top.spans import STATE_STYLES, Glyphs, Span, clean
from stoker.top.table import Column, bar

Sweep = Mapping[str, Any]  # as in client/sweeps_view.py

COLUMNS = (
    Column("SWEEP", most=24),
    Column("STATE", least=8),
    Column("FINISHED", least=12),
    Column("FAILED", is_right=True),
    Column("BEST", most=28),
    Column("COMMAND", share=1),
)


def sweep_cells(sweep: Sweep, glyphs: Glyphs) -> list[Span]:
    trials, total = sweep["trials"], int(sweep["total"])
    finished = sum(trials.get(state, 0) for state in FINAL)
    failed = trials.get("failed", 0) + trials.get("lost", 0)
    state = str(sweep["state"])
    part = finished / total if total else 0.0
    return [
        (clean(sweep["name"]), ""),
        (state, STATE_STYLES.get(state, "")),
        (f"{bar(part, 8, glyphs)} {finished}/{total}", ""),
        (str(failed), "red" if failed else "dim"),
        (_best(sweep), ""),
        (clean(sweep["command"]), ""),
    ]


def _best(sweep: Sweep) -> str:
    best, metric = sweep["best"], sweep["metric"]
    if best is None or metric is None:
        return "-"
    return clean(f"{metric['name']} {short(best['value'])} (trial {best['trial']})")
