"""What each kind of backend can do, and its options: `--option K=V` of backends and jobs."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.engine.model import LOCAL
from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.sizes import parse_size
from stoker.text.suggestions import nearest

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


# The option of jobs whose command runs only on the first node, like a batch script of Slurm.
FIRST_NODE = "launch=first"

# Options of Stoker itself; all others of a Slurm backend are options of sbatch.
OWN = {
    SLURM: {
        "python": "Python interpreter with Stoker on the nodes (default: that of the daemon)",
        "max-jobs": "most Slurm jobs at a time (default: 1000)",
        "gpu-type": "type of GPU to request, as in gres=gpu:TYPE:N",
        "launch": "first: run the command only on the first node, as sbatch does",
    },
    RAY: {
        "address": "address of the Ray cluster (default: $RAY_ADDRESS)",
        "token-file": "file with the authentication token of the cluster",
        "python": "Python interpreter with Stoker on the nodes (default: the one that runs Ray)",
        "idle": "seconds after which GPUs without jobs return to Ray (default: 60)",
        "node-folder": "folder for files of jobs on nodes that do not share them (default: in the"
        " temporary folder)",
        "max-size": "most that a job's folder may have to be sent to a node (default: 200M)",
        "shared": "whether all nodes see the same files: yes or no (default: found out)",
    },
}
# Options of sbatch that Stoker sets itself.
_RESERVED = frozenset((
    "array", "batch", "chdir", "comment", "dependency", "error", "export", "export-file", "gpus",
    "gpus-per-node", "gpus-per-task", "gres", "hold", "input", "job-name", "kill-on-invalid-dep",
    "no-requeue", "nodes", "open-mode", "output", "parsable", "quiet",
    "requeue", "signal", "test-only", "wait", "wrap",
))  # fmt: skip


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of Stoker and those of sbatch."""
    own = {key: value for key, value in options.items() if key in OWN[SLURM]}
    return own, {key: value for key, value in options.items() if key not in own}


def check_options(kind: str, options: Mapping[str, str]) -> None:
    """Raise UsageError for an option that a backend of this kind does not take."""
    for key, value in options.items():
        if not key or key.startswith("-") or any(char.isspace() for char in key):
            raise UsageError(
                f"`{key}` is not the name of an option", "write K=V, e.g. partition=gpu"
            )
        if kind == SLURM and key in _RESERVED:
            raise UsageError(
                f"the option `{key}` of sbatch is set by Stoker", "use the options of the job"
            )
        if kind == RAY and key not in OWN[RAY]:
            near = nearest(key, OWN[RAY])
            known = ", ".join(OWN[RAY])
            raise UsageError(
                f"`{key}` is not an option of a Ray backend",
                f"did you mean `{near}`?" if near else f"options: {known}",
            )
        if kind == RAY:
            _check_ray_option(key, value)
        if key == "max-jobs" and not (value.isdigit() and int(value)):
            raise UsageError(f"`max-jobs` must be a number from 1, not `{value}`")


def _check_ray_option(key: str, value: str) -> None:
    if key == "address" and value.startswith("ray://"):
        raise UsageError(
            f"`{value}` is an address of the Ray client, which is not supported",
            "run a node of the cluster on this host (ray start --address=HOST:6379 --num-gpus=0) "
            "and use address=HOST:6379",
        )
    if key == "shared" and value not in ("yes", "no"):
        raise UsageError(f"`shared` must be yes or no, not `{value}`")
    if key == "idle" and not (value.isdigit() and int(value)):
        raise UsageError(f"`idle` must be a number of seconds from 1, not `{value}`")
    if key == "max-size":
        parse_size(value)
    if key == "token-file" and not value.startswith(("/", "~/")):
        raise UsageError(f"`token-file` must be an absolute path, not `{value}`")
    if key == "node-folder" and not value.startswith("/"):
        raise UsageError(f"`node-folder` must be an absolute path, not `{value}`")
