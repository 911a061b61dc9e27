"""Which tests the same test process runs, and in which order.

The tests of a shared cluster run in one process, because its start takes many seconds. The tests of
a module run in one process, because some of them would disturb each other. pytest-xdist's own
`--dist loadgroup` does not work with pytest 9.2.
"""

from __future__ import annotations

# Tests that may run in any process, because they take long and do not disturb each other.
_SPLIT = (
    "tests/simulation/test_seeds.py",
    "tests/web_ui/test_scenarios.py",
    "tests/features/remote/",
)
_ENGINES = ("ray", "slurm")


def group_of(nodeid: str) -> str:
    """The tests of a group run in one process."""
    if nodeid.startswith("tests/features/backends/"):
        for engine in _ENGINES:
            if f"[{engine}" in nodeid or f"test_{engine}" in nodeid.partition("::")[0]:
                return engine
    if nodeid.startswith("tests/engines/") and "_ray_" in nodeid.partition("::")[2]:
        return "ray"
    return nodeid if nodeid.startswith(_SPLIT) else nodeid.partition("::")[0]


def start_order(nodeid: str) -> tuple[int, ...]:
    """Long groups start first, so that no process is left with one at the end."""
    group = group_of(nodeid)
    return (group not in _ENGINES, "with_many_jobs" not in nodeid, group == nodeid)
