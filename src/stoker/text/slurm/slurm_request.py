"""Translate the `#SBATCH` options of a script into flags of `stoker submit`.

An option is translated, ignored with a notice, or refused. It is refused if ignoring it would
change what runs.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.sizes import parse_size

_PLAIN = {"job-name": "--name", "chdir": "--cwd", "output": "--stdout", "error": "--stderr"}
# These have no effect on a single host and are ignored without a notice.
_SILENT = ("quiet", "verbose", "no-requeue", "ignore-pbs", "parsable", "oversubscribe", "no-kill")
_REFUSED = {
    "bb": "burst buffers are not supported",
    "bbf": "burst buffers are not supported",
    "container": "containers are not supported",
    "container-id": "containers are not supported",
    "export-file": "`--export-file` is not supported",
    "uid": "`--uid` is for administrators",
    "gid": "`--gid` is for administrators",
    "nodefile": "`--nodefile` needs a cluster",
    "test-only": "`--test-only` would queue nothing",
    "wrap": "`--wrap` is not allowed in a script",
    "help": "`--help` is not allowed in a script",
    "usage": "`--usage` is not allowed in a script",
    "version": "`--version` is not allowed in a script",
}
_HINTS = {"test-only": "use stoker submit --dry-run", "export-file": "use #stoker --env-file FILE"}
# Options that Slurm also exports as environment variables.
_VARIABLES = {
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "tasks-per-node": "SLURM_NTASKS_PER_NODE",
    "partition": "SLURM_JOB_PARTITION",
    "account": "SLURM_JOB_ACCOUNT",
    "qos": "SLURM_JOB_QOS",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
}
# Cores and memory; on a Slurm backend, they are passed on.
_CORES = ("cpus-per-task", "cpus-per-gpu")
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
# Options that Stoker handles itself also on a Slurm backend.
_HANDLED = frozenset((
    "job-name", "chdir", "output", "error", "gpus", "gpus-per-node", "gpus-per-task",
    "gpus-per-socket", "gres", "tres-per-task", "time", "begin", "dependency", "hold", "requeue",
    "signal", "open-mode", "export", "array", "input",
))  # fmt: skip
_CONDITIONS = {"afterany": "any", "afterok": "ok", "aftercorr": "ok", "afternotok": "notok"}
_CLOCKS = {"midnight": "00:00", "noon": "12:00", "fika": "15:00", "teatime": "16:00"}
_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}


class Translated(Record):
    flags: list[str]  # of `stoker submit`
    variables: dict[str, str]
    ignored: list[str]  # options without an effect on a single host
    exported: tuple[str, ...] | None  # the variables that the job inherits; None: all of them
    appends: bool  # --open-mode=append


class SlurmRequest:
    """Collects options in the order of the script; a later one overrides an earlier one.

    `is_for_slurm`: the job goes to a Slurm backend, so options that Stoker does not know are passed
    on instead of ignored.
    """

    def __init__(self, is_for_slurm: bool = False) -> None:
        self._is_for_slurm = is_for_slurm
        self._passed: dict[str, str] = {}
        self._nodes = 1
        self._flags: dict[str, list[str]] = {}
        self._variables: dict[str, str] = {}
        self._ignored: dict[str, None] = {}
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}  # bytes
        self._model: str | None = None
        self._exported: tuple[str, ...] | None = None
        self._appends = False
        self._is_exclusive = False
        self._signal: str | None = None

    def add(self, name: str, value: str) -> None:
        if name in _VARIABLES:
            self._variables[_VARIABLES[name]] = value
        if self._is_for_slurm and self._pass_on(name, value):
            return
        if name in _REFUSED:
            raise UsageError(_REFUSED[name], _HINTS.get(name))
        if name in _PLAIN:
            self._flags[name] = [_PLAIN[name], value]
        elif name in ("ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu"):
            self._numbers[name] = _number(name, value)
        elif name in (
            "gpus",
            "gpus-per-node",
            "gpus-per-task",
            "gpus-per-socket",
            "gres",
            "tres-per-task",
        ):
            self._add_gpus(name, value)
        elif name in _TRANSLATIONS:
            flags = _TRANSLATIONS[name](value)
            if flags:
                self._flags[name] = flags
        elif name in _CORES:
            self._numbers[name] = _number(name, value)
        elif name in _MEMORY:
            self._sizes = {name: _size(name, value)}  # Slurm allows one of them
        elif name == "signal":
            self._signal = value
        elif name == "exclusive":
            self._is_exclusive = True
        elif name == "open-mode":
            if value not in ("append", "truncate"):
                raise UsageError(f"`{value}` is not a mode", "write append or truncate")
            self._appends = value == "append"
        elif name == "export":
            self._add_export(value)
        elif name == "nodes":
            if value.partition("-")[0] != "1":
                raise UsageError(f"the script requests {value} nodes, but Stoker runs on one host")
        elif name == "input":
            if value not in ("none", "/dev/null"):
                raise UsageError(
                    "`--input` is not supported", f"write COMMAND < {value} in the script"
                )
        elif name not in _SILENT:
            self._ignored[f"--{name}"] = None

    def _pass_on(self, name: str, value: str) -> bool:
        """Keep an option for Slurm; False if Stoker handles it."""
        if name == "nodes":
            low, _, high = value.partition("-")
            if high and high != low:
                raise UsageError(
                    f"`--nodes={value}` is not a fixed number of nodes", "write --nodes=2"
                )
            self._nodes = _number(name, low)
        elif name in ("ntasks", "ntasks-per-node", "tasks-per-node"):
            self._passed["ntasks" if name == "ntasks" else "ntasks-per-node"] = value
        elif name in _HANDLED or name in _REFUSED or name in _SILENT:
            return False
        else:
            self._passed[name] = value
        return True

    def _add_gpus(self, name: str, value: str) -> None:
        parts = value.split(",") if name in ("gres", "tres-per-task") else [value]
        for part in parts:
            kind, _, rest = part.replace("gres/", "").replace("=", ":").partition(":")
            if name in ("gres", "tres-per-task"):
                if kind == "cpu":
                    self._numbers["cpus-per-task"] = _number(name, rest)
                    continue
                if kind != "gpu":
                    self._ignored[f"--{name}={part}"] = None
                    continue
                part = rest or "1"
                if not part.rpartition(":")[2].isdigit():
                    part = f"{part}:1"
            model, _, count = part.rpartition(":")
            key = {"gres": "gpus-per-node", "tres-per-task": "gpus-per-task"}.get(name, name)
            self._numbers[key] = _number(name, count)
            self._model = model or self._model

    def _add_export(self, value: str) -> None:
        names = [part for part in value.split(",") if part]
        pairs = [part for part in names if "=" in part]
        self._flags["export"] = [word for pair in pairs for word in ("--env", pair)]
        keeps_all = "ALL" in names or not names
        kept = tuple(part for part in names if "=" not in part and part not in ("ALL", "NONE"))
        self._exported = None if keeps_all else kept

    def translate(self) -> Translated:
        """Return the flags for all options. Without a GPU option, no GPU is requested."""
        flags = [word for some in self._flags.values() for word in some]
        tasks = self._tasks()
        gpus = self._gpus(tasks)
        if self._is_for_slurm:
            flags += self._flags_for_slurm()
            gpus = self._gpus_of_each_node(gpus)
        if gpus is not None:
            flags += ["--gpus", str(gpus)]
            flags += self._model_flags() if self._model is not None and gpus else []
        if not self._is_for_slurm:
            flags += self._host_flags(tasks, gpus)
        if self._is_exclusive and gpus:
            flags.append("--exclusive")
        elif self._is_exclusive:
            self._ignored["--exclusive"] = None
        if self._signal is not None and "time" in self._flags:
            signal, at, seconds = self._signal.removeprefix("R:").partition("@")
            flags += ["--signal", f"{signal}@{seconds}s" if at else signal]
        elif self._signal is not None:
            self._ignored["--signal (there is no --time)"] = None
        if tasks is not None:
            self._variables |= {"SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks)}
        self._variables["SLURM_TASKS_PER_NODE"] = str(tasks or 1)
        return Translated(
            flags, self._variables, list(self._ignored), self._exported, self._appends
        )

    def _host_flags(self, tasks: int | None, gpus: int | None) -> list[str]:
        """Cores and memory of the whole job: its tasks run on one host."""
        cpus = self._cpus(tasks, gpus)
        flags = ["--cpus", str(cpus)] if cpus else []
        if "mem-per-cpu" in self._sizes:
            size = self._sizes["mem-per-cpu"] * (cpus or 1)
        elif "mem-per-gpu" in self._sizes:
            size = self._sizes["mem-per-gpu"] * (gpus or 0)
        else:
            size = self._sizes.get("mem", 0)  # 0: all memory of the node
        return [*flags, "--mem", str(size)] if size else flags

    def _cpus(self, tasks: int | None, gpus: int | None) -> int | None:
        numbers = self._numbers
        if numbers.get("cpus-per-task"):
            return numbers["cpus-per-task"] * (tasks or 1)
        if numbers.get("cpus-per-gpu") and gpus:
            return numbers["cpus-per-gpu"] * gpus
        return tasks if tasks is not None and tasks > 1 else None

    def _flags_for_slurm(self) -> list[str]:
        """The command of a batch script runs on the first node, and starts the others itself."""
        flags = ["--option", "launch=first"]
        flags += ["--nodes", str(self._nodes)] if self._nodes > 1 else []
        for name, value in self._passed.items():
            flags += ["--option", f"{name}={value}"]
        return flags

    def _gpus_of_each_node(self, gpus: int | None) -> int | None:
        if gpus is None or "gpus" not in self._numbers:
            return gpus
        if gpus % self._nodes:
            raise UsageError(
                f"`--gpus={gpus}` cannot be divided among {self._nodes} nodes",
                "write --gpus-per-node",
            )
        return gpus // self._nodes

    def _model_flags(self) -> list[str]:
        assert self._model is not None
        if self._is_for_slurm:
            return ["--option", f"gpu-type={self._model}"]
        return ["--gpu-model", self._model]

    def _tasks(self) -> int | None:
        numbers = self._numbers
        for name in ("ntasks", "ntasks-per-node", "tasks-per-node"):
            if name in numbers:
                return numbers[name]
        if "ntasks-per-gpu" in numbers:
            return numbers["ntasks-per-gpu"] * (self._gpus(None) or 1)
        if "gpus" in numbers and numbers.get("gpus-per-task"):
            return numbers["gpus"] // numbers["gpus-per-task"]
        return None

    def _gpus(self, tasks: int | None) -> int | None:
        numbers = self._numbers
        for name in ("gpus", "gpus-per-node", "gpus-per-socket"):
            if name in numbers:
                return numbers[name]
        if "gpus-per-task" in numbers:
            return numbers["gpus-per-task"] * (tasks or 1)
        return None


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 9):
        raise UsageError(f"`--{name}={value}` is not a number")
    return int(value)


def _size(name: str, value: str) -> int:
    """Bytes; without a unit, the number is in megabytes."""
    try:
        return parse_size(f"{value}M" if value.isdigit() else value)
    except UsageError:
        raise UsageError(f"`--{name}={value}` is not a size", "write 4000M or 16G") from None


def _time(value: str) -> list[str]:
    if value.upper() in ("0", "-1", "UNLIMITED", "INFINITE"):
        return []
    days, dash, rest = value.partition("-")
    if dash and rest.count(":") < 2:  # D-HH and D-HH:MM
        rest += ":00" * (2 - rest.count(":"))
    return ["--time-limit", f"{days}-{rest}" if dash else value]


def _begin(value: str) -> list[str]:
    """Translate `now+1hour`, `noon` and the like; other values are passed on unchanged."""
    if value in _CLOCKS:
        return ["--begin", _CLOCKS[value]]
    if value in ("now", "today"):
        return []
    head, plus, rest = value.partition("+")
    if head != "now" or not plus:
        return ["--begin", value]
    digits = rest.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = rest[len(digits) :].removesuffix("s") or "second"
    return ["--begin", f"+{digits}{_UNITS.get(unit, unit)}"]


def _nice(value: str) -> list[str]:
    if not value.lstrip("-").isdigit() and value:
        raise UsageError(f"`--nice={value}` is not a number")
    return ["--priority", str(-int(value or 100))]


def _priority(value: str) -> list[str]:
    return ["--priority", "1000000" if value.upper() == "TOP" else value]


def _dependency(value: str) -> list[str]:
    """`afterok:7:8,afterany:9`."""
    if "?" in value:
        raise UsageError(
            "alternative dependencies (`?`) are not supported",
            "write afterok:7:8, which waits for all of them",
        )
    flags: list[str] = []
    for part in value.split(","):
        kind, *jobs = part.split(":")
        if kind not in _CONDITIONS or not jobs:
            raise UsageError(
                f"`{part}` is not a supported dependency",
                "write afterok:7, afterany:7 or afternotok:7",
            )
        for job in jobs:
            # In Slurm, the id of an array stands for all of its jobs.
            which = f"job:{job}" if job.isdigit() else job
            flags += ["--after", f"{which}:{_CONDITIONS[kind]}"]
    return flags


_TRANSLATIONS: dict[str, Callable[[str], list[str]]] = {
    "time": _time,
    "begin": _begin,
    "nice": _nice,
    "priority": _priority,
    "dependency": _dependency,
    "array": lambda value: ["--array", value],
    "hold": lambda _: ["--hold"],
    "requeue": lambda _: ["--restartable"],
}
