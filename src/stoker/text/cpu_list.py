"""Lists of CPUs as Linux writes them: `0-15,32-47`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list. Raises ValueError if it is not one.

    >>> sorted(parse_cpu_list("0-2,8")), sorted(parse_cpu_list(""))
    ([0, 1, 2, 8], [])
    """
    found: set[int] = set()
    for part in text.split(",") if text.strip() else []:
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return a list of CPUs as text.

    >>> format_cpu_list({8, 0, 2, 1}), format_cpu_list([])
    ('0-2,8', '')
    """
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
