"""A real Ray cluster for tests: several nodes with fake GPUs on loopback.

    with RayCluster(nodes=3) as cluster:
        subprocess.run([sys.executable, "program.py"], env=os.environ | cluster.environment())

A program with that environment connects with `ray.init()`. Each node is a host of its own
(`SimulatedHost`) with its own loopback address: tasks and actors see only processes of their node,
and everything ends with the test process. All nodes share the file system, except for the folder
with Ray's sockets. A driver outside of the cluster uses the raylet of the head, as drivers do on
the head of a real cluster. Ray listens on all addresses of this host; a random token protects it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from tests.engines.loopback import ClaimedPorts, free_network
from tests.engines.simulated_host import SimulatedHost, has_namespaces
from tests.lab import wait_until

# Ray names its settings RAY_ and the name in its source.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "180",  # the default is too short on a loaded machine
    # A node is dead when it has not answered for about 2 s, not 30 s or more.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    # Start workers when they are needed, not one per CPU with the first driver.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}

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


def has_ray() -> bool:
    """Whether this user can start a cluster: Ray is installed, and namespaces are allowed."""
    return find_spec("ray") is not None and has_namespaces()


class RayCluster:
    """One cluster. Keyword arguments such as RAY_health_check_period_ms are settings of Ray."""

    def __init__(self, *, nodes: int = 3, cpus: int = 8, gpus: int = 4, **settings: str) -> None:
        """Describe a cluster; nothing is started. Node 0 is the head."""
        self._count, self._cpus, self._gpus = nodes, cpus, gpus
        self._settings = _SETTINGS | settings
        self._token = secrets.token_hex(16)
        # Short: the path of a socket may have only 107 bytes, and Ray adds about 60.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))
        self._network = free_network()
        self._claimed = ClaimedPorts(self.node_address(0), 2)
        self._port, self._dashboard_port = self._claimed.ports
        self._hosts: dict[int, SimulatedHost] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- clients -------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """What `ray.init` takes as its address."""
        return f"{self.node_address(0)}:{self._port}"

    def node_address(self, node: int) -> str:
        """The address of a node, by which `ray.nodes()` names it."""
        return f"{self._network}.{node + 1}"

    def environment(self) -> dict[str, str]:
        """What a program needs to connect with `ray.init()`; add it to an environment."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def client_environment(self) -> dict[str, str]:
        """The environment of this process for clients, without settings of an outer Ray."""
        outer = ("RAY_", "STOKER_", "CUDA_VISIBLE_DEVICES")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(outer)}
        return kept | self.environment()

    def run_python(self, code: str) -> str:
        """Run Python code in a new process that must succeed; its stdout."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.client_environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    # -- nodes ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes; returns when they are registered."""
        nodes = [self._start_node() for _ in range(self._count)]
        for node in nodes:
            self._wait_for(node)

    def add_node(self, *hidden: Path) -> int:
        """Add a node; returns its number when it is registered. It sees `hidden` folders empty."""
        node = self._start_node(*hidden)
        self._wait_for(node)
        return node

    def kill_node(self, node: int) -> None:
        """Kill all processes of a node at once, workers included, as a power failure does."""
        self._hosts.pop(node).stop()

    def nodes(self) -> list[int]:
        """Numbers of the nodes that were not killed."""
        return list(self._hosts)

    def host(self, node: int) -> SimulatedHost:
        """The host of a node, to look at its processes or to run a program there."""
        return self._hosts[node]

    def clean(self) -> None:
        """End what a test left: nodes that it added, and actors, which would keep GPUs."""
        for node in self.nodes():
            if node >= self._count:
                self.kill_node(node)
        self.run_python(_KILL_ACTORS)

    def stop(self) -> None:
        for host in self._hosts.values():
            host.stop()
        self._hosts = {}
        self._claimed.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, node: int) -> str:
        """What `ray start` printed on a node."""
        return (self.folder / f"node{node}.log").read_text()

    def _start_node(self, *hidden: Path) -> int:
        node = len(list(self.folder.glob("node*.log")))
        sockets, own = self.folder / "ray", self.folder / f"node{node}"
        sockets.mkdir(exist_ok=True)
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        words += [f"--node-ip-address={self.node_address(node)}", "--include-log-monitor=false"]
        words += [f"--num-cpus={self._cpus}", f"--num-gpus={self._gpus}"]
        words += ["--object-store-memory=80000000", "--disable-usage-stats", "--log-style=record"]
        if node == 0:
            words += ["--head", f"--port={self._port}", f"--temp-dir={sockets}", "--no-monitor"]
            words += ["--include-dashboard=false", f"--dashboard-port={self._dashboard_port}"]
            self._hosts[node] = SimulatedHost(f"ray{node}")
        else:
            words += [f"--address={self.address}"]
            own.mkdir()
            mounts = {sockets: own}  # the head tells all nodes its path; each has other sockets
            for number, folder in enumerate(hidden):
                mounts[folder] = self.folder / f"empty{node}-{number}"
                mounts[folder].mkdir()
            self._hosts[node] = SimulatedHost(f"ray{node}", mounts=mounts)
        with open(self.folder / f"node{node}.log", "wb") as log:
            env = self.client_environment() | self._settings
            self._hosts[node].start(words, env, log)
        return node

    def _wait_for(self, node: int) -> None:
        wait_until(
            lambda: "Ray runtime started" in self.log(node) or not self._hosts[node].processes(),
            f"node {node} of Ray",
        )
        assert "Ray runtime started" in self.log(node), self.log(node)
