"""Stoker keeps every GPU fed. The public Python names live here and load on first use."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.errors import Error as Error
    from stoker.functions.current_job import current as current
    from stoker.functions.current_job import log as log
    from stoker.functions.current_job import log_artifact as log_artifact
    from stoker.functions.current_job import log_figure as log_figure
    from stoker.functions.current_job import log_image as log_image
    from stoker.functions.current_job import log_table as log_table
    from stoker.functions.current_job import report_progress as report_progress
    from stoker.functions.current_job import requeue as requeue
    from stoker.functions.current_job import should_stop as should_stop
    from stoker.python.api import JobFunction as JobFunction
    from stoker.python.api import Queue as Queue
    from stoker.python.api import job as job
    from stoker.python.api import submit as submit
    from stoker.python.api import sweep as sweep
    from stoker.python.executor import Executor as Executor
    from stoker.python.job import Job as Job
    from stoker.python.job_errors import JobFailed as JobFailed
    from stoker.python.job_errors import JobLost as JobLost
    from stoker.python.sweep import Sweep as Sweep
    from stoker.python.wait import as_completed as as_completed
    from stoker.python.wait import wait as wait

_HOMES = {
    "errors": ("Error",),
    "python.executor": ("Executor",),
    "python.job": ("Job",),
    "python.job_errors": ("JobFailed", "JobLost"),
    "python.wait": ("as_completed", "wait"),
    "functions.current_job": (
        "current",
        "log",
        "log_artifact",
        "log_figure",
        "log_image",
        "log_table",
        "report_progress",
        "requeue",
        "should_stop",
    ),
    "python.api": ("JobFunction", "Queue", "job", "submit", "sweep"),
    "python.sweep": ("Sweep",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
