"""Start the command of a job on several nodes: once on each, with its rank.

    python -m stoker.features.backends.node_rank EXIT_FILE ADDRESS PORT NODES SHELL|- WORDS...

`srun` starts this process on every node of an allocation. It sets the variables of distributed
training and runs the command. SHELL runs a single word as shell text; `-`: WORDS are arguments.

When one process fails, `srun` kills the others and returns the largest exit code, that of a
killed one. So the first process that fails writes its code into EXIT_FILE.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from stoker.engine.supervisor.distributed import distributed_environment

# $1 is EXIT_FILE, the rest the command. The shell outlives signals that the command handles.
_WRAPPER = (
    'trap : TERM INT HUP USR1 USR2; f=$1; shift; "$@"; c=$?;'
    ' if [ $c != 0 ] && [ -s "$f" ]; then c=$(cat "$f"); fi; exit $c'
)
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def rank_words(
    python: str,
    exit_file: str,
    address: str,
    port: int,
    nodes: int,
    words: tuple[str, ...],
    shell: str | None,
    cpus: int = 0,
) -> tuple[str, ...]:
    """The command that starts `words` on all nodes of this allocation.

    `shell`: runs the single word of `words` as shell text; None: they are arguments. `cpus`: cores
    of each task, because `srun` does not take them from the allocation; 0: its default.
    """
    # One task on each node, which may use all its GPUs; all end when one fails.
    srun = (
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        "--export=ALL",
        "--mpi=none",
        "--quiet",
        *((f"--cpus-per-task={cpus}",) if cpus else ()),
    )
    module = (python, "-P", "-m", "stoker.features.backends.node_rank", exit_file)
    start = (*srun, *module, address, str(port), str(nodes), shell or "-", *words)
    return ("/bin/sh", "-c", _WRAPPER, "sh", exit_file, *start)


def main(arguments: list[str]) -> int:
    exit_file, address, port, nodes, shell, *words = arguments
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    env = {
        **os.environ,
        **distributed_environment(
            rank=int(os.environ.get("SLURM_PROCID", "0")),
            world_size=int(os.environ.get("SLURM_NTASKS", nodes)),
            local_rank=int(os.environ.get("SLURM_LOCALID", "0")),
            nodes=int(nodes),
            address=address,
            port=int(port),
        ),
        "STOKER_GPUS": visible,
        "NVIDIA_VISIBLE_DEVICES": visible or "void",
        "HIP_VISIBLE_DEVICES": visible,
    }
    for number in _PASSED_ON:  # Slurm sends them to the command too, which may save its work
        signal.signal(number, lambda *_: None)
    argv = words if shell == "-" else [shell, "-c", words[0]]
    try:
        code = subprocess.call(argv, env=env)
    except OSError as error:
        print(f"stoker: cannot start `{argv[0]}`: {error.strerror}", file=sys.stderr)
        code = 127
    code = 128 - code if code < 0 else code
    if code:
        _write_first(exit_file, code)
    return code


def _write_first(path: str, code: int) -> None:
    """Write the exit code, unless another process has written its own."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.write(descriptor, str(code).encode())
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
