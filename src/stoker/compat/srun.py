"""`srun` inside a script with `#SBATCH` options: runs its command once per task.

Each task has its own SLURM_PROCID and SLURM_LOCALID, and with --gpus-per-task its own share of the
job's GPUs. Options that place tasks on the nodes of a cluster are ignored, since there is one host.
As in Slurm, the exit code is the highest of all tasks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from stoker.errors import UsageError
from stoker.text.commands.output_patterns import expand_patterns, from_slurm
from stoker.text.slurm.slurm_options import Options, parse_srun

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str] | None = None) -> int:
    try:
        options, command = parse_srun(sys.argv[1:] if arguments is None else arguments)
        return _run(dict(options), options, command)
    except UsageError as error:
        print(f"srun: error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"srun: hint: {error.hint}", file=sys.stderr)
        return 1


def _run(given: dict[str, str], options: Options, command: list[str]) -> int:
    if not command:
        raise UsageError("no command given")
    for name in ("multi-prog", "container", "het-group"):
        if name in given:
            raise UsageError(f"--{name} is not supported on one host")
    if given.get("nodes", "1").partition("-")[0] != "1":
        raise UsageError(f"cannot use {given['nodes']} nodes: there is only this host")
    tasks = _count(given, "ntasks", os.environ.get("SLURM_NTASKS", "1"))
    environments = [_environment(given, options, task, tasks) for task in range(tasks)]
    if "chdir" in given:
        try:
            os.chdir(given["chdir"])
        except OSError as error:
            raise UsageError(
                f"cannot change to the folder `{given['chdir']}`: {error.strerror}"
            ) from None
    if tasks == 1:
        _redirect(given, 0)
        return _exec(command, environments[0])
    return _run_tasks(given, command, environments)


def _count(given: dict[str, str], name: str, default: str) -> int:
    text = given.get(name, default)
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10_000):
        raise UsageError(f"`--{name}={text}` is not a valid number of tasks")
    return int(text)


def _environment(given: dict[str, str], options: Options, task: int, tasks: int) -> dict[str, str]:
    env = dict(os.environ)
    for name, value in options:
        if name == "export":
            for pair in value.split(","):
                key, equals, content = pair.partition("=")
                if equals:
                    env[key] = content
    env |= {
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task),
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
    }
    if "cpus-per-task" in given:
        env["SLURM_CPUS_PER_TASK"] = given["cpus-per-task"]
    per_task = given.get("gpus-per-task", env.get("SLURM_GPUS_PER_TASK", "")).rpartition(":")[2]
    gpus = [gpu for gpu in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if per_task.isdigit() and int(per_task) and len(gpus) >= int(per_task) * tasks:
        own = ",".join(gpus[task * int(per_task) : (task + 1) * int(per_task)])
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            env[name] = own
    return env


def _redirect(given: dict[str, str], task: int) -> None:
    """Open the files of --input, --output and --error, with Slurm's patterns in their names."""
    streams = (("input", 0, os.O_RDONLY), ("output", 1, os.O_WRONLY), ("error", 2, os.O_WRONLY))
    for name, descriptor, mode in streams:
        path = given.get(name)
        if path is None or path in ("all", "none"):
            continue
        if mode == os.O_WRONLY:
            path, mode = _expand(path, task), os.O_WRONLY | os.O_CREAT
            mode |= os.O_APPEND if given.get("open-mode") == "append" else os.O_TRUNC
        try:
            opened = os.open(path, mode, 0o666)
        except OSError as error:
            raise UsageError(f"cannot open `{path}`: {error.strerror}") from None
        os.dup2(opened, descriptor)
        os.close(opened)
        if name == "output" and "error" not in given:
            os.dup2(1, 2)


def _expand(path: str, task: int) -> str:
    env = os.environ
    text = path.replace("%t", str(task)).replace("%s", "0")
    values = {
        "j": env.get("SLURM_JOB_ID", "0"),
        "x": env.get("SLURM_JOB_NAME", ""),
        "A": env.get("SLURM_ARRAY_JOB_ID") or env.get("SLURM_JOB_ID", "0"),
        "a": (index := env.get("SLURM_ARRAY_TASK_ID", "")),
        "b": index[-1:],
        "u": env.get("SLURM_JOB_USER", ""),
        "N": env.get("SLURMD_NODENAME", ""),
    }
    return expand_patterns(from_slurm(text, is_array=bool(index)), values.__getitem__)


def _exec(command: list[str], env: dict[str, str]) -> int:
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        print(f"srun: error: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def _run_tasks(
    given: dict[str, str], command: list[str], environments: list[dict[str, str]]
) -> int:
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: object) -> None:
        for child in children:
            child.send_signal(number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    try:
        for task, env in enumerate(environments):
            children.append(
                subprocess.Popen(
                    command,
                    env=env,
                    stdin=None if task == 0 else subprocess.DEVNULL,
                    preexec_fn=lambda task=task: _redirect(given, task),
                )
            )
    except (OSError, subprocess.SubprocessError) as error:
        for child in children:
            child.terminate()
            child.wait()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        print(f"srun: error: {command[0]}: {reason}", file=sys.stderr)
        return 127
    codes = [child.wait() for child in children]
    return max(128 - code if code < 0 else code for code in codes)


if __name__ == "__main__":
    raise SystemExit(main())
