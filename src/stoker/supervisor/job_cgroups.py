"""Control groups as one more handle on the processes of an attempt, where the user has any.

The kernel keeps a process in its cgroup whatever it does to its session, parents, limits and
environment. A user may make cgroups (version 2) where the host delegates a part of the tree, as
systemd does below `user@UID.service`; root may anywhere. Elsewhere this is left out.

An attempt that lives for more than a few milliseconds is put into a cgroup of its own. A process is
taken for a member of it only if it carries no tag: a daemon that a job started stays in the job's
cgroup, and is not part of the job.
"""

from __future__ import annotations

import os

from stoker.supervisor.job_processes import descendants

_LIST_NAME = "cgroups"  # in the state folder: a line for each place that a runner has used
_PREFIX = "stoker-"


class JobCgroups:
    """The cgroups of one store's attempts, `stoker-BASE/ATTEMPT` below a runner's own cgroup."""

    def __init__(self, places: list[str]) -> None:
        self._places = places  # the newest last; new attempts go there

    @classmethod
    def create(cls, folder: str, base: int) -> JobCgroups:
        """For a runner: make a place below our own cgroup, if we may, and write down where."""
        known = _read_places(folder)
        own = _own_cgroup()
        if own is None:
            return cls([])
        cls(known).close()  # what a runner that was killed left behind
        place = os.path.join(own, f"{_PREFIX}{base:x}")
        try:
            os.makedirs(place, exist_ok=True)
            if not os.access(os.path.join(own, "cgroup.procs"), os.W_OK):
                return cls([])
            places = [*(path for path in known if path != place), place]
            path = os.path.join(folder, _LIST_NAME)
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.writelines(f"{one}\n" for one in places)
            os.replace(f"{path}.new", path)
        except OSError:
            return cls([])
        return cls(places)

    @classmethod
    def load(cls, folder: str) -> JobCgroups:
        """For a daemon whose runner is dead."""
        return cls(_read_places(folder))

    def add(self, attempt: int, pid: int) -> None:
        """Put the processes of an attempt, from its first one down, into a cgroup of their own."""
        if not self._places:
            return
        path = os.path.join(self._places[-1], str(attempt))
        try:
            os.mkdir(path)
            with open(os.path.join(path, "cgroup.procs"), "wb", buffering=0) as file:
                for member in (pid, *descendants(pid)):
                    file.write(b"%d" % member)
        except OSError:
            pass  # no such process any more, or no room for another cgroup: other handles remain

    def attempts_by_pid(self) -> dict[int, int]:
        """The attempt of each process in one of our cgroups, or in one that a job made inside."""
        found = {}
        for place in self._places:
            for attempt in _folders(place):
                if attempt.isdigit():
                    for pid in _processes(os.path.join(place, attempt)):
                        found[pid] = int(attempt)
        return found

    def remove(self, attempt: int) -> None:
        """Remove the cgroup of an attempt that is over; one that is in use stays."""
        for place in self._places:
            try:
                os.rmdir(os.path.join(place, str(attempt)))
            except OSError:
                continue

    def close(self) -> None:
        """Remove what is empty."""
        for place in self._places:
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
        if not name.startswith(_PREFIX):  # that would be a runner that a job started
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


def _own_cgroup() -> str | None:
    """The folder of our own version 2 cgroup."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next(line[3:].rstrip("\n") for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            words = next(words for words in map(str.split, file) if "cgroup2" in words[6:])
    except (OSError, StopIteration):
        return None
    root, mount = words[3], words[4]
    if not own.startswith(root.rstrip("/") + "/") and own != root:
        return None  # outside of what is mounted here
    return os.path.normpath(mount + "/" + own[len(root.rstrip("/")) :])
