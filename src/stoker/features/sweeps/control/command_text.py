"""The command line that starts a sweep with the definition of another one."""

from __future__ import annotations

from stoker.client.submit.job_options import BY_KEY
from stoker.client.submit.spec_options import options_of_spec
from stoker.engine.model import JobSpec
from stoker.engine.snapshot_context import original_folder
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.spec.value_text import axis_key, axis_text, value_text
from stoker.text.commands.shell_words import quote

# Options of single jobs, and those that a shell gives anyway.
_LEFT_OUT = ("cwd", "hold", "notify")


def command_text(name: str, given: SweepSpec, base: JobSpec) -> str | None:
    """`cd FOLDER && stoker sweep ...`; None for a sweep that needs a sweep file."""
    if len(given.space.grids) != 1 or given.points or given.earlier:
        return None
    words = ["stoker", "sweep", "--name", quote(name)]
    if given.method != "grid":
        words += ["--method", given.method]
    if given.total_trials is not None:
        words += ["--trials", str(given.total_trials)]
    if given.seed is not None and given.method != "grid":
        words += ["--seed", str(given.seed)]
    if given.metric is not None:
        words += ["--metric", quote(f"{given.metric.name}:{given.metric.goal}")]
    if given.early_stop is not None:
        options = [f"{key}={value}" for key, value in given.early_stop.items() if key != "kind"]
        words += ["--early-stop", quote(",".join([str(given.early_stop["kind"]), *options]))]
    for option, number in (
        ("--max-parallel", given.max_parallel),
        ("--max-fails", given.max_fails),
    ):
        words += [] if number is None else [option, str(number)]
    for axis in given.space.grids[0]:
        if axis.when is not None:
            words += ["--when", quote(f"{axis_key(axis)}: {axis.when}")]
    words += ["--lenient"] if given.lenient else []
    words += _job_flags(base)
    words += [quote(f"{axis_key(axis)}={axis_text(axis)}") for axis in given.space.grids[0]]
    words += [quote(f"{key}={value_text(value)}") for key, value in given.space.constants]
    template = given.template
    if template.shell:
        words.insert(2, quote(template.words[0]))
    else:
        words += ["--", *map(quote, template.words)]
    return f"cd {quote(original_folder(base.context))} && {' '.join(words)}"


def _job_flags(base: JobSpec) -> list[str]:
    words = []
    for key, value in options_of_spec(base).items():
        if key in _LEFT_OUT or (key == "on" and value == "local"):
            continue
        option = BY_KEY[key]
        flag = option.flags.split()[-1]
        if value is True:
            words.append(flag)
        elif option.repeats and isinstance(value, list):
            for one in value:
                words += [flag, quote(str(one))]
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"{flag}={quote(text)}")
    return words
