"""A lab with a Ray backend: `lab.submit_on(...)` runs jobs on a Ray cluster of tests."""

from __future__ import annotations

from pathlib import Path

from tests.engines.ray_cluster import RayCluster
from tests.features.backends.slurm_lab import BACKEND, SlurmLab
from tests.lab import Lab


class RayLab(SlurmLab):
    """A queue on this host, with the cluster as its backend `lab`."""

    def __init__(
        self, folder: Path, ray: RayCluster, *options: str, devices: int = 2, **env: str
    ) -> None:
        client = {key: value for key, value in ray.environment().items() if key != "PATH"}
        Lab.__init__(self, folder, devices, **client, **env)
        self.ray = ray
        self.files = self.state_dir
        self.add_backend(f"node-folder={folder.parent}/nodes", *options)

    def add_backend(self, *options: str) -> None:
        words = [word for option in options for word in ("--option", option)]
        self.ok("backend", "add", BACKEND, "ray", *words)

    def close(self) -> None:
        Lab.close(self)  # actors of the queue end after the test (RayCluster.clean)
