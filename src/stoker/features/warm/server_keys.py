"""Which environment variables a fork server shares with the jobs that it starts.

A module may read any variable when it is imported, e.g. OMP_NUM_THREADS, so jobs share a server
only if their environments are equal, apart from the variables below. Those differ between jobs, or
between the shells that submitted them, and each job gets its own.
"""

from __future__ import annotations

from stoker.engine.supervisor.spawn import Environment

_PREFIXES = (b"STOKER_", b"SLURM_", b"SSH_", b"TMUX", b"VSCODE_", b"CUDA_MPS_")
_FAILPOINTS = b"STOKER_FAILPOINT"  # of tests
_NAMES = frozenset(
    b"CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES"
    b" MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK NODE_RANK LOCAL_WORLD_SIZE"
    b" _ SHLVL OLDPWD COLUMNS LINES WINDOWID XDG_SESSION_ID STY WINDOW TERM_SESSION_ID".split()
)


def server_environment(env: Environment) -> Environment:
    """The environment of a server for jobs with `env`. No GPU is visible in it."""
    shared = {
        key: value
        for key, value in env.items()
        if key not in _NAMES and (not key.startswith(_PREFIXES) or key.startswith(_FAILPOINTS))
    }
    shared[b"CUDA_VISIBLE_DEVICES"] = shared[b"HIP_VISIBLE_DEVICES"] = b""
    return shared
