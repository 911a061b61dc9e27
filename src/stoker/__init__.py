"""Stoker keeps every GPU fed. The public Python names live here and load on first use."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.errors import Error as Error
    from stoker.executor import Executor as Executor
    from stoker.handles import Job as Job
    from stoker.handles import JobFailed as JobFailed
    from stoker.handles import JobLost as JobLost
    from stoker.handles import as_completed as as_completed
    from stoker.handles import wait as wait
    from stoker.inside import current as current
    from stoker.inside import log as log
    from stoker.inside import requeue as requeue
    from stoker.inside import should_stop as should_stop
    from stoker.python_api import JobFunction as JobFunction
    from stoker.python_api import Queue as Queue
    from stoker.python_api import job as job
    from stoker.python_api import submit as submit
    from stoker.python_api import sweep as sweep
    from stoker.sweep_api import Sweep as Sweep

_HOMES = {
    "errors": ("Error",),
    "executor": ("Executor",),
    "handles": ("Job", "JobFailed", "JobLost", "as_completed", "wait"),
    "inside": ("current", "log", "requeue", "should_stop"),
    "python_api": ("JobFunction", "Queue", "job", "submit", "sweep"),
    "sweep_api": ("Sweep",),
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
