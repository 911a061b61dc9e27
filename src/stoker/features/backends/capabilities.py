"""What each kind of backend can do with a job."""

from __future__ import annotations

from stoker.engine.model import LOCAL
from stoker.record import Record

SLURM = "slurm"
RAY = "ray"


class Capabilities(Record):
    """`refused` maps job options that a backend cannot satisfy to the reason.

    `mem_auto` is the option `mem` with the value `auto`; `stdout` and `stderr` are refused only if
    their paths contain `%N`.
    """

    refused: dict[str, str]
    nodes: bool  # one job on several nodes
    takes_directives: bool = False  # options of #SBATCH scripts are passed on
    needs_shared_files: bool = False  # the folders of jobs must be on a shared file system


CAPABILITIES = {
    LOCAL: Capabilities(refused={}, nodes=False),
    SLURM: Capabilities(
        refused={
            "gpu_ids": "Slurm chooses the GPUs",
            "prefer": "Slurm chooses the GPUs",
            "gpu_model": "Slurm selects GPU models by partition, constraint or gres type",
            "min_gpu_mem": "Slurm selects GPUs by partition, constraint or gres type",
            "mem_auto": "Slurm needs the size of the memory",
            "need": "counters belong to this host",
            "preemptible": "Slurm decides which jobs give way, by partition or QOS",
            "share": "Stoker starts MPS only on this host",
        },
        nodes=True,
        takes_directives=True,
        needs_shared_files=True,
    ),
    RAY: Capabilities(
        refused={
            "gpu_ids": "GPU indices differ from node to node",
            "prefer": "GPU indices differ from node to node",
            "min_gpu_mem": "Ray does not report the memory of GPUs",
            "cpus": "Stoker reserves only GPUs of Ray",
            "mem": "Stoker reserves only GPUs of Ray",
            "mem_auto": "Stoker reserves only GPUs of Ray",
            "need": "counters belong to this host",
            "preemptible": "Ray does not stop a job in favor of another one",
            "share": "Stoker starts MPS only on this host",
            "stdout": "Stoker opens the file before Ray chooses the node",
            "stderr": "Stoker opens the file before Ray chooses the node",
        },
        nodes=True,
    ),
}
KINDS = tuple(CAPABILITIES)
