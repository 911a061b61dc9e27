"""Start the command of a job on several nodes: once on each, with its rank.

    python -m stoker.backends.node_rank ADDRESS PORT NODES SHELL|- WORDS...

`srun` starts this process on every node of an allocation. It sets the variables of distributed
training and becomes the command. SHELL runs a single word as shell text; `-`: WORDS are arguments.
"""

from __future__ import annotations

import os
import sys

from stoker.supervisor.distributed import distributed_environment


def rank_words(
    python: str, address: str, port: int, nodes: int, words: tuple[str, ...], shell: str | None
) -> tuple[str, ...]:
    """The arguments of `srun` that start a command on all nodes of this allocation."""
    # One task on each node, which may use all its GPUs; all end when one fails.
    srun = (
        "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        "--kill-on-bad-exit=1", "--export=ALL", "--mpi=none", "--quiet",
    )  # fmt: skip
    module = (python, "-P", "-m", "stoker.backends.node_rank")
    return (*srun, *module, address, str(port), str(nodes), shell or "-", *words)


def main(arguments: list[str]) -> None:
    address, port, nodes, shell, *words = arguments
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    env = {
        **os.environ,
        **distributed_environment(
            rank=rank,
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
    if shell != "-":
        os.execvpe(shell, [shell, "-c", words[0]], env)
    try:
        os.execvpe(words[0], words, env)
    except OSError as error:
        print(f"stoker: cannot start `{words[0]}`: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
