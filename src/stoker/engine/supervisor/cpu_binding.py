"""Bind the processes of a job to the CPUs near its GPUs.

A child inherits the CPUs of its parent, so the parent, which has no other threads, binds itself for
the moment of the start. Setting them in the child after its start would be too late: programs read
the number of their CPUs when they begin.
"""

from __future__ import annotations

import os

from stoker.text.cpu_list import parse_cpu_list


class CpuBinding:
    """The CPUs of this process, and those of a job that is being started."""

    def __init__(self) -> None:
        self._is_bound = False
        self._own: set[int] = set()

    def bind(self, cpus: str) -> None:
        """Bind this process until `restore`, to those of the CPUs that it may use.

        Does nothing if the list is empty, or if it may use none of them.
        """
        if not cpus:
            return
        try:
            self._own = os.sched_getaffinity(0)
            near = self._own & parse_cpu_list(cpus)
            if near and near != self._own:
                os.sched_setaffinity(0, near)
                self._is_bound = True
        except (OSError, ValueError):
            pass  # the job runs on all CPUs

    def restore(self) -> None:
        """Use all CPUs again."""
        if self._is_bound:
            self._is_bound = False
            try:
                os.sched_setaffinity(0, self._own)
            except OSError:
                pass  # its cpuset has changed; the kernel has adapted the CPUs of this process
