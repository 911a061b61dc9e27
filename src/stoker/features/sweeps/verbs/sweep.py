"""`stoker sweep`: run a command with many parameter values, and manage existing sweeps."""

from __future__ import annotations

from stoker.cli.job_flags import SWEEP_FLAGS, SYNC
from stoker.client.submit.option_values import filled
from stoker.text.command_line import Option, Parsed, Verb, count, positive, whole_number

ACTIONS = ("ls", "show", "clone", "extend", "add", "stop", "resume", "rerun", "rm")


def _read_metric(text: str) -> object:
    from stoker.features.sweeps.spec.spec import read_metric

    return read_metric(text)


VERB = Verb(
        "sweep",
        "sweep [OPTIONS] 'COMMAND' NAME=VALUES... | FILE | ACTION SWEEP",
        "Run a command with many values of its parameters.",
        (
            Option("-p --param", "values of a parameter: -p lr 0.1 0.01", "NAME V...", many=True,
                   several=True),
            Option("-n --name", "name of the sweep (default: generated)", "NAME", filled),
            Option("-m --method", "grid, shuffled, random, lhs, tpe, gp, cmaes or nsgaii",
                   "METHOD", completes="grid|shuffled|random|lhs|tpe|gp|cmaes|nsgaii"),
            Option("-N --trials", "number of trials (default: all points of a finite space)", "N",
                   positive),
            Option("--seed", "random seed", "N", whole_number),
            Option("--metric", "metric to optimize: val_loss or acc:max", "NAME[:GOAL]",
                   _read_metric, completes="metrics"),
            Option("--early-stop", "stop bad trials early: median, percentile, hyperband, asha",
                   "KIND[,K=V]", completes="none|median|percentile|hyperband|asha"),
            Option("--when", "use a parameter only under a condition: \"wd: opt == 'adam'\"",
                   "NAME: EXPR", many=True),
            Option("--max-parallel", "run at most N trials at a time", "N", positive),
            Option("--max-fails", "stop the sweep after N failed trials", "N", count),
            Option("--same-fails", "stop the sweep after N identical failures in a row "
                   "(default: 5; 0: never)", "N", count),
            Option("--lenient", "allow parameters without a placeholder; see $STOKER_PARAMS"),
            Option("--dry-run", "print the commands without running them"),
            Option("-q --quiet", "print only the name"),
            Option("--point", "with add: the values are one new point"),
            Option("--failed", "with rerun: all failed and lost trials"),
            Option("--kill", "with stop: cancel running trials too"),
            Option("--jobs", "with rm: remove the jobs, logs and folders too"),
            Option("-y --yes", "do not ask before rm, or before more than 1,000 trials are queued"),
            Option("--starred", "with ls: only sweeps with a star"),
            Option("--priority", "jobs with higher priority start first (default: 0)", "N",
                   whole_number),
            *SWEEP_FLAGS,
            SYNC,
        ),
        (
            ("stoker sweep 'python train.py --lr {lr} --seed {seed}' lr=1e-3,1e-4 'seed=range(3)'",
             ""),
            ("stoker sweep 'python train.py {params}' -p lr 0.1 0.01 -p bs 32 64", ""),
            ("stoker sweep 'lr=log(1e-5,1e-1)' --method tpe -N 40 --metric val_loss -- "
             "python train.py --lr {lr}", "needs stoker[search]"),
            ("stoker sweep sweep.toml", "after an edit, only new points run"),
            ("stoker sweep rerun --failed brave-otter", ""),
            ("stoker sweep extend brave-otter 20", "20 more trials"),
            ("stoker sweep add brave-otter lr=1e-5 'seed=range(3,6)'",
             "only the new combinations run"),
            ("stoker sweep clone brave-otter -n second lr=1e-2,1e-3",
             "a new sweep; other values and options are those of brave-otter"),
        ),
        """Values: a,b,c  choice(a,b)  range(0,10,2)  linspace(a,b,n)  geomspace(a,b,n)
interval(a,b)  log(a,b)  int(a,b)  normal(m,s)  file(path)  and x,y=zip((1,2),(3,4)).
In the command: {name}, {params}, {params:hydra}, {id}, {dir}, {gpu}.
FILE is TOML, JSON or a W&B sweep in YAML.
ACTIONS: ls, show, clone, extend, add, stop, resume, rerun, rm.
Starting the same sweep again runs only missing trials.""",
        words="sweeps",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    # Imported here, so that completion loads only the table above.
    from stoker.features.sweeps.sweep_command import run

    return run(parsed)
