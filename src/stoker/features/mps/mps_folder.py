"""The private folder of MPS for one user and GPU: pipes, logs, locks, state.

    pipe/        CUDA_MPS_PIPE_DIRECTORY: the sockets of the control daemon
    log/         CUDA_MPS_LOG_DIRECTORY
    monitor.lock  held by the monitor process (monitor_process.py)
    use.lock     held, shared, by each job under MPS and its processes (an inherited descriptor);
                 the monitor takes it alone to stop MPS, so no job can start meanwhile
    state        what the monitor knows, as JSON

All queues and foreground runs of a user share the folder, as MPS has one server for each user.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat

from stoker.engine.supervisor.process_table import process_state
from stoker.errors import NoPermission
from stoker.record import Record

STARTING, READY, FAILED, STOPPED = "starting", "ready", "failed", "stopped"
# A socket path has 108 bytes, and NVIDIA's longest name in the folder is control_privileged.
_MAX_FOLDER_BYTES = 107 - len("/pipe/control_privileged")


class MpsState(Record):
    """The state of MPS on one GPU, as its monitor recorded it. Times are of the wall clock."""

    uuid: str
    state: str  # STARTING, READY, FAILED or STOPPED
    at: float
    reason: str | None = None  # why it failed
    monitor: int = 0  # PIDs; 0: none
    control: int = 0
    server: int = 0
    died_at: float | None = None  # when a control daemon or server died last
    deaths: int = 0


class MpsFolder:
    """The files of one GPU. Nothing is created before `prepare`."""

    def __init__(self, uuid: str) -> None:
        from hashlib import blake2b

        self.uuid = uuid
        name = blake2b(uuid.encode(), digest_size=6).hexdigest()  # short: paths of sockets are
        self.path = os.path.join(base_folder(), name)
        self.pipe = os.path.join(self.path, "pipe")
        self.log = os.path.join(self.path, "log")

    def prepare(self) -> None:
        """Create the folder. Raises NoPermission if it is not private or its path is too long."""
        if len(os.fsencode(self.path)) > _MAX_FOLDER_BYTES:
            raise NoPermission(
                f"the path `{self.path}` is too long for the sockets of MPS",
                "set STOKER_MPS_DIR to a folder with a short path",
            )
        for path in (base_folder(), self.path, self.pipe, self.log):
            _make_private(path)

    def read(self) -> MpsState | None:
        """The last recorded state; None if there is none."""
        try:
            with open(os.path.join(self.path, "state"), encoding="utf-8") as file:
                fields = json.load(file)
            return MpsState(**{key: fields[key] for key in MpsState._fields if key in fields})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def write(self, state: MpsState) -> None:
        path = os.path.join(self.path, "state")
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(state._asdict(), file)
        os.replace(f"{path}.new", path)

    def take_monitor_lock(self) -> int | None:
        """A descriptor that holds the lock of the monitor; None if another process holds it."""
        return self._lock("monitor.lock", fcntl.LOCK_EX)

    def has_monitor(self) -> bool:
        """Whether a monitor process runs."""
        if not os.path.exists(os.path.join(self.path, "monitor.lock")):
            return False
        held = self._lock("monitor.lock", fcntl.LOCK_SH)
        if held is None:
            return True
        os.close(held)
        return False

    def join(self) -> int | None:
        """A descriptor that keeps MPS running while it is open; None if MPS is being stopped."""
        return self._lock("use.lock", fcntl.LOCK_SH)

    def close_to_jobs(self) -> int | None:
        """A descriptor that keeps jobs from joining while it is open; None while jobs use MPS."""
        return self._lock("use.lock", fcntl.LOCK_EX)

    def _lock(self, name: str, how: int) -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(self.path, name), flags, 0o600)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return descriptor


def base_folder() -> str:
    """The folder of MPS of this user: $STOKER_MPS_DIR, or in $XDG_RUNTIME_DIR or /tmp."""
    given = os.environ.get("STOKER_MPS_DIR")
    if given:
        return os.path.abspath(given)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "stoker-mps")
    return f"/tmp/stoker-mps-{os.getuid()}"


def recorded_states() -> list[MpsState]:
    """The last recorded state of every GPU on which this user used MPS."""
    try:
        names = os.listdir(base_folder())
    except OSError:
        return []
    found = []
    for name in sorted(names):
        try:
            with open(os.path.join(base_folder(), name, "state"), encoding="utf-8") as file:
                uuid = str(json.load(file)["uuid"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        state = MpsFolder(uuid).read()
        if state is not None:
            found.append(state)
    return found


def is_alive(pid: int) -> bool:
    return pid > 0 and process_state(pid) not in ("", "Z", "X")


def _make_private(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise NoPermission(f"cannot create the MPS folder `{path}`: {error.strerror}") from None
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise NoPermission(
            f"the MPS folder `{path}` is not a private folder of this user",
            "set STOKER_MPS_DIR to a private folder with a short path",
        )
