"""A real Slurm cluster for tests: munge, one controller and several nodes with fake GPUs.

    with SlurmCluster(MinJobAge=2) as cluster:
        job = cluster.run("sbatch", "--parsable", "--gpus-per-node=1", "--wrap=env").strip()

Everything is in one private folder, with its own munge key and its own loopback ports, so that
several clusters can run at the same time, next to a Slurm of the host. The controller and each node
are hosts of their own (`SimulatedHost`): jobs see only processes of their node, `hostname` prints
the node's name, and everything ends with the test process. All hosts share the file system and the
network. Jobs find the cluster through SLURM_CONF, which slurmd passes on.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.engines import slurm_accounting
from tests.engines.loopback import LOCALHOST, ClaimedPorts
from tests.engines.simulated_host import SimulatedHost, has_namespaces, kill
from tests.lab import wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

_PRIVATE_VARIABLES = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SALLOC_")


def has_slurm() -> bool:
    """Whether this user can start a cluster: Slurm is installed, and namespaces are allowed."""
    return all(map(shutil.which, _PROGRAMS)) and has_namespaces()


class SlurmCluster:
    """One cluster. Keyword arguments in Slurm's own spelling are lines of slurm.conf."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        cpus: int = 8,
        gpus: int = 4,
        memory_mb: int = 8000,
        features: Mapping[str, str] | None = None,
        partitions: Mapping[str, str] | None = None,
        requeue_delay: int = 120,
        accounting: bool = False,
        **settings: str | int,
    ) -> None:
        """Describe a cluster; nothing is started.

        features -- features of nodes, e.g. {"n1": "a100,nvlink"}
        partitions -- names and options, e.g. {"main": "Default=YES", "low": "PriorityTier=1"}
        requeue_delay -- seconds until a requeued job is eligible again (5 or more). The same
            number limits the life of credentials, so a loaded machine needs more than 5.
        accounting -- start slurmdbd with its own database, for `sacct`, accounts and limits
        """
        self.node_names = [f"n{number + 1}" for number in range(nodes)]
        self._cpus, self._gpus, self._memory_mb = cpus, gpus, memory_mb
        self._features = features or {}
        self._partitions = partitions or {"main": "Default=YES MaxTime=INFINITE"}
        self._requeue_delay = requeue_delay
        self._accounting = accounting
        self._settings = settings
        # Short: the path of a socket may have only 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.folder.chmod(0o755)  # other users may submit
        self._ports = ClaimedPorts(LOCALHOST, 2 + len(self.node_names))
        self._hosts: dict[str, SimulatedHost] = {}
        self._hidden: list[Path] = []  # folders of the control host that nodes do not see
        self._daemons: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- clients -------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """What Slurm's programs need to find this cluster; add it to an environment."""
        return {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}

    def client_environment(self) -> dict[str, str]:
        """The environment of this process for clients, without options of an outer Slurm."""
        return {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(_PRIVATE_VARIABLES)
        } | self.environment()

    def try_run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a client program; its exit code and output."""
        return subprocess.run(
            argv,
            env=self.client_environment() | env,
            cwd=self.folder / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def run(self, *argv: str, **env: str) -> str:
        """Run a client program that must succeed; its stdout."""
        done = self.try_run(*argv, **env)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submit a shell script; returns the job's id. Output goes to `output(id)`."""
        words = ["sbatch", "--parsable", f"--output={self.folder}/work/%A_%a.out"]
        return self.run(*words, *options, f"--wrap={script}").strip()

    def output(self, job: str, task: int = 4294967294) -> str:
        """What a job (or a task of an array) printed so far."""
        path = self.folder / "work" / f"{job}_{task}.out"
        return path.read_text() if path.exists() else ""

    def state(self, job: str) -> str:
        """State of a job such as RUNNING; empty if the controller has forgotten it."""
        done = self.try_run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job)
        return done.stdout.strip()

    def wait_for_state(self, job: str, *states: str) -> None:
        wait_until(lambda: self.state(job) in states, f"job {job} {states}")

    def node_states(self) -> dict[str, str]:
        """State of each node, e.g. {"n1": "idle", "n2": "down*"}."""
        rows = self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return dict(row.split() for row in rows)

    def listings(self) -> int:
        """How many job listings (squeue) the controller has answered since it started."""
        text = self.run("sdiag")
        names = "REQUEST_JOB_INFO|REQUEST_JOB_INFO_SINGLE|REQUEST_JOB_USER_INFO"
        found = re.findall(rf"^\s*(?:{names})\s+\(\s*\d+\)\s+count:(\d+)", text, re.MULTILINE)
        return sum(map(int, found))

    # -- daemons -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; returns when all nodes are idle."""
        self._write_files()
        self._hosts = {name: self._new_host(name) for name in ("control", *self.node_names)}
        self.start_munge()
        if self._accounting:
            self.start_accounting()
        self.start_controller()
        for node in self.node_names:
            self.start_slurmd(node)
        self.wait_idle()

    def stop(self) -> None:
        """End every process of the cluster, jobs included, and delete its folder."""
        for host in self._hosts.values():
            host.stop()
        self._hosts, self._daemons = {}, {}
        self._ports.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_idle(self) -> None:
        """Wait until all nodes are idle."""
        expected = dict.fromkeys(self.node_names, "idle")
        try:
            wait_until(lambda: self._states_or_none() == expected, "idle nodes")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._states_or_none()}\n{self.logs()}") from None

    def _states_or_none(self) -> dict[str, str] | None:
        done = self.try_run("sinfo", "-h", "-N", "-o", "%N %T")
        rows = done.stdout.splitlines()
        return None if done.returncode else dict(row.split() for row in rows)

    def start_munge(self) -> None:
        run = self.folder / "run"
        words = ["munged", "--foreground", "--num-threads=2"]
        words += [f"--key-file={self.folder}/etc/munge.key", f"--socket={run}/munge.sock"]
        words += [f"--pid-file={run}/munged.pid", f"--seed-file={run}/munged.seed"]
        self._start("munged", "control", *words)
        wait_until(lambda: _accepts(run / "munge.sock"), what="munge to listen")

    def stop_munge(self) -> None:
        """Stop munge; after this, no client and no daemon can authenticate."""
        self._stop("munged", signal.SIGTERM)

    def start_accounting(self) -> None:
        """Start the database server and slurmdbd, which listens only on loopback."""
        words = slurm_accounting.database_command(self.folder)
        self._start("mariadbd", "control", *words)
        wait_until(lambda: _accepts(self.folder / "database" / "server.sock"), what="mariadbd")
        self._start("slurmdbd", "control", "slurmdbd", "-D")
        wait_until(lambda: _connects(self._ports.ports[1]), "slurmdbd to listen")
        # Fails if it exists, after a restart.
        self.try_run("sacctmgr", "-i", "add", "cluster", "test")

    def stop_accounting(self) -> None:
        """Stop slurmdbd; the controller keeps what it has to report, and `sacct` fails."""
        self._stop("slurmdbd", signal.SIGTERM)
        self._stop("mariadbd", signal.SIGTERM)

    def start_controller(self) -> None:
        """Start slurmctld with the state of its last run; returns when it answers."""
        self._start("slurmctld", "control", "slurmctld", "-D", "-i", "-f", self._conf())
        wait_until(lambda: self.try_run("scontrol", "ping").returncode == 0, "slurmctld")

    def stop_controller(self) -> None:
        """Stop slurmctld and let it save its state; jobs continue to run."""
        self._stop("slurmctld", signal.SIGTERM)

    def kill_controller(self) -> None:
        """Kill slurmctld; changes of the last seconds may be lost."""
        self._stop("slurmctld", signal.SIGKILL)

    def start_slurmd(self, node: str) -> None:
        """Start the daemon of a node, after `kill_node` on a new host."""
        if node not in self._hosts:
            self._hosts[node] = self._new_host(node)
        self._start(f"slurmd-{node}", node, "slurmd", "-D", "-N", node, "-f", self._conf())

    def kill_slurmd(self, node: str) -> None:
        """Kill only the daemon of a node; its jobs continue to run."""
        self._stop(f"slurmd-{node}", signal.SIGKILL)

    @contextmanager
    def paused_slurmd(self, node: str) -> Iterator[None]:
        """Stop the daemon of a node for a while: it sends no signals to jobs."""
        pid = self._daemons[f"slurmd-{node}"]
        os.kill(pid, signal.SIGSTOP)
        # nsenter, its parent, stops too, and continues it.
        parent = int(_stat(pid)[1])
        wait_until(lambda: _stat(parent)[0] == "T", what="the stop of nsenter")
        try:
            yield
        finally:
            os.kill(parent, signal.SIGCONT)

    def kill_node(self, node: str) -> None:
        """Kill the daemon of a node and all its jobs at once, as a power failure does."""
        self._hosts.pop(node).stop()
        self._daemons.pop(f"slurmd-{node}", None)

    def hide(self, folder: Path) -> None:
        """Hide a folder from all nodes, as one on a local disk of the login host is."""
        self._hidden.append(folder)
        for node in self.node_names:
            if node in self._hosts:
                self._hosts[node].hide(folder)

    def host(self, node: str) -> SimulatedHost:
        """The host of a node, to look at its processes or to run a program there."""
        return self._hosts[node]

    def drain(self, node: str) -> None:
        """Let running jobs finish and start no others."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")

    def down(self, node: str) -> None:
        """Declare a node dead: its jobs are requeued or fail at once."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def resume(self, node: str) -> None:
        self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def logs(self) -> str:
        """The logs of all daemons, for failure messages."""
        paths = sorted((self.folder / "log").glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def _new_host(self, name: str) -> SimulatedHost:
        host = SimulatedHost(name, mounts={Path("/etc/hosts"): self.folder / "etc" / "hosts"})
        for folder in filter(Path.exists, self._hidden if name in self.node_names else ()):
            host.hide(folder)
        return host

    def _start(self, name: str, host: str, *argv: str) -> None:
        assert name not in self._daemons, f"{name} is running"
        env = {"PATH": os.environ["PATH"], **self.environment()}
        env |= slurm_accounting.database_environment(self.folder)
        with open(self.folder / "log" / f"{name}.log", "ab") as log:
            self._daemons[name] = self._hosts[host].start(argv, env, log)

    def _stop(self, name: str, number: int) -> None:
        kill(self._daemons.pop(name), number)

    # -- files ---------------------------------------------------------------------------------

    def _conf(self) -> str:
        return self.environment()["SLURM_CONF"]

    def _write_files(self) -> None:
        for name in ("etc", "state", "log", "run", "dev", "work", *self._spool_folders()):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "work").chmod(0o1777)
        for number in range(self._gpus):
            # Slurm wants devices; these are clones of the null device.
            path = self.folder / "dev" / f"nvidia{number}"
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            path.chmod(0o666)
        key = self.folder / "etc" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        (self.folder / "etc" / "cgroup.conf").touch()
        (self.folder / "etc" / "gres.conf").write_text(self._gres_conf())
        (self.folder / "etc" / "slurm.conf").write_text(self._slurm_conf())
        if self._accounting:
            slurm_accounting.write_files(self.folder, self._ports.ports[1])
        # All names have the address that connections come from: srun listens on that of its name,
        # and slurmd connects back to where srun came from.
        own = f"{LOCALHOST} {' '.join(['control', *self.node_names])}\n"
        (self.folder / "etc" / "hosts").write_text(own + Path("/etc/hosts").read_text())

    def _spool_folders(self) -> list[str]:
        return [f"spool/{node}" for node in self.node_names]

    def _gres_conf(self) -> str:
        if not self._gpus:
            return ""
        nodes = ",".join(self.node_names)
        return f"NodeName={nodes} Name=gpu File={self.folder}/dev/nvidia[0-{self._gpus - 1}]\n"

    def _slurm_conf(self) -> str:
        folder = self.folder
        port, accounting_port, *node_ports = self._ports.ports
        settings: dict[str, str | int] = {
            "ClusterName": "test",
            "SlurmctldHost": f"control({LOCALHOST})",
            "SlurmctldPort": port,
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/run/munge.sock,cred_expire={self._requeue_delay}",
            "CredType": "cred/munge",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool/%n",
            "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/run/slurmd.%n.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SlurmctldTimeout": 10,
            "SlurmdTimeout": 5,
            # Clients try to reach a stopped controller for this time less 1 s; and how long until
            # a node is down depends on it: 28 s with the default of 10, 11 s with 2.
            "MessageTimeout": 5,
            "KillWait": 2,
            "MinJobAge": 300,
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "sched_min_interval=1000,batch_sched_delay=0,bf_interval=1",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "PriorityType": "priority/basic",
            "AccountingStorageType": "accounting_storage/none",
            "JobCompType": "jobcomp/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "MaxArraySize": 1001,
            "MaxJobCount": 20000,
            "GresTypes": "gpu",
            # The host need not have as many CPUs and as much memory as the nodes declare.
            "SlurmdParameters": "config_overrides",
            # Listen on the address of the own host name, which is loopback, not on all.
            "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
        }
        if self._accounting:
            settings |= slurm_accounting.settings(folder, accounting_port)
        lines = [f"{key}={value}" for key, value in (settings | self._settings).items()]
        for node, node_port in zip(self.node_names, node_ports, strict=True):
            lines.append(
                f"NodeName={node} NodeHostname={node} NodeAddr={LOCALHOST} Port={node_port}"
                f" CPUs={self._cpus} RealMemory={self._memory_mb} State=UNKNOWN"
                + (f" Gres=gpu:{self._gpus}" if self._gpus else "")
                + (f" Feature={self._features[node]}" if node in self._features else "")
            )
        for name, options in self._partitions.items():
            nodes = "" if "Nodes=" in options else "Nodes=ALL "
            lines.append(f"PartitionName={name} {nodes}State=UP {options}")
        return "\n".join(lines) + "\n"


def _stat(pid: int) -> list[str]:
    """State, parent and further fields of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def _connects(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((LOCALHOST, port)) == 0


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
