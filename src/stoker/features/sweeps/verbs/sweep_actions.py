"""`stoker sweep ls|show|clone|extend|add|stop|resume|rerun|rm`: manage existing sweeps."""

from __future__ import annotations

import math

from stoker.cli.confirmation import is_confirmed
from stoker.cli.output import as_json, notice, plural, print_json, report_change, table
from stoker.client.queue import Queue
from stoker.client.submit.job_options import file_values, flag_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.spec_options import options_of_spec
from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.features.notes import store as notes
from stoker.features.notes.client import full_note_json, sweep_note_json
from stoker.features.results.reports.reports import JobFiles, failures, sweep_reports
from stoker.features.results.table import Row, best
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.control.clone import cloned, cloned_job, free_name
from stoker.features.sweeps.spec import arguments, names
from stoker.features.sweeps.spec.identity import describe_template
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.spec.value_text import edited_space
from stoker.features.sweeps.sweep_command import (
    adding_trials,
    describe_counts,
    is_wanted,
    read_conditions,
    read_early_stop,
    report,
    shape,
    show_preview,
)
from stoker.features.sweeps.sweep_states import pause as pause_of
from stoker.features.sweeps.sweep_states import removal_text, sweep_state
from stoker.text.command_line import Parsed
from stoker.text.terminal import printable

# Options of each action. Options of a new sweep are errors here: an ignored --dry-run would be
# dangerous.
_OPTIONS = {
    "ls": ("tag", "starred"),
    "show": (),
    "extend": ("quiet",),
    "stop": ("kill", "quiet"),
    "resume": ("quiet",),
    "rerun": ("failed", "quiet"),
    "rm": ("jobs", "yes", "quiet"),
    "add": ("param", "point", "dry_run", "quiet"),
}
_SHOWN_FAILURES = 3
_ALWAYS = ("json", "debug", "help")


def act(queue: Queue, action: str, words: list[str], parsed: Parsed) -> int:
    if action == "clone":
        return clone(queue, words, parsed)
    for option in parsed.values:
        if option not in (*_OPTIONS[action], *_ALWAYS):
            known = ", ".join(f"--{name}" for name in (*_OPTIONS[action], "json"))
            name = f"--{option.replace('_', '-')}"
            raise UsageError(
                f"`stoker sweep {action}` has no option `{name}`", f"its options: {known}"
            )
    if action == "ls":
        return _list(queue, parsed)
    if not words:
        raise UsageError(
            f"`stoker sweep {action}` needs the name of a sweep",
            "list the sweeps with: stoker sweep ls",
        )
    name, *rest = words
    if rest and (action not in ("extend", "rerun", "add") or parsed["failed"]):
        raise UsageError(f"unexpected argument `{rest[0]}`", "give one sweep at a time")
    if action == "show":
        return _show(queue, name, parsed)
    if action == "extend":
        if len(rest) != 1:
            raise UsageError(
                "give the number of trials to add", f"example: stoker sweep extend {name} 20"
            )
        if not _is_number(rest[0]) or not int(rest[0]):
            raise UsageError(
                f"the number of trials to add must be an integer above 0, not `{rest[0]}`",
                f"example: stoker sweep extend {name} 20",
            )
        with adding_trials(lifecycle.load(queue.db, name)[1]) as on_progress:
            started = lifecycle.extend(queue, name, int(rest[0]), on_progress)
        report(started, lifecycle.load(queue.db, name)[1], parsed)
        return 0
    if action == "add":
        return _add(queue, name, rest, parsed)
    if action == "resume":
        spec = lifecycle.load(queue.db, name)[1]
        with adding_trials(spec) as on_progress:
            started = lifecycle.resume(queue, name, on_progress)
        report(started, spec, parsed)
        return 0
    if action == "stop":
        cancelled, stopping = lifecycle.stop(queue, name, kills=bool(parsed["kill"]))
        text = f"sweep {name} stopped: {plural(cancelled, 'waiting trial')} cancelled"
        if stopping:
            text += f", {plural(stopping, 'running trial')} stopping"
        text += f"      resume: stoker sweep resume {name}"
        _print_change(parsed, text, sweep=name, cancelled=cancelled, stopping=stopping)
        return 0
    if action == "rerun":
        numbers = None
        if not parsed["failed"]:
            if not rest:
                raise UsageError(
                    "`stoker sweep rerun` needs trial numbers or `--failed`",
                    f"stoker sweep rerun {name} 3,5-9, or: stoker sweep rerun --failed {name}",
                )
            numbers = _numbers(rest)
        jobs = lifecycle.rerun(queue, name, numbers)
        text = f"sweep {name}: {plural(len(jobs), 'trial')} queued again"
        _print_change(parsed, text, sweep=name, jobs=jobs)
        return 0
    with_jobs = bool(parsed["jobs"])
    row = sweeps.get(queue.db, name)
    lifecycle.check_removable(queue, row)
    plan = removal_text(sweeps.count_trials(queue.db, row.id), with_jobs=with_jobs)
    if not is_confirmed(parsed, f"{plan}\nremove sweep {name}", "nothing was removed"):
        return 0
    removed = lifecycle.remove(queue, name, with_jobs=with_jobs)
    text = f"sweep {name} removed" + (f", with {plural(removed, 'job')}" if removed else "")
    _print_change(parsed, text, sweep=name, removed_jobs=removed)
    return 0


def _add(queue: Queue, name: str, words: list[str], parsed: Parsed) -> int:
    """Add values of parameters, or one point, to a sweep."""
    if not words and not parsed["param"]:
        raise UsageError("give the values to add", f"example: stoker sweep add {name} lr=1e-5,1e-6")
    for word in words:
        if not arguments.is_assignment(word):
            raise UsageError(f"`{word}` is not a parameter", "write name=value,value")
    named = [(one[0], one[1:]) for one in parsed["param"] or ()]
    added = arguments.space_from(words, named).grids[0]
    is_point = bool(parsed["point"])
    if parsed["dry_run"]:
        preview = lifecycle.preview_added(queue, name, added, is_point=is_point)
        only_new = preview._replace(missing=[])
        return show_preview(queue, only_new, lifecycle.load(queue.db, name)[2], parsed)
    with adding_trials(lifecycle.load(queue.db, name)[1]) as on_progress:
        started = lifecycle.add_values(
            queue, name, added, is_point=is_point, on_progress=on_progress
        )
    report(started, lifecycle.load(queue.db, name)[1], parsed, names_new=True)
    return 0


def _numbers(words: list[str]) -> set[int]:
    found: set[int] = set()
    for word in ",".join(words).split(","):
        low, dash, high = word.partition("-")
        if not _is_number(low) or (dash and not _is_number(high)):
            raise UsageError(f"`{word}` is not a trial number", "write 3, 5-9 or 3,5")
        first, last = int(low), int(high or low)
        if last < first or last - first > 10**6:
            raise UsageError(
                f"`{word}` is not a valid range of trials", "write the smaller number first: 5-9"
            )
        found.update(range(first, last + 1))
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _print_change(parsed: Parsed, text: str, **content: object) -> None:
    if parsed["json"] or not parsed["quiet"]:
        report_change(as_json(**content) if parsed["json"] else text, text)


def _list(queue: Queue, parsed: Parsed) -> int:
    found = []
    for row in sweeps.all_sweeps(queue.db):
        if not _is_listed(queue, row.id, parsed):
            continue
        counts = sweeps.counts(queue.db, row.id)
        _, spec, _ = lifecycle.load(queue.db, row.name)
        found.append((row, counts, spec))
    if parsed["json"]:
        print_json(
            sweeps=[
                {
                    "name": row.name,
                    "trials": counts,
                    "method": spec.method,
                    "stopped": row.stopped,
                    "paused": pause_of(queue.db, row),
                    "command": describe_template(spec.template),
                    **sweep_note_json(queue.db, row.id),
                }
                for row, counts, spec in found
            ]
        )
        return 0
    if not found:
        is_filtered = parsed["tag"] or parsed["starred"]
        notice("no matching sweeps" if is_filtered else "no sweeps yet; see `stoker sweep --help`")
        return 0
    stars = notes.starred(queue.db, notes.SWEEP, [row.id for row, _, _ in found])
    lines = []
    for row, counts, spec in found:
        waiting = sum(counts.get(state, 0) for state in ("queued", "held", "submitted"))
        running = sum(counts.get(state, 0) for state in ("starting", "running", "stopping"))
        failed = counts.get("failed", 0) + counts.get("lost", 0)
        lines.append(
            (
                f"* {row.name}" if row.id in stars else row.name,
                sum(counts.values()),
                counts.get("done", 0),
                running,
                waiting,
                failed,
                sweep_state(queue.db, row, counts),
                describe_template(spec.template),
            )
        )
    print(table(("SWEEP", "TRIALS", "DONE", "RUN", "WAIT", "FAIL", "STATE", "COMMAND"), lines))
    return 0


def _is_listed(queue: Queue, sweep: int, parsed: Parsed) -> bool:
    """Whether a sweep has the star and all the tags that `sweep ls` was asked for."""
    if parsed["starred"] and not notes.is_starred(queue.db, notes.SWEEP, sweep):
        return False
    wanted = {tag for tags in parsed["tag"] or () for tag in tags}
    return not wanted or wanted <= set(notes.tags(queue.db, notes.SWEEP, sweep))


def _best(row: Row | None) -> dict[str, object] | None:
    """The best trial for strict JSON: metrics that are not finite become null."""
    if row is None:
        return None
    metrics = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.metrics.items()
    }
    return {"trial": row.trial, "params": row.params, "metrics": metrics}


def _show(queue: Queue, name: str, parsed: Parsed) -> int:
    row, spec, base = lifecycle.load(queue.db, name)
    reported = sweep_reports(queue.db, JobFiles(queue.settings.state_dir), row)
    counts = sweeps.counts(queue.db, row.id)
    trials = sweeps.trials(queue.db, row.id)
    failed = failures(JobFiles(queue.settings.state_dir), trials)
    ignoring_stop = lifecycle.trials_ignoring_stop(queue.settings.state_dir, trials)
    pause = pause_of(queue.db, row)
    top = None
    rows = [one.row for one in reported]
    if spec.metric is not None and any(spec.metric.name in row.metrics for row in rows):
        top = best(rows, f"metric.{spec.metric.name}", spec.metric.goal)
    note = notes.note(queue.db, notes.SWEEP, row.id)
    if parsed["json"]:
        print_json(
            **sweep_note_json(queue.db, row.id),
            **full_note_json(note),
            name=name,
            spec=spec.to_json(),
            trials=counts,
            stopped=row.stopped,
            paused=pause,
            created_at=row.created_at,
            failures=[one._asdict() for one in failed],
            best=_best(top),
            asked_to_stop=ignoring_stop,
        )
        return 0
    print(f"sweep {name}")
    print(f"  command   {printable(describe_template(spec.template))}")
    for template in spec.earlier:
        print(f"  earlier   {printable(describe_template(template))}")
    print(f"  folder    {printable(base.context.cwd)}")
    seed = f", seed {spec.seed}" if spec.method != "grid" else ""
    limit = f", {plural(spec.total_trials, 'trial')}" if spec.total_trials is not None else ""
    print(f"  space     {shape(spec)}  ({spec.method}{limit}{seed})")
    if spec.points:
        print(f"            and {plural(len(spec.points), 'point')} added one by one")
    for key, value in spec.space.constants:
        print(f"            {key} = {printable(value.text)}")
    print(f"  trials    {sum(counts.values())}: {describe_counts(counts)}")
    if spec.metric is not None:
        print(f"  metric    {spec.metric.words}")
    if row.stopped is not None:
        print(f"  stopped   {printable(row.stopped)}")
    if pause is not None:
        print(f"  paused    {printable(pause)}")
    hint = lifecycle.early_stop_hint(spec)
    if ignoring_stop and hint is not None:
        number = plural(len(ignoring_stop), "trial")
        verb = "runs" if len(ignoring_stop) == 1 else "run"
        print(f"  warning   {number} asked to stop early still {verb}: {hint}")
    for failure in failed[:_SHOWN_FAILURES]:
        is_repeated = failure.message[:40] in (row.stopped or "")
        words = "see above" if is_repeated else printable(failure.message)
        print(f"  failed    {failure.trials}: {words}      stoker log {failure.job}")
    if top is not None and spec.metric is not None:
        params = ", ".join(f"{k}={v}" for k, v in top.params.items())
        print(
            f"  best      trial {top.trial}: {spec.metric.name}="
            f"{top.metrics[spec.metric.name]}  ({printable(params)})"
        )
    tags = notes.tags(queue.db, notes.SWEEP, row.id)
    if tags:
        print(f"  tags      {printable(', '.join(tags))}")
    if note.starred:
        print("  star      yes")
    for at, line in enumerate(note.text.split("\n") if note.text else []):
        print(f"  {'' if at else 'note':<10}{printable(line)}".rstrip())
    print(f"results: stoker results {name}      curves: stoker plot {name}")
    return 0


_NOT_FOR_CLONES = ("failed", "kill", "jobs", "point", "sync")
_FIELDS = ("method", "trials", "seed", "metric", "max_parallel", "max_fails")


def clone(queue: Queue, words: list[str], parsed: Parsed) -> int:
    """Start the clone, or print its commands (`--dry-run`). Returns the exit code 0."""
    for option in _NOT_FOR_CLONES:
        if parsed[option]:
            raise UsageError(
                f"`stoker sweep clone` has no option `--{option}`",
                "its options are those of a new sweep",
            )
    if not words:
        raise UsageError(
            "`stoker sweep clone` needs the name of a sweep",
            "list the sweeps with: stoker sweep ls",
        )
    old, *assignments = words
    for word in assignments:
        if not arguments.is_assignment(word):
            raise UsageError(
                f"`{word}` is not a parameter",
                "the command of the original is used; give values: lr=1e-3,1e-4",
            )
    row, given, before = lifecycle.load(queue.db, old)
    spec = _edited(queue, given, old, assignments, parsed)
    base = _base(queue, before, parsed)
    if parsed["dry_run"]:
        preview = lifecycle.preview(queue, spec, base)
        return show_preview(queue, preview, base, parsed)
    same_fails = row.same_fails or 0 if parsed["same_fails"] is None else parsed["same_fails"]
    if not is_wanted(lifecycle.count_new(queue, spec, base), parsed):
        return 1
    with adding_trials(spec) as on_progress:
        started = lifecycle.start(queue, spec, base, same_fails, on_progress=on_progress)
    report(started, spec, parsed)
    return 0


def _edited(
    queue: Queue, given: SweepSpec, old: str, assignments: list[str], parsed: Parsed
) -> SweepSpec:
    name = names.check(parsed["name"]) if parsed["name"] else free_name(queue.db, old)
    if sweeps.by_name(queue.db, name) is not None and not parsed["dry_run"]:
        raise UsageError(
            f"there is already a sweep `{name}`", "choose another name with --name NAME"
        )
    changes: dict[str, object] = {key: parsed[key] for key in _FIELDS if parsed[key] is not None}
    changes["name"] = name
    stop = read_early_stop(parsed["early_stop"])
    if stop is not None:
        changes["early_stop"] = stop
    if parsed["lenient"]:
        changes["lenient"] = True
    parameters = [(one[0], one[1:]) for one in parsed["param"] or ()]
    if assignments or parameters:
        conditions = read_conditions(parsed)
        made = arguments.space_from(assignments, parameters, conditions)
        changes["space"] = edited_space(given.space, made.grids[0])
    elif parsed["when"]:
        raise UsageError("`--when` needs the values of its parameter", "write wd=0,0.1 as well")
    return cloned(given, changes)


def _base(queue: Queue, old: JobSpec, parsed: Parsed) -> JobSpec:
    """The options of the original's jobs; those of the command line override them."""
    given = flag_values({**parsed.values, "name": None})
    values = {**file_values(options_of_spec(old)), **given}
    base = JobSpecs(queue.settings, queue.devices(), values).base
    env = dict((*given.get("env_file", ()), *given.get("env", ())))
    return cloned_job(base, old, given, env)
