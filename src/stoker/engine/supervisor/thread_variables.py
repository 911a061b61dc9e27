"""Variables that tell numerical libraries how many threads to use: the share of a job.

Without them, each library starts a thread for every core of the host in every job. A variable that
the submitter has set is kept. If that is OMP_NUM_THREADS, the others are not set, because the
libraries that read them use OMP_NUM_THREADS otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

# The share of the job; a job that it submits uses it to recognize the variables of Stoker.
SHARE = "STOKER_THREADS"
_FIRST = "OMP_NUM_THREADS"
_NAMES = (
    _FIRST,
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def thread_variables(own: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables to set for a job that has these variables itself."""
    return () if _FIRST in own else tuple(name for name in _NAMES if name not in own)


def remove_thread_variables(env: dict[str, str]) -> None:
    """Remove those that Stoker set for the job that submits another one."""
    share = env.pop(SHARE, None)
    for name in _NAMES:
        if share is not None and env.get(name) == share:
            del env[name]
