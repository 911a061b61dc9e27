"""The environment variables of distributed training, as torchrun and `env://` expect them."""

from __future__ import annotations

# torchrun reads PET_MASTER_PORT instead of MASTER_PORT as the default of --master-port.
_OF_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")


def rendezvous_environment(address: str, port: int) -> dict[str, str]:
    """Where the processes of one job meet."""
    values = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    return values | {f"PET_{key}": values[key] for key in _OF_TORCHRUN}


def distributed_environment(
    rank: int, world_size: int, local_rank: int, nodes: int, address: str, port: int
) -> dict[str, str]:
    """The variables of one process of a job on several nodes.

    There is one process on each node unless the job starts more, so RANK is the number of the node.
    """
    return {
        **rendezvous_environment(address, port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "STOKER_NODES": str(nodes),
        "STOKER_NODE_RANK": str(rank),
    }
