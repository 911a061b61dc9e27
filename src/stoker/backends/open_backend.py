"""Open the backend of a row of the table `backends`."""

from __future__ import annotations

from stoker.backends.protocol import Backend
from stoker.core.backends.capabilities import SLURM
from stoker.settings import Settings
from stoker.store.backends import BackendRow


def open_backend(row: BackendRow, settings: Settings) -> Backend:
    """Return the backend. Raises Unavailable if a library that it needs is not installed."""
    if row.kind == SLURM:
        from stoker.backends.slurm.slurm_backend import SlurmBackend

        return SlurmBackend(row.name, row.options, row.environment)
    raise NotImplementedError(row.kind)
