"""The options of sbatch and srun, parsed by the rules of getopt_long.

Names may be abbreviated if the abbreviation is unique, switches may be joined (`-Hv`), and optional
values need an `=`.
"""

from __future__ import annotations

from stoker.errors import UsageError

_SHORT = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "M": "clusters", "C": "constraint",
    "S": "core-spec", "c": "cpus-per-task", "d": "dependency", "m": "distribution", "e": "error",
    "x": "exclude", "B": "extra-node-info", "G": "gpus", "H": "hold", "h": "help", "i": "input",
    "J": "job-name", "L": "licenses", "k": "no-kill", "F": "nodefile", "w": "nodelist",
    "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit", "s": "oversubscribe",
    "p": "partition", "q": "qos", "Q": "quiet", "t": "time", "v": "verbose", "V": "version",
    "W": "wait",
}  # fmt: skip
_SWITCHES = frozenset((
    "contiguous", "help", "hold", "ignore-pbs", "no-requeue", "overcommit", "oversubscribe",
    "parsable", "quiet", "reboot", "requeue", "spread-job", "stepmgr", "test-only", "usage",
    "use-min-nodes", "verbose", "version", "wait",
))  # fmt: skip
_OPTIONAL = frozenset(
    (
        "exclusive",
        "get-user-env",
        "nice",
        "no-kill",
        "propagate",
        "resv-ports",
    )
)
_VALUES = frozenset((
    "account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster-constraint",
    "clusters", "comment", "constraint", "container", "container-id", "core-spec",
    "cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot",
    "dependency", "distribution", "error", "exclude", "export", "export-file", "extra",
    "extra-node-info", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket",
    "gpus-per-task", "gres", "gres-flags", "hint", "input", "job-name", "kill-on-invalid-dep",
    "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu",
    "mem-per-gpu", "mincpus", "network", "nodefile", "nodelist", "nodes", "ntasks",
    "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "oom-kill-step",
    "open-mode", "output", "partition", "prefer", "priority", "profile", "qos", "reservation",
    "segment", "signal", "sockets-per-node", "switches", "tasks-per-node", "thread-spec",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task", "uid",
    "wait-all-nodes", "wckey", "wrap",
))  # fmt: skip
SBATCH = _SWITCHES | _OPTIONAL | _VALUES

_SRUN_SHORT = _SHORT | {
    "E": "preserve-env",
    "I": "immediate",
    "K": "kill-on-bad-exit",
    "l": "label",
    "r": "relative",
    "T": "threads",
    "u": "unbuffered",
    "W": "wait",
    "X": "disable-status",
    "Z": "no-allocate",
    "O": "overcommit",
    "s": "oversubscribe",
}
_SRUN_SWITCHES = (_SWITCHES - {"wait"}) | frozenset(
    (
        "async",
        "disable-status",
        "exact",
        "external-launcher",
        "interactive",
        "label",
        "multi-prog",
        "no-allocate",
        "overlap",
        "preserve-env",
        "unbuffered",
        "whole",
    )
)
_SRUN_OPTIONAL = _OPTIONAL | frozenset(
    (
        "bcast",
        "compress",
        "immediate",
        "kill-on-bad-exit",
        "pty",
        "send-libs",
        "x11",
    )
)
_SRUN_VALUES = _VALUES | frozenset((
    "accel-bind", "bcast-exclude", "cpu-bind", "epilog", "het-group", "jobid", "launch-cmd",
    "launcher-opts", "max-exit-timeout", "mpi", "msg-timeout", "prolog", "relative",
    "slurmd-debug", "task-epilog", "task-prolog", "threads", "treewidth", "wait",
))  # fmt: skip
SRUN = _SRUN_SWITCHES | _SRUN_OPTIONAL | _SRUN_VALUES

Options = list[tuple[str, str]]


def parse_sbatch(words: list[str]) -> Options:
    """Return the options of a `#SBATCH` line by long name; switches have an empty value.

    >>> parse_sbatch(["-Hv", "--job=x", "-n4", "--nice"])
    [('hold', ''), ('verbose', ''), ('job-name', 'x'), ('ntasks', '4'), ('nice', '')]
    """
    options, rest = _parse("sbatch", words, _SHORT, _SWITCHES, _OPTIONAL, SBATCH)
    if rest:
        raise UsageError(f"`{rest[0]}` is not an sbatch option")
    return options


def parse_srun(words: list[str]) -> tuple[Options, list[str]]:
    """Return the options of srun and the command after them."""
    return _parse("srun", words, _SRUN_SHORT, _SRUN_SWITCHES, _SRUN_OPTIONAL, SRUN)


def _parse(
    tool: str,
    words: list[str],
    short: dict[str, str],
    switches: frozenset[str],
    optional: frozenset[str],
    known: frozenset[str],
) -> tuple[Options, list[str]]:
    found: Options = []
    rest = list(words)
    while rest and rest[0][:1] == "-" and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word[:2] == "--":
            given, equals, value = word[2:].partition("=")
            name = _whole_name(given, known, tool)
            if name in switches or (name in optional and not equals):
                value = ""
            elif not equals:
                value = _next(rest, f"--{name}")
            found.append((name, value))
            continue
        letters = word[1:]
        while letters:
            name = short.get(letters[0], "")
            if not name:
                raise UsageError(f"`-{letters[0]}` is not an {tool} option")
            letters = letters[1:]
            value = ""
            if name not in switches:
                value, letters = letters.removeprefix("="), ""
                if not value and name not in optional:
                    value = _next(rest, word)
            found.append((name, value))
    return found, rest


def _next(rest: list[str], word: str) -> str:
    if not rest:
        raise UsageError(f"`{word}` needs a value")
    return rest.pop(0)


def _whole_name(given: str, known: frozenset[str], tool: str) -> str:
    if given in known:
        return given
    near = sorted(name for name in known if given and name.startswith(given))
    if len(near) == 1:
        return near[0]
    if near:
        raise UsageError(f"`--{given}` is ambiguous", f"it could be --{', --'.join(near)}")
    raise UsageError(f"`--{given}` is not an {tool} option")
