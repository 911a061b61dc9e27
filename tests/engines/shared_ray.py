"""One Ray cluster for all test processes of a run, because its start takes many seconds.

The first test process that needs it starts this module as a program, which owns the cluster. Each
test process holds a shared lock on a file; when the last one has released it, or was killed, the
owner gets the exclusive lock and ends the cluster.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engines.ray_cluster import RayCluster
from tests.lab import wait_until

_ROOT = Path(__file__).parents[2]
_USERS, _START, _TEST = "ray.users", "ray.start", "ray.test"
_DESCRIPTION, _LOG = "ray.json", "ray.log"

# Actors that outlive their driver would keep GPUs from the next test.
_KILL_ACTORS = """
import ray, time
ray.init(log_to_driver=False)
for actor in ray.util.list_named_actors(all_namespaces=True):
    try:
        ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))
    except ValueError:
        pass  # it has ended in the meantime
while ray.available_resources().get("GPU") != ray.cluster_resources().get("GPU"):
    time.sleep(0.05)
"""


@contextmanager
def lock(path: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, kind)
        yield


@contextmanager
def shared_ray(folder: Path) -> Iterator[dict[str, Any]]:
    """The description of a running cluster, which does not end before the block."""
    description = folder / _DESCRIPTION
    with lock(folder / _USERS, fcntl.LOCK_SH):
        with lock(folder / _START):
            if not description.exists():
                # It is not our child: it may outlive us.
                program = [sys.executable, "-m", "tests.engines.shared_ray", str(folder)]
                subprocess.run(["setsid", "--fork", *program], cwd=_ROOT, check=True)
                wait_until(description.exists, 150, "the shared Ray cluster")
        found: dict[str, Any] = json.loads(description.read_text())
        assert "error" not in found, found["error"]
        yield found


@contextmanager
def exclusive_use(folder: Path, description: dict[str, Any]) -> Iterator[RayCluster]:
    """The cluster for one test: no other test uses it, and nothing is left on it afterwards."""
    with lock(folder / _TEST):
        cluster = RayCluster.attach(description)
        try:
            yield cluster
        finally:
            cluster.stop()
            cluster.run_python(_KILL_ACTORS)


def main(folder: Path) -> None:
    cluster = RayCluster()
    try:
        try:
            cluster.start()
            found = cluster.describe()
        except AssertionError as error:
            found = {"error": str(error)}
        temporary = folder / f"{_DESCRIPTION}.new"
        temporary.write_text(json.dumps(found))
        temporary.rename(folder / _DESCRIPTION)
        with lock(folder / _USERS):
            (folder / _DESCRIPTION).unlink()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
