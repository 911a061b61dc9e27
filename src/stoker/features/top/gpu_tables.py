"""GPUs as tables: use, memory, the jobs on them and the processes of other users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.features.top.glyphs import STATE_STYLES, Glyphs, Span, clean
from stoker.text.plurals import plural
from stoker.text.sizes import format_size

Gpu = Mapping[str, Any]  # as in `stoker gpus --json`
_WIDE = 110


def gpu_table(
    gpus: Sequence[Gpu],
    titles: Mapping[int, str],
    columns: int,
    glyphs: Glyphs,
    *,
    is_detailed: bool = False,
) -> Table:
    """A row for each GPU. `titles`: the names of jobs. `is_detailed`: with a line for its state and
    for each job and process on it."""
    length = 10 if columns >= _WIDE else 5
    is_measured = any(
        gpu["utilisation_percent"] is not None or gpu["memory_used_bytes"] is not None
        for gpu in gpus
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=True)
    for name in ("GPU", "MODEL", *(("USE", "MEMORY") if is_measured else ())):
        table.add_column(name, no_wrap=True)
    last = "STATE" if is_detailed else "JOBS AND OTHER PROCESSES"
    table.add_column(last, ratio=1, no_wrap=not is_detailed)
    for gpu in gpus:
        used, total = gpu["memory_used_bytes"], gpu["memory_bytes"]
        memory = "-"
        if used is not None and total:
            memory = f"{glyphs.bar(used / total, length)} {used / 2**30:.1f}/{format_size(total)}"
        model = clean(gpu["model"] or "-").removeprefix("NVIDIA ")
        cells = [Text(clean(gpu["visible"]), "bold"), Text(model[: 24 if length == 10 else 10])]
        if is_measured:
            cells += [Text(_use(gpu, length, glyphs), "green"), Text(memory, "cyan")]
        if is_detailed:
            lines = [Text(*span) for span in _details(gpu, titles, glyphs)]
            cells.append(Text("\n").join(lines))
        else:
            cells.append(glyphs.line(*_users(gpu, titles)))
        table.add_row(*cells)
    return table


def gpu_pairs(gpus: Sequence[Gpu], titles: Mapping[int, str], most: int, glyphs: Glyphs) -> Table:
    """Two GPUs in each line, in fewer words, for a host with many and a small terminal; at most
    `most` lines, and then the number of the others."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(ratio=1, no_wrap=True)
    table.add_column(ratio=1, no_wrap=True)
    half = -(-len(gpus) // 2)
    lines = half if half <= most + 1 else most
    for place in range(lines):
        table.add_row(*(_short(gpu, titles, glyphs) for gpu in gpus[place::half]))
    if lines < half:
        table.add_row(Text(f"{plural(len(gpus) - 2 * lines, 'more GPU')} (press 2)", "dim"))
    return table


def _short(gpu: Gpu, titles: Mapping[int, str], glyphs: Glyphs) -> Text:
    """`0 █████ 97% 30/140G 1 train`"""
    used, total = gpu["memory_used_bytes"], gpu["memory_bytes"]
    memory = "-" if used is None or not total else f"{used / 2**30:.0f}/{total / 2**30:.0f}G"
    line = glyphs.line("").append(f"{clean(gpu['visible']):2} ", "bold")
    line.append(f"{_use(gpu, 5, glyphs)} ", "green").append(f"{memory:>8} ", "cyan")
    return line.append(*_users(gpu, titles))


def _use(gpu: Gpu, length: int, glyphs: Glyphs) -> str:
    use = gpu["utilisation_percent"]
    return "-" if use is None else f"{glyphs.bar(use / 100, length)} {use:3}%"


def _users(gpu: Gpu, titles: Mapping[int, str]) -> Span:
    """The jobs and processes on a GPU, and why no job starts on it."""
    parts = [*_jobs(gpu, titles), *_others(gpu)]
    if gpu["state"] not in ("busy", "free", "taken"):
        parts.append((f"({clean(gpu['state'])})", "yellow"))
    if gpu.get("reserved_for") is not None:
        parts.append((f"reserved for {gpu['reserved_for']}", "yellow"))
    style = parts[0][1] if parts else "dim"
    return ", ".join(words for words, _ in parts) or "free", style


def _details(gpu: Gpu, titles: Mapping[int, str], glyphs: Glyphs) -> list[Span]:
    """`busy · 62 C · 450 W`, and each job and process."""
    words = [clean(gpu["state"])]
    if gpu.get("temperature_celsius") is not None:
        words.append(f"{gpu['temperature_celsius']} C")
    if gpu.get("power_watts") is not None:
        words.append(f"{gpu['power_watts']:.0f} W")
    state = (glyphs.dot.join(words), STATE_STYLES.get(str(gpu["state"]), ""))
    lines = [state, *_jobs(gpu, titles, in_full=True), *_others(gpu, in_full=True)]
    held = gpu.get("reserved_for")
    if held is not None:
        lines.append((f"reserved for job {held} {titles.get(held, '')}".rstrip(), "yellow"))
    return lines


def _jobs(gpu: Gpu, titles: Mapping[int, str], *, in_full: bool = False) -> list[Span]:
    spans = []
    for job in gpu["jobs"]:
        words = f"{job['id']} {titles.get(job['id'], '')}".rstrip()
        if in_full:
            words = f"job {words}"
            if job["memory_bytes"]:
                words += f", uses {format_size(job['memory_bytes'])}"
            if job["claim_bytes"]:
                words += f", reserved {format_size(job['claim_bytes'])}"
        spans.append((words, ""))
    return spans


def _others(gpu: Gpu, *, in_full: bool = False) -> list[Span]:
    style = STATE_STYLES["taken"]
    spans = []
    for process in gpu["other_processes"]:
        size = process["memory_bytes"]
        words = clean(process["user"] or "unknown user")
        if in_full:
            words = f"other process: {words}"
            words += f" (pid {process['pid']})" if process["pid"] else ""
        spans.append((words if size is None else f"{words} {format_size(size)}", style))
    for holder in gpu["holders"]:
        size = holder["amount_bytes"]
        amount = "all memory" if size is None else format_size(size)
        pid = f" (pid {holder['pid']})" if in_full else ""
        spans.append((f"{amount} leased to {clean(user_name(holder['uid']))}{pid}", style))
    return spans
