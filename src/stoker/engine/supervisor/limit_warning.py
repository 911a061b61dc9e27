"""Sends the signal that announces the time limit, as requested by the job (`--signal`)."""

from __future__ import annotations

import signal

from stoker.engine.supervisor import job_processes, kill_processes
from stoker.engine.supervisor.process_table import read_process
from stoker.engine.supervisor.running_attempt import RunningAttempt
from stoker.text.limit_signal import parse_warning


def warn(attempt: RunningAttempt) -> None:
    """Send it once.

    Only the program itself gets it: most worker processes would die of it, and so would a shell
    that is waiting for the program, unless its text has a `trap` for it.
    """
    attempt.warn_at = None
    order = attempt.order
    assert order.settings.signal is not None
    warning = parse_warning(order.settings.signal)
    shell = None if warning.is_for_shell else attempt.shell
    pids = job_processes.programs(attempt.pid, shell)
    if (
        attempt.pid not in pids
        and _has_trap(order.argv[0], warning.signal)
        and job_processes.catches(attempt.pid, warning.signal)
    ):
        pids.append(attempt.pid)
    for pid in pids:
        process = read_process(pid)
        if process is not None:
            kill_processes.send(process, warning.signal)


def _has_trap(text: str, number: int) -> bool:
    """Whether a shell text sets a trap for a signal. (bash has a handler after `trap … EXIT`.)"""
    name = signal.Signals(number).name.removeprefix("SIG")
    lines = (line.partition("trap ")[2].upper() for line in text.splitlines())
    return any(name in line or str(number) in line.split() for line in lines)
