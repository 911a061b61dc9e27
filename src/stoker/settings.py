"""Settings: defaults, overridden by the settings file, overridden by environment variables.

The file is $XDG_CONFIG_HOME/stoker/settings.toml (or $STOKER_SETTINGS). Every key can also be set
as STOKER_<KEY>, except the table [notify]. The state folder is $XDG_STATE_HOME/stoker/<host> (or
$STOKER_STATE_DIR): one per user and host, so that hosts with a shared home directory have separate
queues.
"""

from __future__ import annotations

import os
import stat

from stoker.errors import Error, NoPermission, UsageError
from stoker.features import SETTINGS, load
from stoker.record import Record
from stoker.text.activation import ENGINES
from stoker.text.counter_names import is_counter_name
from stoker.text.durations import parse_duration
from stoker.text.sizes import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ContainerSettings(Record):
    """How jobs with `--container` run; the table [container]."""

    engine: str = ""  # docker, podman, apptainer or singularity; "": the first on the PATH
    mounts: tuple[str, ...] = ()  # SRC:DST of every container, besides those of `--mount`
    env: tuple[str, ...] = ()  # variables that every container gets: names, WANDB_*
    options: tuple[str, ...] = ()  # of the engine: --network=host


class Settings(Record):
    state_dir: str
    devices: str | None = None  # "4" or "0,1,1,2"; None: detect the GPUs
    cpu_slots: int = 0  # jobs without a GPU that run at a time; 0: the number of cores
    cores: int = 0  # cores for jobs; 0: those that this process may use
    memory: int = 0  # bytes of memory for jobs; 0: the memory of the host
    resources: tuple[tuple[str, int], ...] = ()  # counters for --need: name and amount
    limits: bool = False  # whether --cpus and --mem are limits; "enforce" or "off" in the file
    cgroup: str | None = None  # the cgroup for limits; None: that of the runner
    shell: str | None = None  # None: the submitter's $SHELL
    grace: float = 10.0  # seconds between SIGTERM and SIGKILL
    retry_delay: float = 1.0  # seconds before the first retry; doubles with each attempt
    log_limit: int = 256 << 20  # bytes kept of one log: its beginning and its end
    allow_network_fs: bool = False
    leases: bool = True  # take and respect the host-wide leases on GPUs
    gpus_by_uuid: bool = False  # CUDA_VISIBLE_DEVICES by UUID instead of index
    gpu_share: str = ""  # how jobs share GPUs: mps or time; "": by time slices
    mps_idle: float = 30.0  # seconds that MPS stays started on a GPU without jobs under MPS
    bind: bool = True  # bind GPU jobs to the CPUs near their GPUs, on hosts with NUMA nodes
    preempt_for_others: bool = False  # preemptible jobs also give way to other users' processes
    gpu_file: str | None = None  # file that lists the GPUs to use; changes take effect at once
    backend: str | None = None  # where jobs run without `--on`; None: on this host
    terminal_idle: float = 1800.0  # seconds without use after which interactive jobs end; 0: never
    snapshot: str = "never"  # snapshots of the code of jobs: always, ask or never
    snapshot_limit: int = 200_000_000  # bytes of the largest snapshot
    trace_seconds: float = 5.0  # between two samples of resource usage; at most 10, 0: none
    notify: Any = None  # NotifySettings: the table [notify] without the addresses of places
    container: ContainerSettings = ContainerSettings()
    profiles: dict[str, dict[str, object]] | None = None  # job options by name, for `--profile`
    profile: tuple[str, ...] = ()  # the profiles of jobs without `--profile`


_ENV_KEYS = (
    "devices", "cpu_slots", "shell", "grace", "retry_delay", "log_limit", "leases", "gpus_by_uuid",
    "bind", "preempt_for_others", "gpu_file", "trace_seconds", "allow_network_fs", "backend",
    "cores", "memory", "resources", "limits", "cgroup", "gpu_share", "mps_idle", "terminal_idle",
    "profile", "snapshot", "snapshot_limit",
)  # fmt: skip
_SWITCHES = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def load_settings() -> Settings:
    """Return the settings of this user on this host. Raises UsageError for an invalid value."""
    return load_with_sources()[0]


def load_with_sources() -> tuple[Settings, dict[str, str]]:
    """The settings, and the file or variable that sets each key whose value is not the default."""
    values: dict[str, object] = {"state_dir": default_state_dir()}
    sources: dict[str, str] = {}
    path = settings_path()
    if os.path.exists(path):
        found = _read_file(path)
        values.update(found)
        sources = dict.fromkeys(found, path)
    for key in ("state_dir", *_ENV_KEYS):
        name = f"STOKER_{key.upper()}"
        text = os.environ.get(name)
        if text:
            is_folder = key == "state_dir"
            values[key] = os.path.abspath(text) if is_folder else _parse(key, text, name)
            sources[key] = name
    return Settings(**values), sources  # type: ignore[arg-type]


def settings_path() -> str:
    """The path of the settings file, which may not exist."""
    return os.environ.get("STOKER_SETTINGS") or os.path.join(config_folder(), "settings.toml")


def config_folder() -> str:
    """The folder of the settings file."""
    given = os.environ.get("STOKER_SETTINGS")
    if given:
        return os.path.dirname(os.path.abspath(given))
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "stoker")


def default_state_dir() -> str:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "stoker", os.uname().nodename or "localhost")


def _read_file(path: str) -> dict[str, object]:
    import tomllib

    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the settings file `{path}`: {error}") from None
    except RecursionError:
        raise UsageError(f"the settings file `{path}` is nested too deeply") from None
    return check_tables(table, path)


def check_tables(table: dict[str, object], path: str) -> dict[str, object]:
    """The values of a settings file. Raises UsageError for an unknown key or an invalid value."""
    for key in table:
        if key not in Settings._fields:
            error = unknown_setting(key)
            raise UsageError(f"{error.message} in `{path}`", error.hint)
    return {
        key: _of_feature(key, value, path)
        if key in SETTINGS
        else _parse(key, value, f"`{key}` in `{path}`")
        for key, value in table.items()
    }


def unknown_setting(key: str) -> UsageError:
    """The error for a key that is not a setting."""
    from stoker.text.suggestions import nearest

    near = nearest(key, Settings._fields, {"gpus": "devices"})
    known = f"known settings: {', '.join(Settings._fields)}"
    return UsageError(f"unknown setting `{key}`", f"did you mean `{near}`?" if near else known)


def _of_feature(key: str, value: object, path: str) -> object:
    """The table of a feature. Errors never contain its values, which may be secrets."""
    try:
        found: object = load(SETTINGS[key])(value)
        return found
    except UsageError as error:
        raise UsageError(f"{error.message}, in `{path}`", error.hint) from None
    except (TypeError, ValueError):
        raise UsageError(f"the table [{key}] in `{path}` has an invalid value") from None


def _parse(key: str, value: object, where: str) -> object:
    try:
        if key == "gpu_share":
            return {"mps": "mps", "time": "time"}[str(value).lower()]
        if key in ("grace", "retry_delay", "trace_seconds", "mps_idle", "terminal_idle"):
            return parse_duration(value, "s") if isinstance(value, str) else float(str(value))
        if key == "snapshot":
            return {"always": "always", "ask": "ask", "never": "never"}[str(value).lower()]
        if key in ("log_limit", "memory", "snapshot_limit"):
            return parse_size(str(value))
        if key == "resources":
            return _counters(value)
        if key == "container":
            return _container(value)
        if key == "profiles":
            return _profiles(value)
        if key == "profile":
            return _texts(value.split(",") if isinstance(value, str) else value)
        if key == "limits":
            return {"enforce": True, "off": False}[str(value).lower()]
        if key in ("cpu_slots", "cores"):
            return max(0, int(str(value)))
        if key in ("allow_network_fs", "leases", "gpus_by_uuid", "bind", "preempt_for_others"):
            return value if isinstance(value, bool) else _SWITCHES[str(value).lower()]
        return str(value)
    except (Error, ValueError, KeyError):
        raise UsageError(f"{where} has the invalid value `{value}`") from None


def _container(value: object) -> ContainerSettings:
    """The table [container]. Raises ValueError or KeyError."""
    if not isinstance(value, dict) or not value.keys() <= set(ContainerSettings._fields):
        raise ValueError
    engine = value.get("engine", "")
    if engine not in ("", *ENGINES):
        raise ValueError
    lists = {key: _texts(found) for key, found in value.items() if key != "engine"}
    return ContainerSettings(engine=engine, **lists)


def _profiles(value: object) -> dict[str, dict[str, object]]:
    """The tables [profiles.NAME]; client/settings_profiles.py checks their options when used."""
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise ValueError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise ValueError
    return tuple(one.strip() for one in value if one.strip())


def _counters(value: object) -> tuple[tuple[str, int], ...]:
    """The counters of a table, or of text such as `licence=2,slot=1`. Raises ValueError."""
    if isinstance(value, str):
        value = dict(word.strip().split("=") for word in value.split(",") if word.strip())
    if not isinstance(value, dict):
        raise ValueError
    counters = tuple(sorted((name, int(str(amount))) for name, amount in value.items()))
    if any(amount < 0 or not is_counter_name(name) for name, amount in counters):
        raise ValueError
    return counters


# File systems on which flock and the shared memory of SQLite's write-ahead log are not reliable.
_NETWORK_FS = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "afs", "ceph"),
    *("fuse.sshfs", "fuse.glusterfs", "9p", "orangefs", "pvfs2", "ncpfs", "coda"),
)


def filesystem_of(path: str) -> str:
    """Return the type of the file system that holds `path`, from the mount table."""
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            fields = line.split(" ")
            mount = fields[1].encode("latin-1", "replace").decode("unicode_escape")
            inside = real == mount or real.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, fields[2]
    return kind


def prepare_state_dir(settings: Settings) -> None:
    """Create the state folder if it is missing.

    Raises NoPermission if it belongs to another user, is open to other users, or would be created
    on a network file system.
    """
    path = settings.state_dir
    try:
        info = os.stat(path)
    except FileNotFoundError:
        _make_state_dir(settings)
        return
    except OSError as error:
        raise NoPermission(f"cannot use the state folder `{path}`: {error.strerror}") from None
    if not stat.S_ISDIR(info.st_mode):
        raise NoPermission(f"the state folder `{path}` is not a folder")
    if info.st_uid != os.geteuid():
        raise NoPermission(
            f"the state folder `{path}` belongs to uid {info.st_uid}, not to you",
            "set STOKER_STATE_DIR to a folder of your own",
        )
    if info.st_mode & 0o077:
        # Only a folder that Stoker already uses may be made private: never suggest chmod of /etc.
        is_ours = os.path.exists(os.path.join(path, "queue.db"))
        raise NoPermission(
            f"the state folder `{path}` is open to other users",
            f"chmod 700 {path}" if is_ours else "set STOKER_STATE_DIR to a private folder",
        )


def _make_state_dir(settings: Settings) -> None:
    path = settings.state_dir
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        check_filesystem(settings)
        os.mkdir(path, 0o700)
    except FileExistsError:
        prepare_state_dir(settings)  # another command created it at the same time
    except OSError as error:
        raise NoPermission(
            f"cannot create the state folder `{path}`: {error.strerror}",
            "set STOKER_STATE_DIR to a folder you can write to",
        ) from None


def check_filesystem(settings: Settings) -> None:
    """Raise NoPermission if the state folder is on a network file system.

    Locks and shared memory do not work there, so the database could be damaged.
    """
    path = settings.state_dir
    kind = filesystem_of(path if os.path.exists(path) else os.path.dirname(path))
    if kind in _NETWORK_FS and not settings.allow_network_fs:
        raise NoPermission(
            f"the state folder `{path}` is on a network file system ({kind})",
            "set STOKER_STATE_DIR to a folder on a local disk",
        )


def cores(settings: Settings) -> int:
    """The cores that jobs of this host share."""
    return settings.cores or len(os.sched_getaffinity(0))


def cpu_slots(settings: Settings) -> int:
    return settings.cpu_slots or cores(settings)
