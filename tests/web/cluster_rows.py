"""Records of a backend with nodes and jobs, written as its driver writes them; no engine runs.

    rows = ClusterRows(lab)
    waiting = rows.submitted("python train.py", reason="Priority")
    running = rows.started("python train.py", node="n2", node_gpus="0,1")

No daemon may run: its driver would ask an engine that does not exist.
"""

from __future__ import annotations

import time
import weakref
from pathlib import Path

from stoker.engine.daemon.finish_attempt import finish_attempt
from stoker.engine.daemon.gpus.gpu_usage import GpuUse
from stoker.engine.model import Context, JobSpec, Outcome, Request
from stoker.engine.store import attempts
from stoker.engine.store.database import open_database
from stoker.engine.store.submit import Submission
from stoker.engine.supervisor.logs import log_path
from stoker.features.backends import store as backends
from stoker.features.backends import store_allocations as allocations
from stoker.features.backends.nodes import DOWN, Node
from stoker.settings import Settings
from tests.lab import Lab

H100 = "NVIDIA H100"
NODES = (
    Node(name="n1", gpus=8, used_gpus=8, model=H100, gpu_memory=80 << 30, cpus=64),
    Node(name="n2", gpus=8, used_gpus=3, model=H100, gpu_memory=80 << 30, cpus=64),
    Node(name="n3", gpus=8, state=DOWN, model=H100, note="down: not responding"),
)


class ClusterRows:
    def __init__(self, lab: Lab, name: str = "lab", kind: str = "slurm") -> None:
        self.name = name
        self._lab = lab
        lab.state_dir.mkdir(mode=0o700, exist_ok=True)
        self.db = open_database(str(lab.state_dir))
        weakref.finalize(self, self.db.close)
        self._settings = Settings(state_dir=str(lab.state_dir))
        with self.db.transaction():
            backends.add(self.db, name, kind, {"partition": "gpu"}, None)
            backends.record_nodes(self.db, name, NODES, time.time())

    def set_problem(self, problem: str | None) -> None:
        with self.db.transaction():
            backends.record_problem(self.db, self.name, problem, time.time())

    # -- jobs ------------------------------------------------------------------------------------

    def queued(self, command: str, name: str | None = None, **request: object) -> int:
        """A job that was not handed over yet."""
        values = {"gpus": 1, **request}
        context = Context(cwd=str(self._lab.folder), env=(), umask=0o022, shell="/bin/sh")
        spec = JobSpec(
            argv=(command,),
            context=context,
            name=name,
            request=Request(backend=self.name, **values),  # type: ignore[arg-type]
        )
        return Submission(self.db).add([spec], time.time()).first

    def submitted(
        self, command: str, reason: str | None = "Priority", name: str | None = None,
        **request: object,
    ) -> int:  # fmt: skip
        """A job in the queue of the engine, as its job 4711."""
        job = self.queued(command, name, **request)
        self._hand_over(job, state=allocations.SUBMITTED, engine_id="4711", reason=reason)
        return job

    def started(
        self, command: str, node: str = "n2", node_gpus: str = "0,1", name: str | None = None,
        **request: object,
    ) -> int:  # fmt: skip
        """A running job."""
        job = self.queued(command, name, **request)
        attempt = self._hand_over(job, state=allocations.RUNNING, engine_id="4712", node=node)
        with self.db.transaction():
            attempts.record_start(self.db, attempt, 0, time.time() - 75, 0.0)
            allocations.record_place(self.db, attempt, node, node_gpus)
        path = Path(log_path(self._settings.state_dir, job, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"hello from {node}\n")
        return job

    def finished(self, command: str, exit_code: int = 0, **more: object) -> int:
        """A job that ran and ended."""
        job = self.started(command, **more)  # type: ignore[arg-type]
        attempt = int(str(self.db.value("SELECT attempt FROM jobs WHERE id = ?", (job,))))
        with self.db.transaction():
            outcome = Outcome(attempt, exit_code << 8, time.time())
            finish_attempt(self.db, self._settings, outcome, GpuUse(), time.time(), None)
        return job

    def _hand_over(self, job: int, **allocation: object) -> int:
        """queued -> submitted, with an allocation of its own; returns the attempt."""
        now = time.time()
        with self.db.transaction():
            attempt = allocations.take_attempt_ids(self.db, 1)
            id = allocations.add(self.db, self.name, f"token-{job}", 0, {}, now)
            claim = attempts.Claim(
                attempt=attempt, job=job, number=1, devices=(), memory=None, at=now, boot="",
            )  # fmt: skip
            assert attempts.claim(self.db, claim, id)
            allocations.update(self.db, id, **allocation)
        return attempt
