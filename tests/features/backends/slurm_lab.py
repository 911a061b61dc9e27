"""A lab with a Slurm backend: `lab.submit("--on", "lab", ...)` runs jobs on a test cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stoker.client.queue import Queue
from stoker.engine.supervisor import job_processes
from stoker.features.artifacts.verbs.pull import files_to_pull
from stoker.settings import Settings
from tests.engines.slurm_cluster import SlurmCluster
from tests.lab import Lab, wait_until

BACKEND = "lab"
ACTIVE = {"queued", "submitted", "starting", "running", "stopping"}


class SlurmLab(Lab):
    """A queue on this host, with the cluster as its backend `lab`."""

    def __init__(
        self, folder: Path, cluster: SlurmCluster, *options: str, devices: int = 2, **env: str
    ) -> None:
        super().__init__(folder, devices, **cluster.environment(), **env)
        self.cluster = cluster
        self.state_dir.mkdir(mode=0o700)
        cluster.hide(self.state_dir)  # nodes see only the folder of the backend
        self.files = folder / "files"
        self.add_backend(*options)

    def add_backend(self, *options: str) -> None:
        words = [word for option in options for word in ("--option", option)]
        self.ok("backend", "add", BACKEND, "slurm", "--folder", str(self.files), *words)

    def submit_on(self, *args: str, **env: str) -> int:
        """Submit one job to the cluster; its id."""
        return self.submit("--on", BACKEND, *args, **env)

    def submit_lines(self, lines: list[str], *args: str, **kwargs: Any) -> list[int]:
        """Submit a job for each line to the cluster; their ids."""
        words = ("submit", "-q", "--on", BACKEND, *args, "--file", "-")
        return [int(id) for id in self.ok(*words, input="\n".join(lines), **kwargs).split()]

    # -- what is known ---------------------------------------------------------------------------

    def allocations(self) -> list[tuple[str, str | None, str | None]]:
        """State, Slurm id and reason of all allocations."""
        return self.rows("SELECT state, engine_id, reason FROM allocations ORDER BY id")

    def engine_ids(self) -> list[str]:
        """The Slurm ids of allocations that have not ended."""
        return [id for state, id, _ in self.allocations() if id is not None and state != "ended"]

    def wait_submitted(self, count: int = 1) -> list[str]:
        """Wait until this many allocations are known to Slurm; their ids."""
        wait_until(lambda: len(self.engine_ids()) >= count, f"{count} allocations")
        return self.engine_ids()

    def problem(self) -> str | None:
        """What is wrong with the backend."""
        problem: str | None = self.rows("SELECT problem FROM backends")[0][0]
        return problem

    def driver_pid(self) -> int | None:
        """The process that drives the backend."""
        for pid in job_processes.children(self.daemon_pid() or 0):
            try:
                if b"stoker.features.backends.driver" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
            except OSError:
                continue
        return None

    def kill_backend_driver(self) -> None:
        wait_until(self.driver_pid, what="the driver")
        self._kill(self.driver_pid, 9)

    def wait_for(self, job: int, *states: str) -> None:
        try:
            wait_until(lambda: self.state(job) in states, f"job {job} {states}")
        except AssertionError as error:
            found = f"{self.job(job)}\n{self.allocations()}\n{self.daemon_log()}"
            raise AssertionError(f"{error}\n{found}") from None

    def finish(self) -> None:
        """Keep a daemon running until all jobs have ended."""

        def is_finished() -> bool:
            if self.daemon_pid() is None:
                self.run("daemon", "start")
            counts = self.rows(
                "SELECT count(*) FROM jobs WHERE state IN"
                " ('queued', 'submitted', 'starting', 'running', 'stopping')"
            )
            return bool(counts[0][0] == 0)

        try:
            wait_until(is_finished, "all jobs final")
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{self.states()}\n{self.allocations()}\n{self.daemon_log()}"
            ) from None

    def daemon_log(self) -> str:
        path = self.state_dir / "daemon.log"
        return path.read_text()[-4000:] if path.exists() else ""

    def close(self) -> None:
        super().close()
        names = self.rows("SELECT DISTINCT token FROM allocations WHERE state != 'ended'")
        for (token,) in names:
            self.cluster.try_run("scancel", "--signal=KILL", "--full", f"--name=stoker-{token}")
            self.cluster.try_run("scancel", f"--name=stoker-{token}")


class Executions:
    """A file to which jobs append a line with their id and attempt when they run."""

    def __init__(self, lab: SlurmLab) -> None:
        self._lab = lab
        self.path = lab.folder / "executions"
        self.path.touch()

    def command(self, then: str = "") -> str:
        return f'echo "$STOKER_JOB_ID $STOKER_ATTEMPT" >> {self.path}; {then}'.rstrip("; ")

    def lines(self) -> list[tuple[int, int]]:
        found = (line.split() for line in self.path.read_text().splitlines())
        return [(int(job), int(attempt)) for job, attempt in found]

    def check(self, jobs: list[int], *, states: tuple[str, ...] = ("done",)) -> None:
        """Every attempt that ran is recorded once; every job ran, and ended in a given state."""
        ran = sorted(self.lines())
        assert len(set(ran)) == len(ran), f"an attempt ran twice: {ran}"
        recorded = set(self._lab.rows("SELECT job, number FROM attempts"))
        assert set(ran) <= recorded, f"not recorded: {set(ran) - recorded}"
        found = dict(self._lab.rows("SELECT id, state FROM jobs"))
        wrong = {job: found[job] for job in jobs if found[job] not in states}
        assert not wrong, f"{wrong}\n{self._lab.daemon_log()}"
        done = {job for job in jobs if found[job] == "done"}
        assert done <= {job for job, _ in ran}, "a job is done that did not run"

    def check_once(self, jobs: list[int]) -> None:
        """Every job ran exactly once."""
        self.check(jobs)
        assert sorted(job for job, _ in self.lines()) == sorted(jobs)


def check_trial_files(lab: Lab, sweep: str) -> None:
    """Trials with x=1 and 2 wrote x to m, d and checkpoints/c: `pull` and `show` find them."""
    queue = Queue(Settings(state_dir=str(lab.state_dir)))
    try:
        jobs = queue.select([f"sweep:{sweep}"])
        assert [lab.state(job) for job in jobs] == ["done"] * 2
        for value, job in enumerate(jobs, 1):
            found = {file.name: file.path for file in files_to_pull(queue, [job])}
            for name in ("m", "d", "checkpoints/c"):
                assert Path(found[f"{job}/output/{name}"] or "").read_text() == f"{value}\n"
            assert "checkpoints" in lab.ok("show", str(job))
    finally:
        queue.close()


def worker_pids(cluster: SlurmCluster) -> list[int]:
    """PIDs of the workers on all nodes of a cluster."""
    found = []
    for node in cluster.node_names:
        for pid in cluster.host(node).processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"stoker.features.backends.worker" in words:
                found.append(pid)
    return found


def end_allocations(cluster: SlurmCluster) -> None:
    """Cancel everything that is left on a cluster, and make all nodes available."""
    cluster.try_run("scancel", "--me")
    wait_until(lambda: cluster.run("squeue", "-h") == "", "the end of all jobs of the cluster")


def set_failpoint(lab: Lab, point: str, nth: int = 1) -> Path:
    """Kill the process that passes this failpoint, once; the file is gone afterwards."""
    once = lab.folder / "once"
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": f"{point}:{nth}", "STOKER_FAILPOINT_ONCE": os.fspath(once)}
    return once
