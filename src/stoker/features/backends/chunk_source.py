"""The jobs of a chunk as the source of a foreground run."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice

from stoker.engine.model import Context, Device, HostResources, JobSpec
from stoker.engine.snapshot_context import original_folder
from stoker.engine.store.submit import Copied, Submission
from stoker.engine.supervisor.logs import job_folder
from stoker.errors import Unavailable
from stoker.features.backends.chunk_files import (
    JOBS,
    ChunkJob,
    Header,
    LineReader,
    from_line,
    read_contexts,
)
from stoker.features.backends.chunks import Candidate, needed_seconds
from stoker.fields import from_fields
from stoker.text.plurals import plural

_BLOCK = 256  # jobs that are recorded in the worker's database at a time
# Variables of the engine that a program may expect.
_ENGINE_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "RAY_")
# Left by our call of sbatch: these would change what `srun` and `squeue` do in a job.
_NOT_PASSED = frozenset(
    (
        "SLURM_EXPORT_ENV",
        "SLURM_GET_USER_ENV",
        "SLURM_TIME_FORMAT",
        "SLURM_BITSTR_LEN",
    )
)
# Of the batch step and of the array of allocations. A job that has them seems to be a task that
# `srun` started: Lightning then expects as many tasks as GPUs.
_OF_TASKS = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_STEP",
    "SLURM_ARRAY_",
)


class ChunkSource:
    descriptor = None

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lines = LineReader(os.path.join(folder, JOBS))
        self._jobs: dict[int, ChunkJob] = {}  # all jobs that have not ended
        self._unread: dict[int, None] = {}  # in order; not in the worker's database yet
        self._reading: list[ChunkJob] = []
        self._skipped: set[int] = set()
        self._is_closed = False
        self._contexts: dict[int, Context] = {}
        self._devices: tuple[Device, ...] = ()
        self._refuse: Callable[[int, int, str], None] | None = None
        self.longest = 0.0  # the longest expected duration of a job, seconds
        first = self._lines.read()
        if not first:
            raise Unavailable(f"there are no jobs in `{folder}`")
        self.header = from_fields(Header, first[0])
        self._add(first[1:])

    def skip(self, jobs: Iterable[int]) -> None:
        """Do not run these jobs."""
        self._skipped.update(jobs)
        for job in self._skipped & self._jobs.keys():
            self._jobs.pop(job)
            self._unread.pop(job, None)

    def prepare(self, devices: tuple[Device, ...], refuse: Callable[[int, int, str], None]) -> None:
        """`refuse(job, attempt, why)` is called for jobs that cannot run on these devices."""
        self._devices, self._refuse = devices, refuse

    @property
    def max_gpus(self) -> int:
        return max((job.spec.request.gpus for job in self._jobs.values()), default=1)

    @property
    def host_size(self) -> HostResources:
        """The cores and the memory that its jobs declare; the allocation has them once."""
        requests = [job.spec.request for job in self._jobs.values()]
        return HostResources(
            cores=max((request.cpus for request in requests), default=0) or None,
            memory=max((request.host_memory or 0 for request in requests), default=0) or None,
        )

    def refresh(self) -> None:
        """Read jobs that the driver has added."""
        if not self._is_closed:
            self._add(self._lines.read())

    def _add(self, lines: list[dict[str, object]]) -> None:
        for line in lines:
            if line.get("end"):
                self._is_closed = True
                continue
            job = from_line(line)
            if job.job in self._skipped:
                continue
            self._jobs[job.job] = job
            self._unread[job.job] = None
            known = Candidate(id=job.job, seconds=job.estimate, time_limit=job.spec.time_limit)
            self.longest = max(self.longest, needed_seconds(known))

    # -- the source ------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        return self._is_closed and not self._unread

    @property
    def is_ready(self) -> bool:
        return bool(self._unread)

    def read(self) -> list[JobSpec]:
        taken = list(islice(self._unread, _BLOCK))
        self._reading = []
        specs = []
        for id in taken:
            del self._unread[id]
            job = self._jobs[id]
            gpus = job.spec.request.gpus
            if gpus > len(self._devices):
                assert self._refuse is not None
                has = plural(len(self._devices), "GPU")
                self._refuse(
                    id, job.attempt, f"it needs {plural(gpus, 'GPU')}, but the allocation has {has}"
                )
                del self._jobs[id]
                continue
            self._reading.append(job)
            specs.append(self._spec(job))
        return specs

    def _spec(self, job: ChunkJob) -> JobSpec:
        request = job.spec.request._replace(nodes=1)
        if not any(device.memory for device in self._devices):
            request = request._replace(memory=None, is_auto=False, min_memory=None)
        folder = job_folder(self.header.files, job.job)
        os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
        if job.saves_checkpoints:
            own = dict(job.spec.variables).get("STOKER_CHECKPOINT_DIR")  # of a trial
            os.makedirs(own or f"{folder}/checkpoints", 0o700, exist_ok=True)
        spec = job.spec._replace(context=self._context(job.context), request=request)
        if "SLURM_JOB_ID" in os.environ:
            name = spec.name or os.path.basename(spec.argv[0].partition(" ")[0])
            spec = spec._replace(variables=(("SLURM_JOB_NAME", name), *spec.variables))
        return self._on_all_nodes(spec) if self.header.launches_everywhere else spec

    def _on_all_nodes(self, spec: JobSpec) -> JobSpec:
        """The job as one `srun` that starts its command on each node of the allocation."""
        from stoker.engine.devices.leases.port_lease import take_port
        from stoker.features.backends.node_rank import rank_words

        own = dict(spec.context.env) | dict(spec.variables)
        port = int(own["MASTER_PORT"]) if "MASTER_PORT" in own else take_port(takes_lease=False)[0]
        shell = spec.context.shell if spec.shell else None
        words = rank_words(
            python=sys.executable,
            exit_file=os.path.join(self._folder, "exit"),
            address=own.get("MASTER_ADDR") or _own_address(),
            port=port,
            nodes=self.header.nodes,
            words=spec.argv,
            shell=shell,
            cpus=spec.request.cpus,
        )
        return spec._replace(argv=words, shell=False, time_limit=None)  # multi_node_stops.py

    def _context(self, id: int) -> Context:
        if id not in self._contexts:
            has_tasks = self.header.is_script or self.header.launches_everywhere
            own = {
                key: value
                for key, value in os.environ.items()
                if key.startswith(_ENGINE_PREFIXES)
                and key not in _NOT_PASSED
                and (has_tasks or not key.startswith(_OF_TASKS))
            }
            for known, context in read_contexts(self._folder).items():
                env = {
                    key: value for key, value in context.env if not key.startswith(_ENGINE_PREFIXES)
                }
                if "SLURM_JOB_ID" in own:  # sbatch was called in another folder
                    own["SLURM_SUBMIT_DIR"] = original_folder(context)
                merged = tuple({**env, **own}.items())
                self._contexts.setdefault(known, context._replace(env=merged))
        return self._contexts[id]

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        """Record the jobs that were read last, under their ids in the queue."""
        copies = [
            Copied(
                id=job.job,
                attempts=job.number - 1,
                batch=job.batch,
                batch_index=job.batch_index,
                code=job.code,
            )
            for job in self._reading
        ]
        with submission.db.transaction():
            submission.insert_copies(list(zip(specs, copies, strict=True)), time.time())

    # -- what became of them -----------------------------------------------------------------------

    def attempt_of(self, job: int) -> int:
        return self._jobs[job].attempt

    def time_limit_of(self, job: int) -> float | None:
        return self._jobs[job].spec.time_limit

    def next_jobs(self, job: int, count: int) -> list[int]:
        """Jobs that probably start next: the following ones in the order of the chunk."""
        following = (id for id in self._jobs if id > job)
        return list(islice(following, count))

    def finished(self, job: int) -> None:
        self._jobs.pop(job, None)

    def withdraw(self, job: int) -> bool:
        """Forget a job that the loop does not know yet; False if it knows it."""
        if job not in self._unread:
            return False
        del self._unread[job], self._jobs[job]
        return True

    def unfinished(self) -> list[int]:
        return list(self._jobs)


def _own_address() -> str:
    """The name of this node, if the other nodes can resolve it, else its hostname."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return socket.gethostname()
    return name
