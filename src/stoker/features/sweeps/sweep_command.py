"""Runs `stoker sweep`: read the parameters and start the sweep."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stoker.cli.confirmation import can_ask, is_confirmed
from stoker.cli.job_flags import refuse_sync, sweep_base
from stoker.cli.open_queue import open_queue
from stoker.cli.output import ProgressLine, as_json, notice, plural, print_json, report_change
from stoker.cli.start_notice import STARTED
from stoker.client.queue import Queue
from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.control.lifecycle import SAME_FAILS, Started, SweepPreview
from stoker.features.sweeps.control.trials import Trials
from stoker.features.sweeps.files import sweep_file
from stoker.features.sweeps.spec import arguments, names, other_names
from stoker.features.sweeps.spec.domains import Choices
from stoker.features.sweeps.spec.search_space import Axis
from stoker.features.sweeps.spec.spec import ADAPTIVE, EARLY_STOP_OPTIONS, SweepSpec, make_spec
from stoker.features.sweeps.spec.values import point_from_json
from stoker.features.sweeps.template.template import check_shell
from stoker.features.sweeps.verbs.sweep import ACTIONS
from stoker.text.command_line import Parsed
from stoker.text.commands.shell_words import display
from stoker.text.selectors import id_ranges
from stoker.text.suggestions import nearest
from stoker.text.terminal import printable

_SHOWN_RANGES = 10
_MAX_UNASKED = 1000  # trials of a grid that are queued without a question
_ACTION_OF = {"failed": "rerun", "kill": "stop", "jobs": "rm", "point": "add"}


def run(parsed: Parsed) -> int:
    words = parsed.words
    refuse_sync(parsed)
    if words and words[0] in ACTIONS and not parsed.dashed:
        from stoker.features.sweeps.verbs.sweep_actions import act

        return act(open_queue(), words[0], words[1:], parsed)
    _check_action(parsed)
    queue = open_queue()
    spec, is_suggested = _spec(parsed)
    base = sweep_base(queue.settings, queue.devices(), spec, parsed)
    same_fails = SAME_FAILS if parsed["same_fails"] is None else parsed["same_fails"]
    if parsed["dry_run"]:
        return _dry_run(queue, spec, base, parsed, is_suggested)
    if spec.template.shell:
        check_shell(base.context.shell)
    new = lifecycle.count_new(queue, spec, base, is_suggested=is_suggested)
    if not is_wanted(new, parsed):
        return 1
    try:
        with adding_trials(spec) as on_progress:
            started = lifecycle.start(
                queue,
                spec,
                base,
                same_fails,
                is_suggested=is_suggested,
                on_progress=on_progress,
                token=parsed["token"],
            )
    except KeyboardInterrupt:
        notice("interrupted: trials in the queue will run; start the sweep again for the rest")
        raise
    if not (parsed["json"] or parsed["quiet"]):
        _print_notes(spec, started.listed)
    report(started, spec, parsed)
    return 0


def is_wanted(new: int, parsed: Parsed) -> bool:
    """Ask before many trials are queued that no one counted; raises UsageError in a script."""
    if new <= _MAX_UNASKED or parsed["yes"]:
        return True
    if not can_ask() or parsed["json"]:
        raise UsageError(
            f"this sweep has {new:,} new trials", "to queue them all, add -y; for fewer: --trials N"
        )
    return is_confirmed(parsed, f"queue {new:,} trials", "no trial was queued")


@contextmanager
def adding_trials(spec: SweepSpec) -> Iterator[Callable[[int], None]]:
    """A progress line on a terminal while trials are added; a million trials take 20 s."""
    wanted, points = spec.total_trials, spec.space.size.points
    total = min((number for number in (wanted, points) if number is not None), default=None)
    of_all = "" if total is None else f" of {total}"
    line = ProgressLine()
    try:
        yield lambda count: line.write(f"added {count}{of_all} trials")
    finally:
        line.clear()


def _print_notes(spec: SweepSpec, listed: int | None) -> None:
    """Print notices about equal values and about fewer points than trials."""
    for one, same in spec.space.merged:
        notice(
            f"note: `{printable(one)}` and `{printable(same)}` are the same value and give one "
            "trial; quote a value to make it a string"
        )
    for axis in (axis for grid in spec.space.grids for axis in grid):
        numbers = re.fullmatch(r"(\d+)(-|:|\.\.)(\d+)", _only_value(axis))
        if numbers:
            name, text, ends = axis.names[0], numbers[0], f"{numbers[1]},{numbers[3]}"
            notice(f"note: `{name}={text}` is one text; for integers, write '{name}=int({ends})'")
    wanted, points = spec.total_trials, spec.space.size.points
    if wanted is None:
        return
    if listed is None and points is not None and points < wanted:
        notice(f"note: at most {points} of {wanted} trials: there are no other points")
    elif listed is not None and listed < wanted:
        notice(f"note: {listed} of {wanted} trials: there are no other points")


def _only_value(axis: Axis) -> str:
    """The text of a parameter with one value; empty for others."""
    domain = axis.domains[0]
    return domain.values[0].text if isinstance(domain, Choices) and axis.size == 1 else ""


def _check_action(parsed: Parsed) -> None:
    """Raise UsageError for a misspelled action, and for options that need an action."""
    words = parsed.words
    for option in _ACTION_OF:
        if parsed[option]:
            raise UsageError(
                f"`--{option}` cannot be used with a new sweep",
                f"it is an option of `stoker sweep {_ACTION_OF[option]} NAME`",
            )
    if not words or parsed.dashed or parsed["param"] or not words[0].isalpha():
        return
    near = nearest(words[0], list(ACTIONS), other_names.ACTIONS)
    if near is not None and not any(map(arguments.is_assignment, words[1:])):
        raise UsageError(f"`stoker sweep` has no action `{words[0]}`", f"did you mean `{near}`?")


def _spec(parsed: Parsed) -> tuple[SweepSpec, bool]:
    """Return the sweep, and whether its name was derived from the file name."""
    words = parsed.words
    path = words[0] if words and not parsed.dashed and _is_file(words[0]) else None
    if path is not None:
        if len(words) > 1 or parsed["param"]:
            more = words[1] if len(words) > 1 else "-p"
            raise UsageError(
                f"`{more}` cannot be combined with the sweep file `{path}`",
                "write the parameters into the file",
            )
        for option in ("when", "lenient"):
            if parsed[option]:
                raise UsageError(
                    f"`--{option}` is only for parameters on the command line",
                    f"write it into `{path}`",
                )
        spec = sweep_file.load(path)
        own = parsed["name"] or spec.name
        name = names.check(own) if own else _stem(path)
        return _changed(spec._replace(name=name), parsed), own is None
    if parsed.dashed:
        at = 0
        while at < len(words) and arguments.is_assignment(words[at]):
            at += 1
        assignments, command, is_text = words[:at], words[at:], False
    else:
        text, assignments = arguments.split_words(words)
        command, is_text = [text], True
    spec = arguments.from_words(
        command,
        is_text,
        assignments,
        [(one[0], one[1:]) for one in parsed["param"] or ()],
        conditions=read_conditions(parsed),
        method=parsed["method"],
        trials=parsed["trials"],
        seed=parsed["seed"],
        name=parsed["name"],
        metric=parsed["metric"],
        early_stop=read_early_stop(parsed["early_stop"]),
        max_parallel=parsed["max_parallel"],
        max_fails=parsed["max_fails"],
        lenient=bool(parsed["lenient"]),
    )
    return spec, False


def _is_file(word: str) -> bool:
    if not word.lower().endswith((".toml", ".yaml", ".yml", ".json", ".py")):
        return False
    return " " not in word or os.path.isfile(word)


def _stem(path: str) -> str | None:
    stem = os.path.basename(path).rpartition(".")[0]
    try:
        return names.check(stem)
    except UsageError:
        return None


def _changed(spec: SweepSpec, parsed: Parsed) -> SweepSpec:
    """Return the spec with the options of the command line, which override the file."""
    changes = {
        key: parsed[key]
        for key in ("method", "trials", "seed", "metric", "max_parallel", "max_fails")
        if parsed[key] is not None
    }
    stop = read_early_stop(parsed["early_stop"])
    if stop is not None:
        changes["early_stop"] = stop
    return make_spec(**{**spec._asdict(), **changes}) if changes else spec


def read_conditions(parsed: Parsed) -> dict[str, str]:
    found = {}
    for text in parsed["when"] or ():
        name, colon, condition = text.partition(":")
        if not colon or not condition.strip():
            raise UsageError(f"`--when {text}` has no condition", "write \"wd: opt == 'adam'\"")
        found[name.strip()] = condition.strip()
    return found


def read_early_stop(text: str | None) -> dict[str, object] | None:
    """Parse the value of --early-stop: `median,after_step=5`."""
    if text is None:
        return None
    kind, *options = text.split(",")
    stop: dict[str, object] = {"kind": kind}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not (value.isascii() and value.replace(".", "", 1).isdigit()):
            known = ", ".join(f"{name}=N" for name in EARLY_STOP_OPTIONS.get(kind, ()))
            raise UsageError(
                f"`{option}` is not an option of early stopping",
                f"known: {known}" if known else f"kinds: {', '.join(EARLY_STOP_OPTIONS)}",
            )
        stop[key] = float(value) if "." in value else int(value)
    return stop


def shape(spec: SweepSpec) -> str:
    """The dimensions of the space: `lr(2) x seed(3)`."""
    grids = []
    for grid in spec.space.grids:
        axes = [f"{','.join(axis.names)}({axis.size or '~'})" for axis in grid]
        grids.append(" x ".join(axes))
    return " + ".join(grids)


def report(started: Started, spec: SweepSpec, parsed: Parsed, *, names_new: bool = False) -> None:
    """Print what was submitted, as text or JSON. `names_new`: also for a search, the new trials."""
    if started.started_daemon:
        notice(STARTED)
    hint = lifecycle.early_stop_hint(spec)
    if hint is not None and started.is_new and not parsed["quiet"]:
        notice(f"note: {hint}")
    metric = started.metric
    if metric is not None and metric.is_guessed and not parsed["quiet"]:
        other = "min" if metric.goal == "max" else "max"
        notice(f"note: the metric is {metric.words}; if not: --metric {metric.name}:{other}")
    if started.other_code:
        warn_about_code(started.name, started.other_code, "the code in the folder now")
    if parsed["json"]:
        text = as_json(
            sweep=started.name,
            new=started.is_new,
            added=started.added,
            jobs=list(started.jobs),
            trials=started.counts,
            other_code=list(started.other_code),
        )
        report_change(text, f"sweep {started.name}: {plural(len(started.jobs), 'job')} queued")
        return
    if parsed["quiet"]:
        report_change(started.name)
        return
    name, total = started.name, sum(started.counts.values())
    program = parsed["program"] or "stoker"
    is_complete = spec.total_trials is not None and total >= spec.total_trials and not started.jobs
    if spec.method in ADAPTIVE and not is_complete and not names_new:
        wanted = spec.total_trials if spec.total_trials is not None else "unlimited"
        goal = "" if metric is None else f" for {metric.name} ({metric.goal})"
        report_change(
            f"sweep {name}: {wanted} trials by {spec.method}{goal}, {shape(spec)}"
            f"      results: {program} results {name}"
        )
        return
    if not started.jobs:
        counts = describe_counts(started.counts)
        report_change(f"sweep {name}: all {plural(total, 'trial')} already exist ({counts})")
        if started.counts.get("failed"):
            notice(f"run failed trials again: {program} sweep rerun --failed {name}")
        return
    jobs = f"job {started.jobs[0]}"
    if len(started.jobs) > 1:
        jobs = f"jobs {min(started.jobs)}-{max(started.jobs)}"
    what = f"{plural(total, 'trial')}, {shape(spec)}"
    if not started.is_new:
        again = len(started.jobs) - started.added
        what = (
            f"{started.added} new" + (f", {again} again" if again else "") + f" of {total} trials"
        )
    report_change(f"sweep {name}: {what}  {jobs}      results: {program} results {name}")


def warn_about_code(name: str, trials: Sequence[int], newest: str) -> None:
    """Say that the results of a sweep come from different code, and what to do."""
    ranges = id_ranges(list(trials))
    which = " ".join(ranges) if len(ranges) <= _SHOWN_RANGES else "TRIALS"
    notice(
        f"warning: {plural(len(trials), 'trial')} of sweep {name} ran with code other than {newest}"
    )
    notice(f"hint: run them again with: stoker sweep rerun {name} {which}; or use another --name")


def describe_counts(counts: dict[str, int]) -> str:
    """Trials by state as text: `2 done, 1 failed`."""
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))


def _dry_run(
    queue: Queue, spec: SweepSpec, base: JobSpec, parsed: Parsed, is_suggested: bool
) -> int:
    preview = lifecycle.preview(queue, spec, base, is_suggested=is_suggested)
    if spec.method in ADAPTIVE and not preview.new:
        notice(f"{spec.method} chooses trials from results, so they cannot be listed in advance")
        return 0
    return show_preview(queue, preview, base, parsed)


def show_preview(queue: Queue, preview: SweepPreview, base: JobSpec, parsed: Parsed) -> int:
    """Print the commands that would run, for --dry-run. Returns the exit code 0."""
    known = preview.known.id if preview.known is not None else 0
    trials = Trials(queue.db, queue.settings.state_dir, known, preview.spec, base)
    last = len(sweeps.identities(queue.db, known))
    numbered = [(row.number, point_from_json(row.point)) for row in preview.missing]
    numbered += list(enumerate(preview.new, last + 1))
    jobs = [(row.number, trials.job_of(row, is_real=False)) for row in preview.missing]
    jobs += [
        (number, trials.job(number, point, is_real=False))
        for number, point in enumerate(preview.new, last + 1)
    ]
    if parsed["json"]:
        print_json(
            sweep=preview.name,
            dry_run=[
                {
                    "trial": number,
                    "argv": job.argv,
                    "shell": job.shell,
                    "params": {k: v.data for k, v in point.items()},
                }
                for (number, job), (_, point) in zip(jobs, numbered, strict=True)
            ],
        )
        return 0
    for _, job in jobs:
        print(printable(display(job.argv, job.shell)))
    _print_notes(preview.spec, preview.listed)
    if not jobs:
        existing = plural(preview.listed or 0, "trial")
        notice(f"all {existing} already exist in sweep {preview.name} (--dry-run)")
        return 0
    notice(f"{plural(len(jobs), 'trial')}, none queued (--dry-run)")
    return 0
