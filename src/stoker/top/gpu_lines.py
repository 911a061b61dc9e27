"""GPUs as rows: use, memory, the jobs on them and the processes of other users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.core.formats.sizes import format_size
from stoker.daemon.gpus.process_owners import user_name
from stoker.top.spans import STATE_STYLES, Glyphs, Line, Span, clean, fit_line
from stoker.top.table import Column, bar, column_widths, header, table_line

Gpu = Mapping[str, Any]  # as in `stoker gpus --json`
_WIDE = 110


def gpu_columns(columns: int, last: str, *, is_simulated: bool) -> tuple[Column, ...]:
    """`is_simulated`: GPUs whose use and memory are unknown."""
    measured = (Column("USE", most=30), Column("MEMORY", most=40))
    return (
        Column("GPU", least=3),
        Column("MODEL", most=24 if columns >= _WIDE else 10),
        *(() if is_simulated else measured),
        Column(last, share=1),
    )


def gpu_lines(
    gpus: Sequence[Gpu], titles: Mapping[int, str], columns: int, glyphs: Glyphs
) -> list[Line]:
    """A heading and one row for each GPU. `titles`: the names of jobs."""
    cells = [[*_cells(gpu, columns, glyphs), _users(gpu, titles)] for gpu in gpus]
    return _table(cells, "JOBS AND OTHER PROCESSES", columns, glyphs)


def gpu_pairs(
    gpus: Sequence[Gpu], titles: Mapping[int, str], columns: int, glyphs: Glyphs
) -> list[Line]:
    """Two GPUs in each line, in fewer words, for a host with many and a small terminal."""
    left = columns // 2 - 1
    half = -(-len(gpus) // 2)
    lines: list[Line] = []
    for place in range(half):
        line = fit_line(_short(gpus[place], titles, glyphs), left, glyphs)
        if place + half < len(gpus):
            line = (*line, ("  ", ""), *_short(gpus[place + half], titles, glyphs))
        lines.append(line)
    return lines


def _short(gpu: Gpu, titles: Mapping[int, str], glyphs: Glyphs) -> Line:
    """`0 █████ 97% 30/140G 1 train`"""
    use, used, total = gpu["utilisation_percent"], gpu["memory_used_bytes"], gpu["memory_bytes"]
    load = "-" if use is None else f"{bar(use / 100, 5, glyphs)} {use:3}%"
    memory = "-" if used is None or not total else f"{used / 2**30:.0f}/{total / 2**30:.0f}G"
    return (
        (f"{clean(gpu['visible']):2} ", "bold"),
        (f"{load} ", "green"),
        (f"{memory:>8} ", "cyan"),
        _users(gpu, titles),
    )


def gpu_detail_lines(
    gpus: Sequence[Gpu], titles: Mapping[int, str], columns: int, glyphs: Glyphs
) -> list[Line]:
    """A heading and a row for each GPU, followed by a line for every job and process on it."""
    cells = [[*_cells(gpu, columns, glyphs), _state(gpu, glyphs)] for gpu in gpus]
    heading, *rows = _table(cells, "STATE", columns, glyphs)
    shown = [heading]
    for gpu, line in zip(gpus, rows, strict=True):
        shown.append(line)
        held = gpu.get("reserved_for")
        named = f"reserved for job {held} {titles.get(held or 0, '')}".rstrip()
        kept = [] if held is None else [(named, "yellow")]
        for words, style in (
            *_jobs(gpu, titles, in_full=True),
            *_others(gpu, in_full=True),
            *kept,
        ):
            shown.append((("     ", ""), (words, style)))
    return shown


def _table(cells: list[list[Span]], last: str, columns: int, glyphs: Glyphs) -> list[Line]:
    is_simulated = all(row[2][0] == row[3][0] == "-" for row in cells)
    if is_simulated:
        cells = [[*row[:2], *row[4:]] for row in cells]
    layout = gpu_columns(columns, last, is_simulated=is_simulated)
    widths = column_widths(layout, cells, columns)
    rows = [table_line(row, layout, widths, glyphs) for row in cells]
    return [header(layout, widths, glyphs), *rows]


def _state(gpu: Gpu, glyphs: Glyphs) -> Span:
    """`busy · 62 C · 450 W`"""
    words = [clean(gpu["state"])]
    if gpu.get("temperature_celsius") is not None:
        words.append(f"{gpu['temperature_celsius']} C")
    if gpu.get("power_watts") is not None:
        words.append(f"{gpu['power_watts']:.0f} W")
    return f" {glyphs.dot} ".join(words), STATE_STYLES.get(str(gpu["state"]), "")


def _users(gpu: Gpu, titles: Mapping[int, str]) -> Span:
    """The jobs and processes on a GPU, and why no job starts on it."""
    parts = [*_jobs(gpu, titles), *_others(gpu)]
    if gpu["state"] not in ("busy", "free", "taken"):
        parts.append((f"({clean(gpu['state'])})", "yellow"))
    if gpu.get("reserved_for") is not None:
        parts.append((f"reserved for {gpu['reserved_for']}", "yellow"))
    style = parts[0][1] if parts else "dim"
    return ", ".join(words for words, _ in parts) or "free", style


def _cells(gpu: Gpu, columns: int, glyphs: Glyphs) -> list[Span]:
    length = 10 if columns >= _WIDE else 5
    use, used, total = gpu["utilisation_percent"], gpu["memory_used_bytes"], gpu["memory_bytes"]
    memory = "-"
    if used is not None and total:
        memory = f"{bar(used / total, length, glyphs)} {used / 2**30:.1f}/{format_size(total)}"
    return [
        (clean(gpu["visible"]), "bold"),
        (clean(gpu["model"] or "-").removeprefix("NVIDIA "), ""),
        ("-" if use is None else f"{bar(use / 100, length, glyphs)} {use:3}%", "green"),
        (memory, "cyan"),
    ]


def _jobs(gpu: Gpu, titles: Mapping[int, str], *, in_full: bool = False) -> list[Span]:
    found = []
    for job in gpu["jobs"]:
        words = f"{job['id']} {titles.get(job['id'], '')}".rstrip()
        if in_full:
            words = f"job {words}"
            if job["memory_bytes"]:
                words += f", uses {format_size(job['memory_bytes'])}"
            if job["claim_bytes"]:
                words += f", reserved {format_size(job['claim_bytes'])}"
        found.append((words, ""))
    return found


def _others(gpu: Gpu, *, in_full: bool = False) -> list[Span]:
    style = STATE_STYLES["taken"]
    found = []
    for one in gpu["other_processes"]:
        size = "" if one["memory_bytes"] is None else f" {format_size(one['memory_bytes'])}"
        who = clean(one["user"] or "unknown user")
        pid = f" (pid {one['pid']})" if one["pid"] and in_full else ""
        found.append((f"other process: {who}{pid}{size}" if in_full else f"{who}{size}", style))
    for one in gpu["holders"]:
        amount = "all memory" if one["amount_bytes"] is None else format_size(one["amount_bytes"])
        who = clean(user_name(one["uid"]))
        pid = f" (pid {one['pid']})" if in_full else ""
        found.append((f"{amount} leased to {who}{pid}", style))
    return found
