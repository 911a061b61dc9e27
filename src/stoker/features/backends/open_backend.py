"""Open the backend of a row of the table `backends`."""

from __future__ import annotations

from stoker.features.backends.capabilities import RAY, SLURM
from stoker.features.backends.protocol import Backend
from stoker.features.backends.store import BackendRow
from stoker.settings import Settings


def open_backend(row: BackendRow, settings: Settings) -> Backend:
    """Return the backend. Its engine is contacted by its first method."""
    if row.kind == SLURM:
        from stoker.features.backends.slurm.slurm_backend import SlurmBackend

        return SlurmBackend(row.name, row.options, row.environment)
    if row.kind == RAY:
        from stoker.features.backends.ray.ray_backend import RayBackend

        return RayBackend(row.name, row.options, row.environment, row.folder or settings.state_dir)
    raise NotImplementedError(row.kind)
