"""While a file with a task class is imported, no GPU is seen.

Some frameworks take a part of every GPU as soon as they are imported, and a program imports its
task class only to hand it to the scheduler. So the GPUs are hidden from where such a file imports
this library until its class is there, which is after the imports at its top.

Not for the main script, which may want to count the GPUs for its configuration; not in a job, which
has GPUs of its own; not in helpers of a program (multiprocessing imports files once more); and not
with STOKER_COMPAT_SHOW_GPUS=1.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "CUDA_VISIBLE_DEVICES"
IN_A_JOB = "STOKER_JOB_ID"
OPT_OUT = "STOKER_COMPAT_SHOW_GPUS"
_OURS = ("stoker", "gpu_task_scheduler")
_IMPORTING = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class _Curtain:
    def __init__(self) -> None:
        self._is_down = False
        self._was: str | None = None

    def hide(self) -> None:
        """Until the first task class is there."""
        if _may_hide() and _importer() != "__main__":
            self._was, self._is_down = os.environ.get(_VARIABLE), True
            os.environ[_VARIABLE] = ""

    def show(self) -> None:
        if not self._is_down:
            return
        self._is_down = False
        if os.environ.get(_VARIABLE) != "":
            return  # somebody has set it since
        if self._was is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = self._was


def _may_hide() -> bool:
    if IN_A_JOB in os.environ or os.environ.get(OPT_OUT, "") not in ("", "0"):
        return False
    processes = sys.modules.get("multiprocessing.process")
    return processes is None or processes.parent_process() is None


def _importer() -> str:
    """The module that imports this library."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in (*_OURS, *_IMPORTING):
            return name
    return "__main__"


_curtain = _Curtain()
hide = _curtain.hide
show = _curtain.show
