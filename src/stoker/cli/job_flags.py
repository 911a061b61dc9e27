"""Job options as flags of `submit`, `run` and `sweep`."""

from __future__ import annotations

from stoker.client.submit.job_options import JOB_OPTIONS, file_values, flag_options, flag_values
from stoker.client.submit.job_specs import JobSpecs, check_foreground
from stoker.client.submit.option_values import GPU_COUNT, filled, parse_gpu_count
from stoker.engine.model import Device, JobSpec
from stoker.errors import UsageError
from stoker.settings import Settings
from stoker.text.command_line import Option, Parsed
from stoker.text.durations import parse_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.sweeps.spec.spec import SweepSpec

# The jobs of `run` cannot be selected later, so names, tags and priorities have no use there.
_NOT_FOR_RUN = ("name", "priority", "restartable", "tags", "stdout", "stderr")
# The GPUs of `run` are chosen with --devices.
_RUN_GPU_COUNT = GPU_COUNT._replace(parse=lambda text: parse_gpu_count(text, "--devices"))

SUBMIT_FLAGS = flag_options()
RUN_FLAGS = flag_options(
    one._replace(kind=_RUN_GPU_COUNT) if one.key == "gpus" else one
    for one in JOB_OPTIONS
    if not one.in_queue and one.key not in _NOT_FOR_RUN
)
# Interactive jobs have no log files, retries or dependencies of their own.
NOT_INTERACTIVE = ("on", "nodes", "option", "on_oom", "after", "begin", "retries", "restartable",
                    "stdout", "stderr", "hold", "signal", "warm", "keep_children",
                    "preemptible", "array", "snapshot", "no_snapshot", "container",
                    "mount")  # fmt: skip
IDLE = Option(
    "--idle",
    "end an interactive job after this long without use; 0: never (default: 30m)",
    "TIME",
    parse_duration,
)
INTERACTIVE_FLAGS = (
    *flag_options(one for one in JOB_OPTIONS if one.key not in NOT_INTERACTIVE),
    IDLE,
)
# `sweep -p` names a parameter, so its --priority has no short form.
SWEEP_FLAGS = flag_options(
    one for one in JOB_OPTIONS if not one.is_single and one.key != "priority"
)

SYNC = Option(
    "--sync",
    "with --host: copy this folder to the other machine first, and run there",
    "DIR",
    filled,
)


def refuse_sync(parsed: Parsed) -> None:
    """Raise UsageError for `--sync` on this machine; `stoker --host` has used it up."""
    if parsed["sync"] is not None:
        raise UsageError(
            "`--sync` copies a folder to another machine, but no machine is given",
            "example: stoker --host gpu-box submit --sync . python train.py",
        )


def sweep_base(
    settings: Settings,
    devices: tuple[Device, ...],
    sweep: SweepSpec,
    parsed: Parsed,
    *,
    in_foreground: bool = False,
) -> JobSpec:
    """The request that all jobs of a sweep share. Flags override the options in the sweep file."""
    own = file_values(sweep.resources or {})
    if in_foreground:
        check_foreground(own)
    values = {**own, **flag_values({**parsed.values, "name": None})}
    if settings.snapshot == "ask" and not in_foreground:
        from stoker.features.code.snapshot_question import with_answer

        values = with_answer(settings, values, is_dry=bool(parsed["dry_run"]))
    return JobSpecs(settings, devices, values, in_foreground=in_foreground).base
