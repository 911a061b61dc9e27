"""SweepSpec: the complete definition of a sweep, which is stored in the database as JSON."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping

from stoker.engine.job_settings import JobSettings
from stoker.errors import UsageError, about
from stoker.features.sweeps.spec import names, other_names, search_space
from stoker.features.sweeps.spec.search_space import MAX_GRID_SIZE, Space
from stoker.features.sweeps.spec.values import Point, from_data, point_from_json, point_to_json
from stoker.features.sweeps.template.template import Template
from stoker.record import Record
from stoker.text.suggestions import nearest

LISTED = ("grid", "shuffled", "random", "lhs")  # points that do not depend on results
ADAPTIVE = ("tpe", "gp", "cmaes", "nsgaii")  # points that depend on the results so far
METHODS = LISTED + ADAPTIVE
MAX_TRIALS = MAX_GRID_SIZE
GOALS = {"min": "min", "minimize": "min", "max": "max", "maximize": "max"}
# For every kind: seconds between the request to stop a trial and SIGTERM.
KILL_AFTER = "kill_after"
_OWN_OPTIONS: dict[str, tuple[str, ...]] = {
    "none": (),
    "median": ("after_step", "min_trials", "every"),
    "percentile": ("percentile", "after_step", "min_trials", "every"),
    "hyperband": ("min_step", "max_step", "factor"),
    "asha": ("min_step", "factor", "rungs_skipped"),
}
EARLY_STOP_OPTIONS = {  # the options of each kind of early stopping
    kind: (*own, KILL_AFTER) if own else () for kind, own in _OWN_OPTIONS.items()
}
# The options of `stoker submit`, as keys, without those that only make sense for a single job.
_RESOURCES_WORDS = (
    "gpus gpu_mem gpu_ids prefer gpu_model min_gpu_mem exclusive share cpus mem need on nodes "
    "option cwd env env_file priority time_limit preemptible tag hold conda venv uv module "
    "container mount profile snapshot no_snapshot"
)
_SETTINGS = set(JobSettings._fields) - {"activation", "others"}  # these two are no options
RESOURCES = (*_RESOURCES_WORDS.split(), *sorted(_SETTINGS))

# Words in names of metrics whose large, or small, values are better.
_MAX_WORDS = (
    "acc accuracy auc auroc auprc ap map f1 fscore precision recall sensitivity specificity score "
    "reward rewards return returns bleu rouge meteor cider iou miou dice r2 psnr ssim ndcg mrr mcc "
    "kappa likelihood elbo throughput correlation pearson spearman success winrate"
)
_MIN_WORDS = (
    "loss losses err error errors rmse mae mse mape msle perplexity ppl wer cer eer fid kid lpips "
    "nll ce bce kl ece brier bpc bpb bpd time latency duration seconds cost regret divergence "
    "distance violations"
)
_GOAL_OF_WORD = dict.fromkeys(_MAX_WORDS.split(), "max") | dict.fromkeys(_MIN_WORDS.split(), "min")
# Words with which a name does not tell: negations, and quantities derived from the named one.
_OBSCURING = (
    "neg negative inv inverse minus std stddev stdev var variance sem gap drop diff difference "
    "delta change minutes hours"
)
_OBSCURING_WORDS = frozenset(_OBSCURING.split())


class Metric(Record):
    name: str
    goal: str | None = None  # min or max; None: not known, so that no trial is the best
    target: float | None = None  # once a trial reaches it, no more trials are started
    is_guessed: bool = False  # the goal was guessed from the name; not stored

    @property
    def words(self) -> str:
        """The metric with its goal, for messages: `val_acc (max, guessed from its name)`."""
        if self.goal is None:
            return self.name
        guess = ", guessed from its name" if self.is_guessed else ""
        return f"{self.name} ({self.goal}{guess})"


class SweepSpec(Record):
    template: Template
    space: Space
    method: str = "grid"
    trials: int | None = None
    seed: int | None = None
    name: str | None = None
    metric: Metric | None = None
    early_stop: dict[str, object] | None = None
    resources: dict[str, object] | None = None
    max_parallel: int | None = None
    max_fails: int | None = None
    lenient: bool = False  # parameters may lack a placeholder; the program reads $STOKER_PARAMS
    more: int = 0  # trials added by `extend`; kept apart because `trials` lays out a hypercube
    earlier: tuple[Template, ...] = ()  # earlier commands of this sweep that have trials
    points: tuple[Point, ...] = ()  # single points added by `sweep add --point`

    @property
    def total_trials(self) -> int | None:
        """The number of trials to run; None means every point of the space."""
        return None if self.trials is None else self.trials + self.more

    def seeded(self, key: str) -> SweepSpec:
        """Return the spec with a seed; if it has none, one derived from `key`.

        The seed is derived rather than random so that a dry run shows the points that will run.
        """
        if self.seed is not None:
            return self
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        return self._replace(seed=int.from_bytes(digest[:4], "big"))

    def to_json(self) -> dict[str, object]:
        fields = self._asdict()
        fields["points"] = [point_to_json(point) for point in self.points]
        if not self.points:  # release 0.1 refuses fields that it does not know
            del fields["points"]
        return {
            **fields,
            "template": self.template.to_json(),
            "space": self.space.to_json(),
            "metric": None if self.metric is None else _stored_metric(self.metric),
            "earlier": [template.to_json() for template in self.earlier],
        }


def make_spec(
    template: Template,
    space: Space,
    method: str | None = None,
    trials: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    metric: Metric | None = None,
    early_stop: Mapping[str, object] | None = None,
    resources: Mapping[str, object] | None = None,
    max_parallel: int | None = None,
    max_fails: int | None = None,
    lenient: bool = False,
    more: int = 0,
    earlier: tuple[Template, ...] = (),
    points: tuple[Point, ...] = (),
) -> SweepSpec:
    """Return a checked spec; raises UsageError with the field that is wrong."""
    with about("command"):
        template.check(space.names, lenient)
    if method is None:
        method = "grid" if space.size.points is not None else "random"
    with about("method"):
        _known("method", method, METHODS, meanings=other_names.METHODS)
    for field, number, least in (
        ("trials", trials, 1),
        ("max_parallel", max_parallel, 1),
        ("max_fails", max_fails, 0),
    ):
        if number is not None and (type(number) is not int or number < least):
            raise UsageError(
                f"`{field}` must be an integer, {least} or more, not {number!r}", field=field
            )
    if trials is not None and trials + more > MAX_TRIALS:
        raise UsageError(
            f"{trials + more:,} trials are too many; the limit is {MAX_TRIALS:,}",
            "start with fewer trials; a sweep can be extended later",
            "trials",
        )
    if seed is not None and type(seed) is not int:
        raise UsageError(f"`seed` must be an integer, not {seed!r}", field="seed")
    if metric is None and method in ADAPTIVE:
        raise UsageError(
            f"method {method} needs a metric to optimize", "add --metric val_loss", "metric"
        )
    if metric is not None:
        with about("metric"):
            known_goal(metric)
            check_target(metric)
    with about("early_stop"):
        stop = check_stop(early_stop)
    if stop is not None and metric is None:
        raise UsageError("early stopping needs a metric", "add --metric val_loss", "metric")
    return SweepSpec(
        template=template,
        space=space,
        method=method,
        trials=trials,
        seed=seed,
        name=None if name is None else names.check(name),
        metric=metric,
        early_stop=stop,
        resources=check_resources(resources),
        max_parallel=max_parallel,
        max_fails=max_fails,
        lenient=lenient,
        more=more,
        earlier=earlier,
        points=points,
    )


def read_metric(text: str, recorded: Iterable[Metric] = ()) -> Metric:
    """Parse `val_loss` or `acc:max`; the name itself may contain colons.

    Without a goal, it is that of the `recorded` metric with this name, else a guess.
    """
    known = {metric.name: metric.goal for metric in recorded}
    name, colon, last = text.rpartition(":")
    if text not in known and colon and name and (last in GOALS or "/" not in last):
        return make_metric(name, last)
    return make_metric(text, known.get(text))


def make_metric(name: str, goal: str | None = None, target: float | None = None) -> Metric:
    """A checked metric. Without a goal, it is guessed from the name, or stays None."""
    if not any(char.isalnum() or char == "_" for char in name):
        raise UsageError(
            f"`{name}` is not a valid metric name", "use a name such as --metric val_loss"
        )
    if goal is None:
        guess = guessed_goal(name)
        metric = Metric(name, guess, target, guess is not None)
    else:
        goal = GOALS[_known("goal", goal, GOALS, meanings=other_names.GOALS)]
        metric = Metric(name, goal, target)
    check_target(metric)
    return metric


def guessed_goal(name: str) -> str | None:
    """Whether a metric with this name should be small or large; None if the name does not tell.

    >>> [guessed_goal(name) for name in ("val/loss", "top1_acc", "mAP50", "acc_loss", "gamma")]
    ['min', 'max', 'max', None, None]
    """
    words = re.findall("[a-z0-9]+", name.lower())
    goals: set[str] = set()
    for word in words:
        suffix = re.fullmatch("(.*?)(acc|accuracy|loss|error)", word)  # `valacc`
        if suffix and suffix[1] in _OBSCURING_WORDS:  # `negloss`
            return None
        known = (word, word.rstrip("0123456789"), suffix[2] if suffix else "")
        goals.update(_GOAL_OF_WORD[one] for one in known if one in _GOAL_OF_WORD)
    return goals.pop() if len(goals) == 1 and _OBSCURING_WORDS.isdisjoint(words) else None


def known_goal(metric: Metric, hint: str = "") -> str:
    """The goal of a metric; raises UsageError if it is not known."""
    if metric.goal is not None:
        return metric.goal
    raise UsageError(
        f"whether `{metric.name}` should be small or large cannot be guessed from its name",
        hint or f"write --metric {metric.name}:min or --metric {metric.name}:max",
    )


def _stored_metric(metric: Metric) -> dict[str, object]:
    fields = metric._asdict()
    del fields["is_guessed"]
    return fields


def check_target(metric: Metric) -> None:
    if metric.target is not None and not is_finite(metric.target):
        raise UsageError(
            f"the target of `{metric.name}` is {metric.target!r}, which no trial can reach",
            "write a finite number, such as target = 0.95",
        )


def is_finite(value: object) -> bool:
    """Whether `value` is a number, and not NaN or infinite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_stop(given: Mapping[str, object] | None) -> dict[str, object] | None:
    """Check a table such as `{"kind": "median", "after_step": 5}`; return None for kind `none`."""
    if given is None or given.get("kind", "median") == "none":
        return None
    kind = _known(
        "kind of early stopping",
        str(given.get("kind", "median")),
        EARLY_STOP_OPTIONS,
        meanings=other_names.STOP_KINDS,
    )
    options = ("kind", *EARLY_STOP_OPTIONS[kind])
    for option, value in given.items():
        if option == "kind":
            continue
        _known(f"option of {kind} stopping", option, options, "stop.", other_names.STOP_OPTIONS)
        if not is_finite(value) or (option != "percentile" and type(value) is not int):
            raise UsageError(f"stop.{option} is `{value}`", "write a number")
        assert isinstance(value, (int, float))
        if value < {"factor": 2, "every": 1, "min_step": 1, "max_step": 1}.get(option, 0):
            raise UsageError(f"stop.{option} is `{value}`, which is too small")
        if option == "percentile" and value > 100:
            raise UsageError(f"stop.percentile is `{value}`", "write 0 to 100")
    return {"kind": kind, **{o: v for o, v in given.items() if o != "kind"}}


def stop_seconds(spec: SweepSpec) -> float | None:
    """Seconds after which a trial that was asked to stop gets SIGTERM; None means never."""
    given = (spec.early_stop or {}).get(KILL_AFTER)
    return float(given) if isinstance(given, (int, float)) else None


def check_resources(given: Mapping[str, object] | None) -> dict[str, object] | None:
    if not given:
        return None
    made: dict[str, object] = {}
    for option, value in given.items():
        _known("resource", option, RESOURCES, "resources.", other_names.RESOURCES)
        made[option] = from_data(value, f"resources.{option}").data
    return made


def refuse_unknown(
    given: Iterable[str],
    known: Iterable[str],
    place: str = "",
    meanings: Mapping[str, str] = other_names.NONE,
    what: str = "key",
) -> None:
    """Raise UsageError for the first unknown key, with its place and the most likely key.

    `meanings` maps names of other tools to known keys.
    """
    known = tuple(known)
    for key in given:
        _known(what, str(key), known, place, meanings)


def _known(
    what: str,
    given: str,
    known: Iterable[str],
    place: str = "",
    meanings: Mapping[str, str] = other_names.NONE,
) -> str:
    known = tuple(known)
    if given in known:
        return given
    near = nearest(given, known, meanings)
    hint = f"did you mean `{place}{near}`?" if near else f"known: {', '.join(known)}"
    raise UsageError(f"unknown {what} `{place}{given}`", hint)


def from_json(stored: dict[str, object]) -> SweepSpec:
    fields = dict(stored)
    template, made, metric = fields["template"], fields["space"], fields["metric"]
    assert isinstance(template, dict) and isinstance(made, dict)
    fields["template"] = Template.from_json(template)
    fields["space"] = search_space.from_json(made)
    fields["metric"] = Metric(**metric) if isinstance(metric, dict) else None
    earlier = fields["earlier"]
    assert isinstance(earlier, list)
    fields["earlier"] = tuple(Template.from_json(one) for one in earlier)
    points = fields.get("points", [])
    assert isinstance(points, list)
    fields["points"] = tuple(point_from_json(one) for one in points)
    return SweepSpec(**fields)  # type: ignore[arg-type]
