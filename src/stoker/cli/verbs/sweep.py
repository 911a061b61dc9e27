"""`stoker sweep`: a command over many parameters, and what can be done with such a sweep later."""

from __future__ import annotations

import os

from stoker.cli.job_flags import SWEEP_FLAGS, sweep_base
from stoker.cli.open_queue import open_queue
from stoker.cli.output import as_json, notice, plural, print_json, report_change
from stoker.cli.start_notice import STARTED
from stoker.client.queue import Queue
from stoker.client.trials import Trials
from stoker.core.formats.command_line import Option, Parsed, Verb, count, whole_number
from stoker.core.formats.shell_words import display
from stoker.core.formats.suggestions import nearest
from stoker.core.formats.terminal import printable
from stoker.core.model import JobSpec
from stoker.errors import UsageError
from stoker.store import sweeps
from stoker.sweep_control import lifecycle
from stoker.sweep_control.lifecycle import SAME_FAILS, Started
from stoker.sweeps import arguments, names
from stoker.sweeps.files import sweep_file
from stoker.sweeps.spec import ADAPTIVE, STOPS, SweepSpec, make_spec, read_metric
from stoker.sweeps.template.template import check_shell
from stoker.sweeps.values import point_from_json

ACTIONS = ("ls", "show", "extend", "stop", "resume", "rerun", "rm")
_ACTION_OF = {"failed": "rerun", "kill": "stop", "jobs": "rm"}


VERB = Verb(
        "sweep",
        "sweep [OPTIONS] 'COMMAND' NAME=VALUES... | FILE | ACTION SWEEP",
        "Run a command for many values of its parameters: a sweep that lasts.",
        (
            Option("-p --param", "values of a parameter: -p lr 0.1 0.01", "NAME V...", many=True,
                   several=True),
            Option("-n --name", "a name for the sweep (default: one is made up)", "NAME"),
            Option("-m --method", "grid, shuffled, random, lhs, tpe, gp, cmaes or nsgaii", "HOW"),
            Option("-N --trials", "how many points (random, lhs, tpe...; else all)", "N", count),
            Option("--seed", "for all that is left to chance", "N", whole_number),
            Option("--metric", "what to improve: val_loss or acc:max", "NAME[:GOAL]", read_metric),
            Option("--early-stop", "stop bad trials: median, percentile, hyperband, asha",
                   "HOW[,K=V]"),
            Option("--when", "a parameter only where this holds: \"wd: opt == 'adam'\"",
                   "NAME: EXPR", many=True),
            Option("--max-parallel", "so many trials at a time", "N", count),
            Option("--max-fails", "stop when so many have failed", "N", count),
            Option("--same-fails", f"stop after so many alike (default: {SAME_FAILS}; 0: never)",
                   "N", count),
            Option("--lenient", "parameters need no place in the command; see $STOKER_PARAMS"),
            Option("--dry-run", "show every command exactly as it would run"),
            Option("-q --quiet", "print only the name"),
            Option("--failed", "rerun: trials that failed or were lost"),
            Option("--kill", "stop: running trials too"),
            Option("--jobs", "rm: with its jobs, logs and folders"),
            Option("--priority", "higher goes first (default: 0)", "N", whole_number),
            *SWEEP_FLAGS,
        ),
        (
            ("stoker sweep 'python train.py --lr {lr} --seed {seed}' lr=1e-3,1e-4 'seed=range(3)'",
             ""),
            ("stoker sweep 'python train.py {params}' -p lr 0.1 0.01 -p bs 32 64", ""),
            ("stoker sweep 'lr=log(1e-5,1e-1)' --method tpe -N 40 --metric val_loss -- "
             "python train.py --lr {lr}", "needs stoker[search]"),
            ("stoker sweep sweep.toml", "again after an edit: only what is new runs"),
            ("stoker sweep rerun --failed brave-otter", ""),
            ("stoker sweep extend brave-otter 20", "twenty more"),
        ),
        """Values: a,b,c  choice(a,b)  range(0,10,2)  interval(a,b)  log(a,b)  int(a,b)  normal(m,s)
file(path)  and x,y=zip((1,2),(3,4)).
In the command: {name}, {params}, {params:hydra}, {id}, {dir}, {gpu}.
FILE is TOML, JSON or a W&B sweep in YAML. ACTIONS: ls, show, extend, stop, resume, rerun, rm.
The same sweep given again runs only what is missing.""",
        words="sweeps",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    words = parsed.words
    if words and words[0] in ACTIONS and not parsed.dashed:
        from stoker.cli.verbs.sweep_actions import act

        return act(open_queue(), words[0], words[1:], parsed)
    _check_meant(parsed)
    queue = open_queue()
    spec, is_suggested = _spec(parsed)
    base = sweep_base(queue.settings, queue.devices(), spec, parsed)
    same_fails = SAME_FAILS if parsed["same_fails"] is None else parsed["same_fails"]
    if parsed["dry_run"]:
        return _dry_run(queue, spec, base, parsed, is_suggested)
    if spec.template.shell:
        check_shell(base.context.shell)
    try:
        started = lifecycle.start(queue, spec, base, same_fails, is_suggested=is_suggested)
    except KeyboardInterrupt:
        notice("interrupted: what is in the queue runs; give the sweep again for the rest")
        raise
    if not (parsed["json"] or parsed["quiet"]):
        _notes(spec, started.listed)
    report(started, spec, parsed)
    return 0


def _notes(spec: SweepSpec, listed: int | None) -> None:
    """What is not as somebody may have thought."""
    for one, same in spec.space.merged:
        notice(f"note: `{printable(one)}` and `{printable(same)}` are the same value, so"
               " they are one trial; quote a value to make it text")  # fmt: skip
    wanted, points = spec.wanted, spec.space.size.points
    if wanted is None:
        return
    if listed is None and points is not None and points < wanted:
        notice(f"note: at most {points} of {wanted} trials: there are no other points")
    elif listed is not None and listed < wanted:
        notice(f"note: {listed} of {wanted} trials: there are no other points")


def _check_meant(parsed: Parsed) -> None:
    """Refuse `shwo NAME`, and what only an action understands."""
    words = parsed.words
    for option in ("failed", "kill", "jobs"):
        if parsed[option]:
            raise UsageError(f"--{option} does not belong to a new sweep",
                             f"it is for `stoker sweep {_ACTION_OF[option]} NAME`")  # fmt: skip
    if not words or parsed.dashed or parsed["param"] or not words[0].isalpha():
        return
    near = nearest(words[0], list(ACTIONS))
    if near is not None and not any(map(arguments.is_assignment, words[1:])):
        raise UsageError(f"`stoker sweep` has no action `{words[0]}`", f"did you mean `{near}`?")


def _spec(parsed: Parsed) -> tuple[SweepSpec, bool]:
    """The sweep, and whether its name is only that of its file."""
    words = parsed.words
    path = words[0] if words and not parsed.dashed and _is_file(words[0]) else None
    if path is not None:
        if len(words) > 1 or parsed["param"]:
            more = words[1] if len(words) > 1 else "-p"
            raise UsageError(f"`{path}` says all about the sweep, and `{more}` says more",
                             "put it into the file")  # fmt: skip
        for option in ("when", "lenient"):
            if parsed[option]:
                raise UsageError(f"--{option} is for parameters on the command line",
                                 f"write it into `{path}`")  # fmt: skip
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
        command, is_text, assignments,
        [(one[0], one[1:]) for one in parsed["param"] or ()],
        conditions=_conditions(parsed), method=parsed["method"], trials=parsed["trials"],
        seed=parsed["seed"], name=parsed["name"], metric=parsed["metric"],
        early_stop=_early_stop(parsed["early_stop"]), max_parallel=parsed["max_parallel"],
        max_fails=parsed["max_fails"], lenient=bool(parsed["lenient"]),
    )  # fmt: skip
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
    """What the command line says wins over the file."""
    changes = {
        key: parsed[key]
        for key in ("method", "trials", "seed", "metric", "max_parallel", "max_fails")
        if parsed[key] is not None
    }
    stop = _early_stop(parsed["early_stop"])
    if stop is not None:
        changes["early_stop"] = stop
    return make_spec(**{**spec._asdict(), **changes}) if changes else spec


def _conditions(parsed: Parsed) -> dict[str, str]:
    found = {}
    for text in parsed["when"] or ():
        name, colon, condition = text.partition(":")
        if not colon or not condition.strip():
            raise UsageError(f"`--when {text}` has no condition", "write \"wd: opt == 'adam'\"")
        found[name.strip()] = condition.strip()
    return found


def _early_stop(text: str | None) -> dict[str, object] | None:
    """`median,after_step=5`."""
    if text is None:
        return None
    kind, *options = text.split(",")
    stop: dict[str, object] = {"kind": kind}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not (value.isascii() and value.replace(".", "", 1).isdigit()):
            known = ", ".join(f"{name}=N" for name in STOPS.get(kind, ()))
            raise UsageError(f"`{option}` is no option of early stopping", f"known: {known}")
        stop[key] = float(value) if "." in value else int(value)
    return stop


def shape(spec: SweepSpec) -> str:
    """`lr(2) x seed(3)`."""
    grids = []
    for grid in spec.space.grids:
        axes = [f"{','.join(axis.names)}({axis.size or '~'})" for axis in grid]
        grids.append(" x ".join(axes))
    return " + ".join(grids)


def report(started: Started, spec: SweepSpec, parsed: Parsed) -> None:
    if started.wakes:
        notice(STARTED)
    hint = lifecycle.deaf_hint(spec)
    if hint is not None and started.is_new and not parsed["quiet"]:
        notice(f"note: {hint}")
    if parsed["json"]:
        text = as_json(sweep=started.name, new=started.is_new, added=started.added,
                       jobs=list(started.jobs), trials=started.counts)  # fmt: skip
        report_change(text, f"sweep {started.name}: {plural(len(started.jobs), 'job')} queued")
        return
    if parsed["quiet"]:
        report_change(started.name)
        return
    name, total = started.name, sum(started.counts.values())
    is_over = spec.wanted is not None and total >= spec.wanted and not started.jobs
    if spec.method in ADAPTIVE and not is_over:
        wanted = spec.wanted if spec.wanted is not None else "endless"
        report_change(f"sweep {name}: {wanted} trials by {spec.method}, {shape(spec)}"
                      f"      watch: stoker results {name}")  # fmt: skip
        return
    if not started.jobs:
        report_change(
            f"sweep {name}: all {plural(total, 'trial')} are there ({in_words(started.counts)})"
        )
        if started.counts.get("failed"):
            notice(f"run failed ones again: stoker sweep rerun --failed {name}")
        return
    jobs = f"jobs {min(started.jobs)}-{max(started.jobs)}" if len(started.jobs) > 1 else \
        f"job {started.jobs[0]}"  # fmt: skip
    what = f"{plural(total, 'trial')}, {shape(spec)}"
    if not started.is_new:
        again = len(started.jobs) - started.added
        what = (
            f"{started.added} new" + (f", {again} again" if again else "") + f" of {total} trials"
        )
    report_change(f"sweep {name}: {what}  {jobs}      results: stoker results {name}")


def in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))


def _dry_run(
    queue: Queue, spec: SweepSpec, base: JobSpec, parsed: Parsed, is_suggested: bool
) -> int:
    plan = lifecycle.plan(queue, spec, base, is_suggested=is_suggested)
    if spec.method in ADAPTIVE and not plan.new:
        notice(f"{spec.method} chooses one trial after another; nothing is known of them yet")
        return 0
    known = plan.known.id if plan.known is not None else 0
    trials = Trials(queue.db, queue.settings.state_dir, known, plan.spec, base)
    last = len(sweeps.identities(queue.db, known))
    numbered = [(row.number, point_from_json(row.point)) for row in plan.missing]
    numbered += list(enumerate(plan.new, last + 1))
    jobs = [(row.number, trials.job_of(row, is_real=False)) for row in plan.missing]
    jobs += [(number, trials.job(number, point, is_real=False))
             for number, point in enumerate(plan.new, last + 1)]  # fmt: skip
    if parsed["json"]:
        print_json(sweep=plan.name, dry_run=[
            {"trial": number, "argv": job.argv, "shell": job.shell,
             "params": {k: v.data for k, v in point.items()}}
            for (number, job), (_, point) in zip(jobs, numbered, strict=True)
        ])  # fmt: skip
        return 0
    for _, job in jobs:
        print(printable(display(job.argv, job.shell)))
    _notes(spec, plan.listed)
    notice(f"{plural(len(jobs), 'trial')}, none queued (--dry-run)")
    return 0
