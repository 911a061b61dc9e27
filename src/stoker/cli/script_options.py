"""Jobs from scripts with `#SBATCH` or `#stoker` options in the comments at their top.

Options of Slurm are translated by text/slurm/slurm_request.py; such a job also gets the output
files, environment variables and `srun` of Slurm.
"""

from __future__ import annotations

import os
import shlex
import sys

from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.array_indexes import parse_array
from stoker.text.command_line import Parsed
from stoker.text.commands.output_patterns import from_slurm
from stoker.text.commands.shell_words import quote
from stoker.text.slurm.slurm_environment import MARK, SRUN_FOLDER
from stoker.text.slurm.slurm_options import parse_sbatch
from stoker.text.slurm.slurm_request import SlurmRequest, Translated

_GPU_KEYS = (
    "gpus",
    "gpu_mem",
    "gpu_ids",
    "prefer",
    "gpu_model",
    "min_gpu_mem",
    "exclusive",
    "share",
)
# Kept with `--export=NONE`: few programs run without them.
_ALWAYS_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM")


def slurm_defaults(path: str, own: Parsed, merged: Parsed, slurm: Translated) -> dict[str, object]:
    """Defaults that Slurm would use. `own`: options of the script; `merged`: with the command line,
    which takes precedence. Raises UsageError for an append mode that cannot be honored."""
    name = merged["name"] or os.path.basename(path)
    values: dict[str, object] = {"name": name}
    if not any(key in merged.values for key in _GPU_KEYS):
        values["gpus"] = 0  # the default of Slurm
    for key in ("stdout", "stderr"):
        if own[key] is None or merged[key] != own[key]:
            continue
        target = from_slurm(own[key], is_array=merged["array"] is not None)
        if slurm.appends and "%j" not in target and not ("%A" in target and "%a" in target):
            raise UsageError(
                f"`--open-mode=append` is not supported: each job overwrites `{target}`",
                "put %j into the path, or write `exec >> FILE` into the script",
            )
        values[key] = target
    return values


def slurm_job(spec: JobSpec, slurm: Translated, parsed: Parsed, state_dir: str) -> JobSpec:
    """Add the environment variables of Slurm to a job, and an `srun` to its PATH.

    A job for a backend keeps its environment.
    """
    env = dict(spec.context.env)
    if slurm.exported is not None:
        declared = {key for pairs in parsed["env"] or () for key, _ in pairs}
        kept = {*_ALWAYS_KEPT, *slurm.exported, *declared}
        env = {key: env[key] for key in env if key in kept or key.startswith(("LC_", "STOKER_"))}
        spec = spec._replace(context=spec.context._replace(env=tuple(sorted(env.items()))))
    if spec.array is not None:
        # Also on a Slurm backend: what it calls a job array are Stoker's allocations.
        spec = spec._replace(variables=parse_array(spec.array).variables(is_slurm=True))
    if spec.request.backend:
        return spec  # a Slurm backend sets its other variables itself
    if "SLURM_JOB_ID" in env and _has_srun(env.get("PATH", "")):
        return spec  # inside a real Slurm allocation: keep its variables and srun
    host = os.uname().nodename
    tasks = int(slurm.variables["SLURM_TASKS_PER_NODE"])
    cpus = slurm.variables.get("SLURM_CPUS_PER_TASK", "")
    on_node = str(tasks * int(cpus) if cpus.isdigit() else len(os.sched_getaffinity(0)))
    variables = dict([MARK]) | slurm.variables | {
        "SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_SUBMIT_HOST": host, "SLURMD_NODENAME": host,
        "SLURM_JOB_NODELIST": host, "SLURM_NODELIST": host, "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
        "SLURM_CPUS_ON_NODE": on_node, "SLURM_JOB_CPUS_PER_NODE": on_node,
        "SLURM_JOB_USER": _user(), "SLURM_JOB_UID": str(os.getuid()),
        "PATH": f"{_srun_folder(state_dir)}:{env.get('PATH') or os.defpath}",
    }  # fmt: skip
    return spec._replace(variables=(*spec.variables, *variables.items()))


def _has_srun(path: str) -> bool:
    return any(
        os.access(os.path.join(folder, "srun"), os.X_OK)
        for folder in path.split(":")
        if os.path.basename(folder) != SRUN_FOLDER
    )


def _srun_folder(state_dir: str) -> str:
    """A folder that contains only `srun`. The file is replaced atomically, because a job may start
    it at the same time."""
    folder = os.path.join(state_dir, SRUN_FOLDER)
    path = os.path.join(folder, "srun")
    text = f'#!/bin/sh\nexec {quote(sys.executable)} -P -m stoker.compat.srun "$@"\n'
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            if file.read() == text:
                return folder
    except OSError:
        os.makedirs(folder, 0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(temporary, 0o700)
    os.replace(temporary, path)
    return folder


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or str(os.getuid())


_HEAD_BYTES = 64 << 10
_STOKER = ("#stoker", "#STOKER")
_SLURM = "#SBATCH"


class Script(Record):
    """A script with options in its comments, and how to run it."""

    path: str
    words: tuple[str, ...]
    flags: list[str]  # of `stoker submit`
    slurm: Translated | None  # if it has #SBATCH lines

    @property
    def notices(self) -> list[str]:
        ignored = self.slurm.ignored if self.slurm is not None else []
        return [f"ignored #SBATCH options: {', '.join(ignored)}"] if ignored else []


def read_script(words: list[str], is_for_slurm: bool = False) -> Script | None:
    """The script that `words` runs, if it has `#SBATCH` or `#stoker` options; otherwise None.

    `is_for_slurm`: the job goes to a Slurm backend, which gets the options of Slurm.

    Raises UsageError that names the line of a bad option.
    """
    path = words[0]
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if b"\0" in head:
        return None  # a binary
    lines = head.decode("utf-8", "surrogateescape").splitlines()
    flags: list[str] = []
    start = _start(path, lines[0] if lines else "")
    request = SlurmRequest(is_for_slurm)
    has_stoker = has_slurm = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        kind, gap, rest = text.partition(text[7:8]) if text[7:8] in (" ", "\t") else (text, "", "")
        try:
            if kind in _STOKER and gap:
                has_stoker = True
                flags += shlex.split(rest, comments=True)
            elif kind == _SLURM and gap:
                has_slurm = True
                _add(request, shlex.split(rest, comments=True))
        except (UsageError, ValueError) as error:
            known = error if isinstance(error, UsageError) else UsageError(str(error))
            text = f"line {number} of `{path}`: {known.message}"
            raise UsageError(text, known.hint) from None
    if not has_stoker and not has_slurm:
        return None
    slurm = request.translate() if has_slurm else None
    own = slurm.flags if slurm is not None else []
    return Script(path, (*start, *words[1:]), [*own, *flags], slurm)


def _add(request: SlurmRequest, words: list[str]) -> None:
    if words[:1] in (["hetjob"], ["packjob"]):
        raise UsageError("heterogeneous jobs are not supported")
    for name, value in parse_sbatch(words):
        request.add(name, value)


def _start(path: str, first: str) -> list[str]:
    """The command that runs a script, which need not be executable: its `#!` line, or sh."""
    absolute = os.path.abspath(path)
    if first.startswith("#!"):
        return [*first[2:].split(None, 1), absolute]
    return ["/bin/sh", absolute]
