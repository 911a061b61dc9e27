"""`stoker sweep ls|show|extend|stop|resume|rerun|rm`: what can be done with a sweep later."""

from __future__ import annotations

import math

from stoker.cli.output import as_json, notice, plural, print_json, report_change, table
from stoker.cli.verbs.sweep import in_words, report, shape
from stoker.client.queue import Queue
from stoker.client.reports import JobFiles, failures, of_sweep
from stoker.core.formats.command_line import Parsed
from stoker.core.formats.terminal import printable
from stoker.daemon.helpers.sweep_driver import pause_reason
from stoker.errors import UsageError
from stoker.results.table import Row, best
from stoker.store import sweeps
from stoker.store.sweeps import SweepRow
from stoker.sweep_control import lifecycle
from stoker.sweeps.identity import described

# The options of a new sweep are not those of its actions: a --dry-run that is not understood must
# not become the real thing.
_OPTIONS = {
    "ls": (), "show": (), "extend": ("quiet",), "stop": ("kill", "quiet"), "resume": ("quiet",),
    "rerun": ("failed", "quiet"), "rm": ("jobs", "quiet"),
}  # fmt: skip
_SHOWN_FAILURES = 3
_ALWAYS = ("json", "debug", "help")


def act(queue: Queue, action: str, words: list[str], parsed: Parsed) -> int:
    for option in parsed.values:
        if option not in (*_OPTIONS[action], *_ALWAYS):
            known = ", ".join(f"--{name}" for name in (*_OPTIONS[action], "json"))
            name = f"--{option.replace('_', '-')}"
            raise UsageError(f"`stoker sweep {action}` has no option `{name}`", f"it takes {known}")
    if action == "ls":
        return _list(queue, parsed)
    if not words:
        raise UsageError(f"`stoker sweep {action}` needs the name of a sweep",
                         "`stoker sweep ls` shows them")  # fmt: skip
    name, *rest = words
    if rest and (action not in ("extend", "rerun") or parsed["failed"]):
        raise UsageError(f"`{rest[0]}` is one word too many", "one sweep at a time")
    if action == "show":
        return _show(queue, name, parsed)
    if action == "extend":
        if len(rest) != 1 or not _is_number(rest[0]) or not int(rest[0]):
            raise UsageError("how many more trials?", f"stoker sweep extend {name} 20")
        started = lifecycle.extend(queue, name, int(rest[0]))
        report(started, lifecycle.load(queue.db, name)[1], parsed)
        return 0
    if action == "resume":
        report(lifecycle.resume(queue, name), lifecycle.load(queue.db, name)[1], parsed)
        return 0
    if action == "stop":
        ended, asked = lifecycle.stop(queue, name, kills=bool(parsed["kill"]))
        _tell_or_json(parsed, f"sweep {name} stopped: {plural(ended, 'waiting trial')} cancelled"
                      + (f", {plural(asked, 'running one')} being ended" if asked else "")
                      + f"      go on: stoker sweep resume {name}",
                      sweep=name, cancelled=ended, stopping=asked)  # fmt: skip
        return 0
    if action == "rerun":
        numbers = None
        if not parsed["failed"]:
            if not rest:
                raise UsageError("which trials?", f"stoker sweep rerun --failed {name}, or numbers")
            numbers = _numbers(rest)
        jobs = lifecycle.rerun(queue, name, numbers)
        _tell_or_json(parsed, f"sweep {name}: {plural(len(jobs), 'trial')} queued again",
                      sweep=name, jobs=jobs)  # fmt: skip
        return 0
    removed = lifecycle.remove(queue, name, with_jobs=bool(parsed["jobs"]))
    _tell_or_json(parsed, f"sweep {name} is forgotten"
                  + (f", with {plural(removed, 'job')}" if removed else ""),
                  sweep=name, removed_jobs=removed)  # fmt: skip
    return 0


def _numbers(words: list[str]) -> set[int]:
    found: set[int] = set()
    for word in ",".join(words).split(","):
        low, dash, high = word.partition("-")
        if not _is_number(low) or (dash and not _is_number(high)):
            raise UsageError(f"`{word}` is not a trial", "write 3, 5-9 or 3,5")
        first, last = int(low), int(high or low)
        if last < first or last - first > 10**6:
            raise UsageError(f"`{word}` is no range of trials", "write the smaller one first: 5-9")
        found.update(range(first, last + 1))
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _tell_or_json(parsed: Parsed, text: str, **content: object) -> None:
    if parsed["json"] or not parsed["quiet"]:
        report_change(as_json(**content) if parsed["json"] else text, text)


def _list(queue: Queue, parsed: Parsed) -> int:
    found = []
    for row in sweeps.all_sweeps(queue.db):
        counts = sweeps.counts(queue.db, row.id)
        _, spec, _ = lifecycle.load(queue.db, row.name)
        found.append((row, counts, spec))
    if parsed["json"]:
        print_json(sweeps=[
            {"name": row.name, "trials": counts, "method": spec.method, "stopped": row.stopped,
             "paused": _pause(queue, row), "command": described(spec.template)}
            for row, counts, spec in found
        ])  # fmt: skip
        return 0
    if not found:
        notice("no sweeps yet; `stoker sweep --help` shows how to make one")
        return 0
    lines = []
    for row, counts, spec in found:
        waiting = counts.get("queued", 0) + counts.get("held", 0)
        running = sum(counts.get(state, 0) for state in ("starting", "running", "stopping"))
        bad = counts.get("failed", 0) + counts.get("lost", 0)
        lines.append((row.name, sum(counts.values()), counts.get("done", 0), running, waiting, bad,
                      _state(queue, row, running + waiting), described(spec.template)))  # fmt: skip
    print(table(("SWEEP", "TRIALS", "DONE", "RUN", "WAIT", "FAIL", "STATE", "COMMAND"), lines))
    return 0


def _pause(queue: Queue, row: SweepRow) -> str | None:
    """Why the search makes no new trials at the moment."""
    if row.stopped is not None or not row.is_driven:
        return None
    return sweeps.pause(queue.db, row.id) or pause_reason(queue.settings.state_dir)


def _state(queue: Queue, row: SweepRow, open_ones: int) -> str:
    if row.stopped is not None:
        return "stopped"
    if _pause(queue, row) is not None:
        return "paused"
    return "active" if open_ones or row.is_driven else "over"


def _best(row: Row | None) -> dict[str, object] | None:
    """Strict JSON, whatever was reported."""
    if row is None:
        return None
    metrics = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.metrics.items()
    }
    return {"trial": row.trial, "params": row.params, "metrics": metrics}


def _show(queue: Queue, name: str, parsed: Parsed) -> int:
    row, spec, base = lifecycle.load(queue.db, name)
    reported = of_sweep(queue.db, JobFiles(queue.settings.state_dir), row)
    counts = sweeps.counts(queue.db, row.id)
    trials = sweeps.trials(queue.db, row.id)
    bad = failures(JobFiles(queue.settings.state_dir), trials)
    deaf = lifecycle.deaf_trials(queue.settings.state_dir, trials)
    pause = _pause(queue, row)
    top = None
    rows = [one.row for one in reported]
    if spec.metric is not None and any(spec.metric.name in row.metrics for row in rows):
        top = best(rows, f"metric.{spec.metric.name}", spec.metric.goal)
    if parsed["json"]:
        print_json(name=name, spec=spec.to_json(), trials=counts, stopped=row.stopped, paused=pause,
                   created_at=row.created_at, failures=[one._asdict() for one in bad],
                   best=_best(top), asked_to_stop=deaf)  # fmt: skip
        return 0
    print(f"sweep {name}")
    print(f"  command   {printable(described(spec.template))}")
    for template in spec.earlier:
        print(f"  earlier   {printable(described(template))}")
    print(f"  folder    {printable(base.context.cwd)}")
    seed = f", seed {spec.seed}" if spec.method != "grid" else ""
    limit = f", {plural(spec.wanted, 'trial')}" if spec.wanted is not None else ""
    print(f"  space     {shape(spec)}  ({spec.method}{limit}{seed})")
    for key, value in spec.space.constants:
        print(f"            {key} = {printable(value.text)}")
    print(f"  trials    {sum(counts.values())}: {in_words(counts)}")
    if spec.metric is not None:
        print(f"  metric    {spec.metric.name} ({spec.metric.goal})")
    if row.stopped is not None:
        print(f"  stopped   {printable(row.stopped)}")
    if pause is not None:
        print(f"  paused    {printable(pause)}")
    hint = lifecycle.deaf_hint(spec)
    if deaf and hint is not None:
        verb = "runs" if len(deaf) == 1 else "run"
        print(f"  warning   {plural(len(deaf), 'trial')} asked to stop early still {verb}: {hint}")
    for failure in bad[:_SHOWN_FAILURES]:
        is_said = failure.words[:40] in (row.stopped or "")
        words = "as above" if is_said else printable(failure.words)
        print(f"  failed    {failure.trials}: {words}      stoker log {failure.job}")
    if top is not None and spec.metric is not None:
        params = ", ".join(f"{k}={v}" for k, v in top.params.items())
        print(f"  best      trial {top.trial}: {spec.metric.name}="
              f"{top.metrics[spec.metric.name]}  ({printable(params)})")  # fmt: skip
    print(f"results: stoker results {name}      curves: stoker plot {name}")
    return 0
