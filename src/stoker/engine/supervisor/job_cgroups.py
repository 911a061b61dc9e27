"""Cgroups as one more way to find the processes of an attempt, where available.

The kernel keeps a process in its cgroup whatever it does to its session, parents, limits and
environment. A user may create cgroups (version 2) where the host delegates a subtree, as systemd
does below `user@UID.service`; root may anywhere. Elsewhere cgroups are not used.

Attempts begin in their cgroup: the runner enters it, starts the first process and returns to its
own. Moving a process takes up to 20 ms, but since Linux 5.5 a thread that moves itself between
*threaded* cgroups takes some microseconds; therefore all of them are of that type. Their processes
are listed in `cgroup.threads`, because `cgroup.procs` cannot be read there. A process in the cgroup
belongs to the attempt only if it has no tag: a daemon that a job started stays in the job's cgroup,
but is not part of the job.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from stoker.engine.model import Outcome
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.start_hooks import find_hook

_LIST_NAME = "cgroups"  # in the state folder: one line per parent cgroup that a runner has used
_PREFIX = "stoker-"
_LIMITS = ".limits"  # in the names of cgroups for attempts with limits
_JOBS = ".jobs"  # in the names of cgroups for all attempts
_HOME = "runner"  # the cgroup of the runner below that
_LINUX = (5, 5)


class JobCgroups:
    """The cgroups of attempts of one queue: `stoker-BASE.jobs/ATTEMPT` below a runner's own."""

    def __init__(self, places: list[str], folder: str | None = None, base: int = 0) -> None:
        self._places = places  # oldest first; new attempts use the last
        self._folder = folder  # where the places are recorded; None: nowhere
        self._name = f"{_PREFIX}{base:x}{_LIMITS}"
        self._limit_place: str | None = None  # for attempts with limits; "": not possible
        self._limited: dict[int, str] = {}  # cgroups of attempts with limits
        self._home: int | None = None  # `cgroup.threads` of the runner's cgroup; None: not used

    @classmethod
    def create(cls, folder: str, base: int) -> JobCgroups:
        """For a runner: create a cgroup below our own, if permitted, and record its path."""
        known = _read_places(folder)
        own = limit_parent()
        cls(known).close()  # remove empty cgroups of a runner that was killed
        if own is None or _linux_version() < _LINUX:
            return cls([], folder, base)
        place = os.path.join(own, f"{_PREFIX}{base:x}{_JOBS}")
        places = [*(path for path in known if path != place), place]
        made = cls(places, folder, base)
        try:
            os.makedirs(place, exist_ok=True)
            if _read(place, "cgroup.type") == b"domain invalid":  # in the cgroup of another job
                _make_threaded(place)
            home = _make_threaded(os.path.join(place, _HOME))
            _write(os.path.join(home, "cgroup.procs"), b"0")
            _write_places(folder, places)
            made._home = os.open(os.path.join(home, "cgroup.threads"), os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            with suppress(OSError):
                _write(os.path.join(own, "cgroup.procs"), b"0")
            made.close()
            return cls([], folder, base)
        return made

    @classmethod
    def load(cls, folder: str) -> JobCgroups:
        """For a daemon whose runner is dead: the recorded cgroups."""
        return cls(_read_places(folder))

    def limit(self, order: Order, pid: int) -> None:
        """Limit an attempt that has just started, if that is possible here."""
        find_place, limit = find_hook("limit_place"), find_hook("limit")
        if find_place is None or limit is None:
            return
        if self._limit_place is None:
            place = find_place(order.cgroup or limit_parent(), self._name)
            self._limit_place = place or ""
            if place is not None and self._folder is not None:
                with suppress(OSError):
                    _write_places(self._folder, [*self._places, place])
        if self._limit_place:
            path = os.path.join(self._limit_place, str(order.attempt))
            if limit(path, pid, order.memory_limit, order.cpu_limit):
                self._limited[order.attempt] = path

    def with_cause(self, outcome: Outcome) -> Outcome:
        """The outcome of an attempt, with the cause if the kernel killed it for its memory."""
        path = self._limited.get(outcome.attempt) or self._path_of(outcome.attempt)
        with_cause = None if path is None else find_hook("limit_cause")
        if with_cause is not None:
            outcome = with_cause(outcome, path)
        return outcome

    def _path_of(self, attempt: int) -> str | None:
        """The cgroup with limits of an attempt that an earlier runner started."""
        places = [place for place in self._places if place.endswith(_LIMITS)]
        paths = [os.path.join(place, str(attempt)) for place in places]
        return next((path for path in paths if os.path.isdir(path)), None)

    def prepare(self, attempt: int) -> str | None:
        """Create the cgroup of an attempt; returns the file by which a thread enters it."""
        if self._home is None:
            return None
        try:
            path = _make_threaded(os.path.join(self._places[-1], str(attempt)))
        except OSError:
            return None  # a cgroup limit is reached; other evidence remains
        return os.path.join(path, "cgroup.threads")

    def enter(self, attempt: int) -> None:
        """Let the processes that we start be in the cgroup of an attempt, until `leave`."""
        path = self.prepare(attempt)
        if path is not None:
            with suppress(OSError):
                _write(path, b"0")

    def leave(self) -> None:
        """Return to our own cgroup."""
        if self._home is not None:
            with suppress(OSError):
                os.write(self._home, b"0")

    def freeze(self, attempts: Iterable[int], *, is_over: bool = False) -> None:
        """Keep the processes of attempts from running, and thus from starting others."""
        for place in self._all():
            for attempt in attempts:
                with suppress(OSError):
                    path = os.path.join(place, str(attempt), "cgroup.freeze")
                    _write(path, b"0" if is_over else b"1")

    def is_populated(self, attempt: int) -> bool:
        """Whether a process is in the cgroups of an attempt, part of the attempt or not."""
        paths = [os.path.join(place, str(attempt)) for place in self._all()]
        return any(b"populated 1" in _read(path, "cgroup.events") for path in paths)

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
        self._limited.pop(attempt, None)
        for place in self._all():
            try:
                os.rmdir(os.path.join(place, str(attempt)))
            except OSError:
                continue

    def _all(self) -> list[str]:
        return [*self._places, *([self._limit_place] if self._limit_place else [])]

    def close(self) -> None:
        """Remove empty cgroups; a runner leaves its own."""
        if self._home is not None:
            os.close(self._home)
            self._home = None
            with suppress(OSError):
                _write(os.path.join(self._places[-1], "..", "cgroup.procs"), b"0")
        for place in self._all():
            for name in (*_folders(place), ""):
                try:
                    os.rmdir(os.path.join(place, name))
                except OSError:
                    continue


def _processes(path: str) -> list[int]:
    """The processes in a cgroup; of a threaded one, also their threads."""
    data = _read(path, "cgroup.procs") or _read(path, "cgroup.threads")
    found = [int(line) for line in data.split()]
    for name in _folders(path):
        if not name.startswith(_PREFIX):  # the cgroups of a runner that a job started
            found += _processes(os.path.join(path, name))
    return found


def _make_threaded(path: str) -> str:
    try:
        os.mkdir(path)
    except FileExistsError:
        pass  # of a runner that was killed
    _write(os.path.join(path, "cgroup.type"), b"threaded")
    return path


def _read(path: str, name: str) -> bytes:
    """The content of a file of a cgroup; empty if it cannot be read."""
    try:
        with open(os.path.join(path, name), "rb") as file:
            return file.read().strip()
    except OSError:
        return b""


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _linux_version() -> tuple[int, ...]:
    return tuple(int(word) for word in os.uname().release.split("-")[0].split(".")[:2])


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

    A parent of jobs that has moved into a leaf of its first cgroup (`JobCgroups.create`,
    limit_cgroups.py) uses that.
    """
    own = own_cgroup(pid)
    if own is not None and own.endswith(f"{_JOBS}/{_HOME}"):
        own = os.path.dirname(os.path.dirname(own))
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
