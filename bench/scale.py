"""A million short jobs on 64 nodes of 8 GPUs: the real driver, a simulated Slurm, virtual time.

    python -m bench.scale --jobs 1000000 --nodes 64 --gpus 8

Queue, division into chunks, chunk files, event files, records and polls are those of the product;
only the engine and the processes of jobs are simulated. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from stoker.engine.model import Context, JobSpec, Request
from stoker.engine.store import job_queries
from stoker.engine.store.database import open_database
from stoker.engine.store.submit import CHUNK, Submission
from stoker.features.backends import store as backends
from stoker.features.backends.chunk_files import EVENTS, JOBS, OWNER
from stoker.features.backends.driver import Driver
from stoker.features.backends.nodes import Node
from stoker.features.backends.protocol import (
    ENDED,
    PENDING,
    RUNNING,
    AllocationRequest,
    Batch,
    Limits,
    Status,
)
from stoker.features.backends.store_allocations import Allocation
from stoker.settings import Settings

_START_SECONDS = 1.0  # of a worker: the interpreter on a node
_JOB_SECONDS = 0.005  # that the worker needs between two jobs
_STARTS_PER_SECOND = 20  # of the scheduler of Slurm


class VirtualClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def wall(self) -> float:
        return self.now

    def mono(self) -> float:
        return self.now


class Task:
    """An allocation on the simulated cluster, with the jobs that it still runs."""

    def __init__(self, folder: str, engine_id: str) -> None:
        self.folder, self.engine_id = folder, engine_id
        self.state, self.node = PENDING, ""
        self.events: list[tuple[float, dict[str, object]]] = []
        self.written = 0


class SimulatedSlurm:
    """First come, first served on whole GPUs. Counts the requests that a controller would get."""

    linger_seconds = 0.0

    def __init__(
        self, clock: VirtualClock, nodes: int, gpus: int, seconds: float, seed: int
    ) -> None:
        self.name = "lab"
        self._clock, self._gpus, self._seconds = clock, gpus, seconds
        self._random = random.Random(seed)
        self._free = [f"n{node + 1}" for node in range(nodes) for _ in range(gpus)]
        self._names = [f"n{node + 1}" for node in range(nodes)]
        self._waiting: list[Task] = []
        self._tasks: dict[tuple[str, int], Task] = {}
        self._arrays = 0
        self._ran_until = clock.now
        self.requests: Counter[str] = Counter()
        self.by_minute: Counter[int] = Counter()
        self.listed_lines = 0
        self.busy_seconds = 0.0
        self.event_bytes = 0
        self.started = 0
        self.most_files = 0

    def _count(self, kind: str) -> None:
        self.requests[kind] += 1
        self.by_minute[int(self._clock.now // 60)] += 1

    # -- the interface of a backend --------------------------------------------------------------

    def nodes(self) -> list[Node]:
        self._count("sinfo")
        return [Node(name=name, gpus=self._gpus, cpus=64) for name in self._names]

    def limits(self) -> Limits:
        return Limits(tasks=1000, allocations=1000)

    def room(self, request: AllocationRequest, known: Sequence[Allocation]) -> int:
        return max(0, 1000 - len(known))

    def most_seconds(self, request: AllocationRequest) -> float | None:
        return None

    def poll_seconds(self) -> tuple[float, float]:
        return 2.0, 30.0

    def submit(self, batch: Batch) -> dict[int, str]:
        self._count("sbatch")
        self._arrays += 1
        ids = {}
        for number in batch.tasks:
            engine_id = f"{self._arrays}_{number}"
            task = Task(os.path.join(batch.folder, str(number)), engine_id)
            self._tasks[batch.token, number] = task
            self._waiting.append(task)
            ids[number] = engine_id
        return ids

    def adopt(self, token: str) -> dict[int, str]:
        return {}

    def poll(self, allocations: Iterable[Allocation]) -> dict[int, Status]:
        self._count("squeue")
        found = {}
        for one in allocations:
            task = self._tasks.get((one.token, one.task))
            if task is None:
                continue
            if task.state == ENDED:
                found[one.id] = Status(state=ENDED, reason="completed")
            else:
                self.listed_lines += task.state == RUNNING
                found[one.id] = Status(state=task.state, node=task.node)
        return found

    def cancel(self, allocations: Iterable[Allocation]) -> None:
        raise NotImplementedError

    def worker_output(self, folder: str, task: int) -> str:
        return ""

    def close(self) -> None:
        pass

    # -- virtual time ----------------------------------------------------------------------------

    def advance(self) -> None:
        """Start waiting tasks, and write the events that happened up to now."""
        now = self._clock.now
        budget = int((now - self._ran_until) * _STARTS_PER_SECOND) or 1
        self._ran_until = now
        while self._waiting and self._free and budget:
            budget -= 1
            self._start(self._waiting.pop(0), now)
        for task in [one for one in self._tasks.values() if one.state == RUNNING]:
            self._write(task, now)
        for key in [key for key, one in self._tasks.items() if one.state == ENDED]:
            if not os.path.exists(self._tasks[key].folder):
                del self._tasks[key]  # the driver has removed its files

    def _start(self, task: Task, now: float) -> None:
        task.state, task.node = RUNNING, self._free.pop()
        with open(os.path.join(task.folder, OWNER), "w", encoding="utf-8") as file:
            file.write(task.engine_id)
        at = now + _START_SECONDS
        add = task.events.append
        add((at, {"kind": "owned", "by": task.engine_id, "node": task.node, "at": at}))
        returned = []
        with open(os.path.join(task.folder, JOBS), encoding="utf-8") as file:
            header = json.loads(file.readline())
            last = header["unknown_seconds"] or float("inf")
            for line in file:
                job = json.loads(line)
                if "job" not in job:
                    continue
                if at > now + last:
                    returned.append(job["job"])
                    continue
                ids = {"job": job["job"], "attempt": job["attempt"]}
                seconds = self._random.lognormvariate(0.0, 0.5) * self._seconds
                add((at, {"kind": "begun", **ids, "at": at, "node": task.node, "gpus": "0"}))
                at += seconds
                self.busy_seconds += seconds
                add((at, {"kind": "ended", **ids, "at": at, "status": 0, "cause": None,
                          "user_seconds": seconds, "system_seconds": 0.1,
                          "max_rss_bytes": 1 << 30}))  # fmt: skip
                at += _JOB_SECONDS
        if returned:
            add((at, {"kind": "returned", "jobs": returned}))
        add((at, {"kind": "closed", "at": at, "why": ""}))
        self.started += 1

    def _write(self, task: Task, now: float) -> None:
        first = task.written
        while task.written < len(task.events) and task.events[task.written][0] <= now:
            task.written += 1
        if task.written > first:
            lines = [json.dumps(event) for _, event in task.events[first : task.written]]
            data = "\n".join(lines) + "\n"
            self.event_bytes += len(data)
            with open(os.path.join(task.folder, EVENTS), "a", encoding="utf-8") as file:
                file.write(data)
        if task.written == len(task.events):
            task.state, task.events = ENDED, []
            self._free.append(task.node)


def main() -> None:
    options = _options()
    folder = tempfile.mkdtemp(prefix="stoker-scale-")
    try:
        _run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="typical duration of a job")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _run(options: argparse.Namespace, folder: str) -> None:
    state = os.path.join(folder, "state")
    os.mkdir(state, 0o700)
    settings = Settings(state_dir=state)
    db = open_database(state, create=True)
    clock = VirtualClock()
    cluster = SimulatedSlurm(clock, options.nodes, options.gpus, options.seconds, options.seed)
    with db.transaction():
        backends.add(db, "lab", "slurm", {}, os.path.join(folder, "shared"))
    began = time.perf_counter()
    submission = Submission(db)
    context = Context(cwd="/", env=(("PATH", "/bin"),), umask=0o22, shell="/bin/sh")
    request = Request(gpus=1, backend="lab")
    for first in range(0, options.jobs, CHUNK):
        count = min(CHUNK, options.jobs - first)
        specs = [
            JobSpec(argv=(f"python train.py --seed {first + i}",), context=context, request=request)
            for i in range(count)
        ]
        submission.add(specs, clock.wall())
    submitted = time.perf_counter() - began
    driver = Driver(settings, "lab", clock, cluster)
    start, cpu, rounds = clock.now, resource.getrusage(resource.RUSAGE_SELF), 0
    simulated = 0.0
    shared = os.path.join(folder, "shared", "batches", "lab")
    while driver.round():
        rounds += 1
        clock.now += driver.timeout()
        inner = time.process_time()
        cluster.advance()
        if rounds % 100 == 0:
            cluster.most_files = max(cluster.most_files, _files(shared))
            _checkpoint(state)
        simulated += time.process_time() - inner
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime - simulated
    counts = job_queries.counts(db)
    assert counts == {"done": options.jobs}, counts
    _checkpoint(state)
    _print(options, cluster, clock.now - start, submitted, used, rounds, state)


def _checkpoint(state: str) -> None:
    """Move the write-ahead log into the database, as the daemon does."""
    connection = sqlite3.connect(os.path.join(state, "queue.db"))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _files(folder: str) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def _print(
    options: argparse.Namespace, cluster: SimulatedSlurm, seconds: float, submitted: float,
    used: float, rounds: int, state: str,
) -> None:  # fmt: skip
    slots = options.nodes * options.gpus
    ideal = cluster.busy_seconds / slots
    requests = sum(cluster.requests.values())
    size = os.stat(os.path.join(state, "queue.db")).st_size
    by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(cluster.requests.items()))
    rows = (
        ("jobs, GPUs, typical seconds", f"{options.jobs:,}, {slots}, {options.seconds:g}"),
        ("`stoker submit`, real seconds", f"{submitted:.1f}"),
        ("virtual hours from first to last job", f"{seconds / 3600:.2f}"),
        ("GPUs busy with jobs", f"{100 * ideal / seconds:.1f} %"),
        ("requests to the controller", f"{requests:,} ({by_kind})"),
        ("requests a second, mean", f"{requests / seconds:.3f}"),
        ("requests a second, busiest minute", f"{max(cluster.by_minute.values()) / 60:.2f}"),
        ("jobs of Slurm (array tasks)", f"{cluster.started:,}"),
        ("files of chunks at one time", f"{cluster.most_files:,}"),
        ("event files in all", f"{cluster.event_bytes / 2**20:.0f} MiB"),
        ("database", f"{size / 2**20:.0f} MiB, {size / options.jobs:.0f} bytes a job"),
        ("CPU of the driver", f"{used:.0f} s, {1e6 * used / options.jobs:.0f} us a job,"
         f" {100 * used / seconds:.1f} % of one core"),
        ("rounds of the driver", f"{rounds:,}"),
    )  # fmt: skip
    print("| what | value |\n|---|---|")
    for row in rows:
        print("| {} | {} |".format(*row))


if __name__ == "__main__":
    main()
