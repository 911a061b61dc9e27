"""The actor on each node: holds GPUs of the node and runs workers with them.

Ray sends this module to the node by value, so Ray's Python there does not need Stoker: this module
imports only the standard library, and Ray where it is needed. The workers do need it, in the Python
interpreter of the option `python`.

The actor is detached: it survives the driver that created it, and may be used by a driver of a
later release. So methods keep their meaning. GPUs that it does not need return to Ray after the
idle time, and an actor without workers exits after it. Workers end with the actor.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

_GROW_SECONDS = 20.0  # after this long, other Ray users have taken the GPUs
_KILL_SECONDS = 30.0  # after the grace period, before a worker is killed
_KEPT_SECONDS = 7 * 86400.0  # files of allocations and folders that no driver asked for
_FIRST_PORT, _LAST_PORT = 20000, 29499  # as in port_lease.py
_OUTPUT_BYTES = 2000
_EVENT_BYTES = 1 << 18
_CHECK_SECONDS = 60.0
_CHECK = "from stoker.features.backends.chunk_files import VERSION; print(VERSION)"


class GpuHolder:
    """A child of the actor with further GPUs; ends with it."""

    def gpus(self) -> list[str]:
        return _visible_gpus()


class NodeActor:
    """Methods are called one after the other; a thread watches idle GPUs."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._idle_seconds = float(config["idle"])
        self._python = config["python"] or sys.executable
        self._version = str(config["version"])
        self._folder = os.path.join(
            config["folder"] or os.path.join(tempfile.gettempdir(), f"stoker-ray-{os.getuid()}"),
            f"{config['tag']}-{socket.gethostname()}",
        )
        self._lock = threading.RLock()
        own = _visible_gpus() if config["gpus"] else []
        self._held: dict[str, int] = dict.fromkeys(own, 0)  # GPU: holder; 0 is the actor itself
        self._holders: dict[int, Any] = {}
        self._growing: dict[int, tuple[Any, Any, int, float]] = {}
        self._next_holder = 1
        self._used: dict[str, str] = {}  # GPU: allocation
        self._used_at: dict[str, float] = {}  # when a GPU was used last
        self._allocations: dict[str, _Allocation] = {}
        self._busy_at = time.monotonic()
        self._problem: str | None = None
        self._checked_at = 0.0
        self._find_leftovers()
        threading.Thread(target=self._watch, daemon=True).start()

    # -- state -----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What the actor holds and runs."""
        with self._lock:
            self._tend()
            if self._problem is not None:
                self._check_python()
            return {
                "free": len(self._held) - len(self._used),
                "growing": sum(count for _, _, count, _ in self._growing.values()),
                "problem": self._problem,
                "allocations": {id: one.describe() for id, one in self._allocations.items()},
            }

    def prepare(self, path: str, value: str) -> dict[str, Any]:
        """Check that workers can run here; returns where files are, and the interpreter.

        `sees`: whether the file at this path is visible here, with this value.
        """
        with self._lock:
            self._check_python()
            self._busy_at = time.monotonic()
            return {"folder": self._folder, "python": self._python, "sees": _sees(path, value)}

    def _check_python(self) -> None:
        """Find out whether the Python interpreter of workers has this version of Stoker."""
        now = time.monotonic()
        if self._checked_at and now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        try:
            done = subprocess.run(
                [self._python, "-P", "-c", _CHECK],
                capture_output=True,
                text=True,
                timeout=60,
                stdin=subprocess.DEVNULL,
                env=_worker_environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._problem = f"`{self._python}` cannot be run: {error}"
            return
        if done.returncode:
            self._problem = f"`{self._python}` has no Stoker: install stoker[ray] there"
        elif done.stdout.strip() != self._version:
            self._problem = f"`{self._python}` has another version of Stoker: install the same one"
        else:
            self._problem = None

    def _watch(self) -> None:
        while True:
            time.sleep(min(1.0, self._idle_seconds / 2))
            with self._lock:
                self._tend()
                is_busy = self._growing or any(one.is_running for one in self._allocations.values())
                if is_busy:
                    self._busy_at = time.monotonic()
                elif time.monotonic() - self._busy_at > self._idle_seconds:
                    os._exit(0)  # the lock is held: no worker can be started now

    def _tend(self) -> None:
        """Note workers that ended, holders that are ready, and release GPUs that are idle."""
        now = time.monotonic()
        for id, one in self._allocations.items():
            if one.poll(now):
                for gpu in [gpu for gpu, user in self._used.items() if user == id]:
                    del self._used[gpu]
                    self._used_at[gpu] = now
        self._take_grown(now)
        for number in list(self._holders):
            gpus = [gpu for gpu, holder in self._held.items() if holder == number]
            last = max(self._used_at.get(gpu, 0.0) for gpu in gpus)
            if not any(gpu in self._used for gpu in gpus) and now - last > self._idle_seconds:
                self._release(number, gpus)

    # -- GPUs ------------------------------------------------------------------------------------

    def grow(self, count: int) -> None:
        """Request more GPUs of this node from Ray; `status` counts them when they are there."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ray.get_runtime_context().get_node_id()
        with self._lock:
            holder: Any = (
                ray.remote(GpuHolder)
                .options(
                    num_gpus=count,
                    num_cpus=0,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                )
                .remote()
            )
            self._growing[self._next_holder] = (
                holder,
                holder.gpus.remote(),
                count,
                time.monotonic(),
            )
            self._next_holder += 1

    def _take_grown(self, now: float) -> None:
        if not self._growing:
            return
        import ray

        for number, (holder, answer, _, since) in list(self._growing.items()):
            if ray.wait([answer], timeout=0)[0]:
                del self._growing[number]
                try:
                    gpus = ray.get(answer)
                except ray.exceptions.RayError:
                    continue
                self._holders[number] = holder
                self._held.update(dict.fromkeys(gpus, number))
                self._used_at.update(dict.fromkeys(gpus, now))
            elif now - since > _GROW_SECONDS:
                del self._growing[number]
                ray.kill(holder)

    def _release(self, number: int, gpus: list[str]) -> None:
        import ray

        for gpu in gpus:
            del self._held[gpu]
        ray.kill(self._holders.pop(number))

    def _take_gpus(self, id: str, count: int) -> list[str] | None:
        """Choose GPUs for an allocation; None if fewer are free.

        GPUs of the actor and of holders that are in use come first, so that others become idle.
        """
        busy = {self._held[gpu] for gpu in self._used} | {0}
        free = [gpu for gpu in self._held if gpu not in self._used]
        free.sort(key=lambda gpu: (self._held[gpu] not in busy, self._held[gpu], gpu))
        if len(free) < count:
            return None
        chosen = free[:count]
        self._used.update(dict.fromkeys(chosen, id))
        return sorted(chosen, key=lambda gpu: (len(gpu), gpu))

    # -- workers ---------------------------------------------------------------------------------

    def start(self, id: str, folder: str, gpus: int, node: str, identity: str) -> bool:
        """Start a worker for the chunk in this folder; harmless to repeat.

        Returns False if the GPUs are not free. Relative folders are in the folder for copies.
        """
        with self._lock:
            if id in self._allocations:
                return True
            chosen = self._take_gpus(id, gpus)
            if chosen is None:
                return False
            self._busy_at = time.monotonic()
            path = os.path.join(self._folder, folder)
            env = _worker_environment() | {
                "CUDA_VISIBLE_DEVICES": ",".join(chosen),
                "STOKER_WORKER_SLOTS": "1",
                "STOKER_WORKER_NODE": node,
                "STOKER_WORKER_PARENT": str(os.getpid()),
            }
            words = [
                self._python,
                "-P",
                "-m",
                "stoker.features.backends.worker",
                path,
                "--as",
                identity,
            ]
            output = os.path.join(path, "worker.out")
            try:
                with open(output, "ab") as file:
                    process = subprocess.Popen(
                        words,
                        env=env,
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
            except OSError as error:
                self._allocations[id] = _Allocation(None, path, chosen, f"{error}")
            else:
                self._allocations[id] = _Allocation(process, path, chosen)
            return True

    def free_port(self) -> int:
        """A port of this node on which nothing listens."""
        while True:
            port = random.randint(_FIRST_PORT, _LAST_PORT)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("", port))
                except OSError:
                    continue
            return port

    def stop(self, ids: list[str], grace: float) -> None:
        """End workers: SIGTERM, and SIGKILL after the grace period of their jobs."""
        with self._lock:
            for id in ids:
                if id in self._allocations:
                    self._allocations[id].stop(grace)

    def forget(self, ids: list[str]) -> None:
        """Kill the workers of these allocations if they run, and delete copies of their files."""
        with self._lock:
            for id in ids:
                one = self._allocations.get(id)
                if one is None:
                    continue
                one.kill()
                self._tend()
                del self._allocations[id]
                if one.folder.startswith(self._folder + os.sep):
                    self._remove_files(one.folder)

    # -- files -----------------------------------------------------------------------------------

    def write(self, pieces: list[dict[str, Any]]) -> None:
        """Write parts of files: name, offset, data, mode and target of a link."""
        self._busy_at = time.monotonic()
        for piece in pieces:
            path = self._path(piece["name"])
            _make_private(self._folder, os.path.dirname(path))
            if piece["target"] is not None:
                if not os.path.lexists(path):
                    os.symlink(piece["target"], path)
                continue
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            flags |= 0 if piece["offset"] else os.O_TRUNC
            descriptor = os.open(path, flags, 0o600)
            try:
                os.fchmod(descriptor, piece["mode"])
                with open(descriptor, "wb", closefd=False) as file:
                    file.seek(piece["offset"])
                    file.write(piece["data"])
            finally:
                os.close(descriptor)

    def has_folder(self, digest: str) -> bool:
        """Whether a copy of a job's folder with this content is here."""
        path = self._path(f"folders/{digest}")
        if not os.path.isdir(path):
            return False
        os.utime(path)  # it is in use
        return True

    def finish_folder(self, digest: str) -> None:
        """All files of a job's folder were written."""
        path = self._path(f"folders/{digest}")
        _make_private(self._folder, f"{path}.new")  # it may be empty
        os.rename(f"{path}.new", path)

    def read_events(self, id: str, offset: int) -> bytes:
        """Complete lines of the event file of an allocation, from an offset."""
        with self._lock:
            one = self._allocations[id]
        try:
            with open(os.path.join(one.folder, "events.jsonl"), "rb") as file:
                file.seek(offset)
                data = file.read(_EVENT_BYTES)
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def listing(self, names: list[str], trees: list[str]) -> tuple[list[dict[str, Any]], int]:
        """These files, and everything in these folders, as far as they exist; and the time."""
        found = [entry for name in names for entry in self._entry(name)]
        for tree in trees:
            for place, folders, files in os.walk(self._path(tree)):
                relative = os.path.relpath(place, self._folder)
                for name in (*folders, *files):
                    found += self._entry(os.path.join(relative, name))
        return found, time.time_ns()

    def _entry(self, name: str) -> list[dict[str, Any]]:
        path = self._path(name)
        try:
            info = os.lstat(path)
            is_link = stat.S_ISLNK(info.st_mode)
            target = os.readlink(path) if is_link else None
        except OSError:
            return []
        if not (is_link or stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            return []
        return [
            {
                "name": name,
                "size": info.st_size,
                "mtime_ns": info.st_mtime_ns,
                "mode": info.st_mode,
                "target": target,
            }
        ]

    def read(self, name: str, offset: int, size: int) -> bytes:
        """A part of a file."""
        with open(self._path(name), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def _path(self, name: str) -> str:
        path = os.path.normpath(os.path.join(self._folder, name))
        if not path.startswith(self._folder + os.sep):
            raise ValueError(f"`{name}` is not in the folder of the actor")
        return path

    def _find_leftovers(self) -> None:
        """Find copies of chunks that an earlier actor on this node ran; delete old files."""
        now = time.time()
        for name in _names(os.path.join(self._folder, "folders")):
            _remove_old(os.path.join(self._folder, "folders", name), now)
        for name in _names(os.path.join(self._folder, "files", "calls")):
            _remove_old(os.path.join(self._folder, "files", "calls", name), now)
        place = os.path.join(self._folder, "batches")
        for token in _names(place):
            for task in _names(os.path.join(place, token)):
                path = os.path.join(place, token, task)
                if not _remove_old(path, now):
                    ranks = [name for name in _names(path) if name.startswith("rank-")]
                    for id in [f"{token}/{task}/{rank}" for rank in ranks] or [f"{token}/{task}"]:
                        self._allocations[id] = _Allocation(
                            None, os.path.join(place, id), [], "the Stoker actor on its node ended"
                        )

    def _remove_files(self, folder: str) -> None:
        """Delete the copy of a chunk, and the files of its jobs."""
        jobs = _jobs_of(folder)
        for other in self._allocations.values():  # a later attempt may run here
            jobs -= _jobs_of(other.folder)
        by_folder: dict[str, set[str]] = {}
        for job in jobs:
            by_folder.setdefault(f"files/jobs/{job // 1000}", set()).add(str(job))
        for place, numbers in by_folder.items():
            for name in _names(self._path(place)):
                if name.partition("-")[0].partition(".")[0] in numbers:
                    _remove(os.path.join(self._path(place), name))
        results = {f"result-{job}" for job in jobs}
        for call in _names(self._path("files/calls")):
            for name in results.intersection(_names(self._path(f"files/calls/{call}"))):
                _remove(self._path(f"files/calls/{call}/{name}"))
        _remove(folder)


class _Allocation:
    """A worker process."""

    def __init__(
        self, process: subprocess.Popen[bytes] | None, folder: str, gpus: list[str], why: str = ""
    ) -> None:
        self.folder = folder
        self._process = process
        self._gpus = gpus
        self._why = why  # it did not run or was lost
        self._code: int | None = None
        self._kill_at: float | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._code is None

    def describe(self) -> dict[str, Any]:
        return {
            "is_running": self.is_running,
            "code": self._code,
            "why": self._why,
            "gpus": self._gpus,
        }

    def poll(self, now: float) -> bool:
        """Whether it has ended."""
        if self._process is not None and self._code is None:
            if self._kill_at is not None and now > self._kill_at:
                self._process.kill()
            self._code = self._process.poll()
            if self._code:
                self._why = _last_line(os.path.join(self.folder, "worker.out"))
        return not self.is_running

    def stop(self, grace: float) -> None:
        if self.is_running and self._kill_at is None:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + grace + _KILL_SECONDS

    def kill(self) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.kill()
            self._process.wait()


def _visible_gpus() -> list[str]:
    """The GPUs that Ray assigned to this process."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [name for name in named.split(",") if name]


def _worker_environment() -> dict[str, str]:
    """The environment of Ray on this node, without variables that are for Ray's own workers."""
    own = ("RAY_", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "STOKER_")
    return {key: value for key, value in os.environ.items() if not key.startswith(own)}


def _jobs_of(folder: str) -> set[int]:
    """The jobs of a chunk."""
    try:
        with open(os.path.join(folder, "jobs.jsonl"), encoding="utf-8") as file:
            return {line["job"] for line in map(json.loads, file) if "job" in line}
    except (OSError, ValueError):
        return set()


def _sees(path: str, value: str) -> bool:
    """Whether a file with this content is visible here."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == value
    except OSError:
        return False


def _make_private(base: str, folder: str) -> None:
    """Create a folder below `base`, which must belong to this user alone."""
    if not os.path.isdir(folder):
        os.makedirs(base, 0o700, exist_ok=True)
        info = os.lstat(base)
        if info.st_uid != os.getuid() or info.st_mode & 0o022 or not stat.S_ISDIR(info.st_mode):
            raise PermissionError(f"`{base}` is not a private folder of this user")
        os.makedirs(folder, 0o700, exist_ok=True)


def _remove_old(path: str, now: float) -> bool:
    """Remove a folder that was not used for long; returns whether it was removed."""
    try:
        is_old = now - os.stat(path).st_mtime > _KEPT_SECONDS
    except OSError:
        return True
    if is_old:
        _remove(path)
    return is_old


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        pass


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _last_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _OUTPUT_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
