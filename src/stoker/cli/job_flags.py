"""Job options as flags of `submit`, `run` and `sweep`."""

from __future__ import annotations

from stoker.client.job_options import JOB_OPTIONS, file_values, flag_options, flag_values
from stoker.client.job_specs import JobSpecs, check_foreground
from stoker.core.formats.command_line import Parsed
from stoker.core.model import Device, JobSpec
from stoker.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.sweeps.spec import SweepSpec

# `run` has no queue in which jobs have names, tags or priorities.
_NOT_FOR_RUN = ("name", "priority", "restartable", "tags", "stdout", "stderr")

SUBMIT_FLAGS = flag_options()
RUN_FLAGS = flag_options(
    one for one in JOB_OPTIONS if not one.in_queue and one.key not in _NOT_FOR_RUN
)
# `sweep -p` names a parameter, so its --priority has no short form.
SWEEP_FLAGS = flag_options(
    one for one in JOB_OPTIONS if not one.is_single and one.key != "priority"
)


def sweep_base(
    settings: Settings,
    devices: tuple[Device, ...],
    sweep: SweepSpec,
    parsed: Parsed,
    *,
    in_foreground: bool = False,
) -> JobSpec:
    """What all jobs of a sweep have in common: the options of its file, and over them the flags."""
    own = file_values(sweep.resources or {})
    if in_foreground:
        check_foreground(own)
    values = {**own, **flag_values({**parsed.values, "name": None})}
    return JobSpecs(settings, devices, values, in_foreground=in_foreground).base
