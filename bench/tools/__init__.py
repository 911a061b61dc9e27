"""The compared tools, one class each; the reference comes first."""

from __future__ import annotations

from bench.lab import Lab
from bench.tools.base import Tool
from bench.tools.gflow import GflowProcess, GflowTmux
from bench.tools.gpu_schedulers import GpuHog, SimpleGpuScheduler
from bench.tools.libraries import Dask, HyperQueue, Joblib
from bench.tools.plain import Parallel, ParallelRecorded, Reference, Xargs
from bench.tools.spooler import TaskSpooler
from bench.tools.stoker import StokerDaemon, StokerRun

CLASSES: tuple[type[Tool], ...] = (
    Reference,
    StokerRun,
    StokerDaemon,
    Xargs,
    Joblib,
    SimpleGpuScheduler,
    GpuHog,
    Dask,
    TaskSpooler,
    HyperQueue,
    Parallel,
    ParallelRecorded,
    GflowTmux,
    GflowProcess,
)
REFERENCE = Reference.name
NAMES = tuple(tool.name for tool in CLASSES)


def chosen_tools(lab: Lab, names: list[str]) -> tuple[list[Tool], dict[str, str]]:
    """The tools to run, and the reason for each tool that is not available.

    The reference is always included, because ratios need it.
    """
    wanted = [tool(lab) for tool in CLASSES if tool.name in (REFERENCE, *names)]
    reasons = {tool.name: tool.available() for tool in wanted}
    missing = {name: reason for name, reason in reasons.items() if reason}
    return [tool for tool in wanted if tool.name not in missing], missing
