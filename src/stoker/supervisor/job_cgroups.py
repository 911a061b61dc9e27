"""Cgroups as one more way to find the processes of an attempt, where available.

The kernel keeps a process in its cgroup whatever it does to its session, parents, limits and
environment. A user may create cgroups (version 2) where the host delegates a subtree, as systemd
does below `user@UID.service`; root may anywhere. Elsewhere cgroups are not used.

An attempt that runs for a second gets its own cgroup: moving a process takes up to 20 ms, during
which the runner cannot start another job. A process in the cgroup belongs to the attempt only if it
has no tag: a daemon that a job started stays in the job's cgroup, but is not part of the job.
"""

from __future__ import annotations

import os
from contextlib import suppress

from stoker.core.model import Outcome
from stoker.core.record import Record
from stoker.supervisor.job_processes import descendants

_LIST_NAME = "cgroups"  # in the state folder: one line per parent cgroup that a runner has used
_PREFIX = "stoker-"
_LIMITS = ".limits"  # in the names of cgroups for attempts with limits
_DELAY_SECONDS = 1.0


class Limits(Record):
    """The limits of an attempt."""

    memory: int | None = None  # bytes
    cpus: int = 0  # cores; 0: no limit
    cgroup: str = ""  # the parent cgroup; empty: that of the process that starts the attempt


class JobCgroups:
    """The cgroups of attempts of one queue: `stoker-BASE/ATTEMPT` below a runner's own cgroup."""

    def __init__(self, places: list[str], folder: str | None = None, base: int = 0) -> None:
        self._places = places  # oldest first; new attempts use the last
        self._folder = folder  # where the places are recorded; None: nowhere
        self._name = f"{_PREFIX}{base:x}{_LIMITS}"
        self._limit_place: str | None = None  # for attempts with limits; "": not possible
        self._limited: dict[int, str] = {}  # cgroups of attempts with limits
        self._waiting: dict[int, tuple[float, int]] = {}  # attempt: due time and PID, oldest first

    @classmethod
    def create(cls, folder: str, base: int) -> JobCgroups:
        """For a runner: create a cgroup below our own, if permitted, and record its path."""
        known = _read_places(folder)
        own = own_cgroup()
        if own is None:
            return cls([], folder, base)
        cls(known).close()  # remove empty cgroups of a runner that was killed
        place = os.path.join(own, f"{_PREFIX}{base:x}")
        try:
            os.makedirs(place, exist_ok=True)
            if not os.access(os.path.join(own, "cgroup.procs"), os.W_OK):
                return cls([], folder, base)
            places = [*(path for path in known if path != place), place]
            _write_places(folder, places)
        except OSError:
            return cls([], folder, base)
        return cls(places, folder, base)

    @classmethod
    def load(cls, folder: str) -> JobCgroups:
        """For a daemon whose runner is dead: the recorded cgroups."""
        return cls(_read_places(folder))

    def limit(self, attempt: int, pid: int, limits: Limits) -> bool:
        """Limit an attempt that has just started; False if that is not possible here."""
        from stoker.supervisor import limit_cgroups

        if self._limit_place is None:
            place = limit_cgroups.prepare(limits.cgroup or limit_parent(), self._name)
            self._limit_place = place or ""
            if place is not None and self._folder is not None:
                with suppress(OSError):
                    _write_places(self._folder, [*self._places, place])
        if not self._limit_place:
            return False
        path = os.path.join(self._limit_place, str(attempt))
        if not limit_cgroups.limit(path, pid, limits.memory, limits.cpus):
            return False
        self._limited[attempt] = path
        return True

    def with_cause(self, outcome: Outcome) -> Outcome:
        """The outcome of an attempt, with the cause if the kernel killed it for its memory."""
        path = self._limited.get(outcome.attempt) or self._path_of(outcome.attempt)
        if path is None:
            return outcome
        from stoker.supervisor.limit_cgroups import with_cause

        return with_cause(outcome, path)

    def _path_of(self, attempt: int) -> str | None:
        """The cgroup with limits of an attempt that an earlier runner started."""
        places = [place for place in self._places if place.endswith(_LIMITS)]
        paths = [os.path.join(place, str(attempt)) for place in places]
        return next((path for path in paths if os.path.isdir(path)), None)

    def add_later(self, attempt: int, pid: int, now: float) -> None:
        """Let `add_due` add an attempt, unless it ends before that or has a cgroup already."""
        if self._places and attempt not in self._limited:
            self._waiting[attempt] = (now + _DELAY_SECONDS, pid)

    @property
    def due_at(self) -> float | None:
        """When to call `add_due` (monotonic)."""
        return next((due for due, _ in self._waiting.values()), None)

    def add_due(self, now: float) -> None:
        """Move the processes of attempts that have run for a second into cgroups."""
        while self._waiting:
            attempt, (due, pid) = next(iter(self._waiting.items()))
            if due > now:
                return
            del self._waiting[attempt]
            self._add(attempt, pid)

    def _add(self, attempt: int, pid: int) -> None:
        """Move the first process of an attempt and its descendants into a new cgroup."""
        path = os.path.join(self._places[-1], str(attempt))
        try:
            os.mkdir(path)
            with open(os.path.join(path, "cgroup.procs"), "wb", buffering=0) as file:
                for member in (pid, *descendants(pid)):
                    file.write(b"%d" % member)
        except OSError:
            pass  # the process has exited, or a cgroup limit is reached; other handles remain

    def attempts_by_pid(self) -> dict[int, int]:
        """The attempt of each process in our cgroups, and in cgroups that jobs created inside."""
        found = {}
        for place in self._all():
            for attempt in _folders(place):
                if attempt.isdigit():
                    for pid in _processes(os.path.join(place, attempt)):
                        found[pid] = int(attempt)
        return found

    def remove(self, attempt: int) -> None:
        """Remove the cgroup of an attempt that has ended, unless a process is in it."""
        if self._waiting.pop(attempt, None) is not None:
            return  # it has none yet
        self._limited.pop(attempt, None)
        for place in self._all():
            try:
                os.rmdir(os.path.join(place, str(attempt)))
            except OSError:
                continue

    def _all(self) -> list[str]:
        return [*self._places, *([self._limit_place] if self._limit_place else [])]

    def close(self) -> None:
        """Remove empty cgroups."""
        for place in self._all():
            for name in (*_folders(place), ""):
                try:
                    os.rmdir(os.path.join(place, name))
                except OSError:
                    continue


def _processes(path: str) -> list[int]:
    try:
        with open(os.path.join(path, "cgroup.procs"), "rb") as file:
            found = [int(line) for line in file]
    except OSError:
        return []
    for name in _folders(path):
        if not name.startswith(_PREFIX):  # the cgroups of a runner that a job started
            found += _processes(os.path.join(path, name))
    return found


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read_places(folder: str) -> list[str]:
    try:
        with open(os.path.join(folder, _LIST_NAME), encoding="utf-8") as file:
            return [line.rstrip("\n") for line in file if os.path.isdir(line.rstrip("\n"))]
    except OSError:
        return []


def _write_places(folder: str, places: list[str]) -> None:
    path = os.path.join(folder, _LIST_NAME)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.writelines(f"{one}\n" for one in places)
    os.replace(f"{path}.new", path)


def limit_parent(pid: int | None = None) -> str | None:
    """The cgroup of a process (by default this one) below which attempts are limited.

    A parent of jobs that has moved into a leaf of its first cgroup (limit_cgroups.py) uses that.
    """
    own = own_cgroup(pid)
    if own is not None and _LIMITS in os.path.basename(own):
        return os.path.dirname(own)
    return own


def own_cgroup(pid: int | None = None) -> str | None:
    """The path of the version 2 cgroup of a process (by default this one); None without one."""
    try:
        with open(f"/proc/{pid or 'self'}/cgroup", encoding="utf-8") as file:
            own = next(line[3:].rstrip("\n") for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            words = next(words for words in map(str.split, file) if "cgroup2" in words[6:])
    except (OSError, StopIteration):
        return None
    root, mount = words[3], words[4]
    if not own.startswith(root.rstrip("/") + "/") and own != root:
        return None  # not below the part that is mounted here
    return os.path.normpath(mount + "/" + own[len(root.rstrip("/")) :])
