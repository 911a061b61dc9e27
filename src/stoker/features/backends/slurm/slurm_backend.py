"""The Slurm backend: allocations are tasks of job arrays.

Jobs are submitted with --no-requeue: Stoker decides about retries, in a new allocation with a new
attempt number. The token of a batch is the name of its Slurm job, so that a batch is found again
after a crash between `sbatch` and the record of its id.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Sequence

from stoker.features.backends.nodes import Node
from stoker.features.backends.options import split_options
from stoker.features.backends.protocol import (
    END_SIGNAL_SECONDS,
    PENDING,
    UNKNOWN,
    AllocationRequest,
    Batch,
    Limits,
    Rejected,
    Status,
    Unreachable,
)
from stoker.features.backends.slurm.commands import run_slurm
from stoker.features.backends.slurm.listing import (
    PARTITION_FORMAT,
    SINFO_FORMAT,
    SQUEUE_FORMAT,
    Listed,
    Partition,
    parse_limit,
    parse_nodes,
    parse_partitions,
    parse_queue,
    status_of,
)
from stoker.features.backends.store_allocations import Allocation

_NAME = "stoker-"  # before the token in the name of a Slurm job
_MAX_ALLOCATIONS = 1000
_FIRST_POLL = 2.0
_MAX_POLL = 30.0
_EXPORTED = "HOME,PATH,USER,LOGNAME,LANG"


class SlurmBackend:
    linger_seconds = 0.0

    def __init__(
        self, name: str, options: dict[str, str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self._environment = environment or {}
        self._own, self._sbatch = split_options(options)
        self._python = self._own.get("python") or sys.executable
        self._limits: Limits | None = None
        self._min_job_age = 0.0  # seconds for which Slurm lists jobs that have ended
        self._pending: dict[str, float] = {}  # tasks that were listed as pending, and when
        self._has_accounting = True
        self._partitions: list[Partition] = []

    def _run(self, argv: list[str], stdin: str | None = None) -> str:
        return run_slurm(argv, stdin, self._environment)

    # -- capacity --------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        self._partitions = parse_partitions(
            self._run(["sinfo", "-h", "-a", "-o", PARTITION_FORMAT])
        )
        argv = ["sinfo", "-h", "-N", "-O", SINFO_FORMAT]
        if "partition" in self._sbatch:
            known = [one.name for one in self._partitions]
            for name in self._sbatch["partition"].split(","):
                if name not in known:
                    raise Rejected(
                        f"Slurm has no partition `{name}`; partitions: {', '.join(known) or '-'}"
                    )
            argv += ["-p", self._sbatch["partition"]]
        return parse_nodes(self._run(argv))

    def limits(self) -> Limits:
        if self._limits is None:
            found = {}
            for line in self._run(["scontrol", "show", "config"]).splitlines():
                key, _, value = line.partition("=")
                found[key.strip()] = value.strip()
            tasks = int(found.get("MaxArraySize") or 1001) - 1
            self._min_job_age = float((found.get("MinJobAge") or "0").split()[0])
            most = int(self._own.get("max-jobs") or _MAX_ALLOCATIONS)
            self._limits = Limits(tasks=max(1, min(tasks, most)), allocations=most)
        return self._limits

    def room(self, request: AllocationRequest, known: Sequence[Allocation]) -> int:
        return max(0, self.limits().allocations - len(known))

    def most_seconds(self, request: AllocationRequest) -> float | None:
        options = {**self._sbatch, **_pairs(request.options)}
        names = options.get("partition", "").split(",")
        used = [
            one
            for one in self._partitions
            if (one.name in names if "partition" in options else one.is_default)
        ]
        limits = [one.seconds for one in used if one.seconds is not None]
        most = max(limits) if limits and len(limits) == len(used) else None
        given = parse_limit(options.get("time", ""))
        return given if most is None or (given is not None and given < most) else most

    def poll_seconds(self) -> tuple[float, float]:
        return _FIRST_POLL, _MAX_POLL

    # -- submit and adopt ------------------------------------------------------------------------

    def submit(self, batch: Batch) -> dict[int, str]:
        array = self._run(self._argv(batch), self._script(batch)).strip().split(";")[0]
        ids = {task: f"{array}_{task}" for task in batch.tasks}
        self._pending.update(dict.fromkeys(ids.values(), time.monotonic()))
        return ids

    def _argv(self, batch: Batch) -> list[str]:
        request = batch.request
        options = {**self._sbatch, **split_options(_pairs(request.options))[1]}
        gpu_type = {**self._own, **split_options(_pairs(request.options))[0]}.get("gpu-type")
        if request.gpus:
            kind = f"{gpu_type}:" if gpu_type else ""
            options["gres"] = f"gpu:{kind}{request.gpus}"
        if request.cpus:
            options.pop("cpus-per-gpu", None)
            options["cpus-per-task"] = str(request.cpus)
        if request.memory is not None:
            for key in ("mem-per-cpu", "mem-per-gpu"):
                options.pop(key, None)
            options["mem"] = f"{-(-request.memory >> 20)}M"
        if request.seconds is not None and "time" not in options:
            options["time"] = str(int(-(-request.seconds // 60)))  # minutes, rounded up
        argv = [
            "sbatch",
            "--parsable",
            f"--job-name={_NAME}{batch.token}",
            f"--array={_ranges(batch.tasks)}",
            "--no-requeue",
            f"--export={_EXPORTED}",
            f"--output={batch.folder}/slurm-%a.out",
            "--open-mode=append",
            "--chdir=/",
            f"--nodes={request.nodes}",
            f"--signal=B:USR2@{END_SIGNAL_SECONDS}",
        ]
        if not {"ntasks", "ntasks-per-node"} & options.keys():
            argv.append("--ntasks-per-node=1")
        if request.name:
            argv.append(f"--comment={request.name}")
        return argv + [
            f"--{key}={value}" if value else f"--{key}" for key, value in options.items()
        ]

    def _script(self, batch: Batch) -> str:
        worker = shlex.join([self._python, "-P", "-m", "stoker.features.backends.worker"])
        identity = '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID.${SLURM_RESTART_COUNT:-0}"'
        folder = f"{shlex.quote(batch.folder)}/$SLURM_ARRAY_TASK_ID"
        # Slurm's signal may come before the worker can handle it.
        return f"#!/bin/sh\ntrap '' USR2\nexec {worker} {folder} --as {identity}\n"

    def adopt(self, token: str) -> dict[int, str]:
        return {
            task: f"{one.array}_{task}"
            for one in self._listing()
            if one.name == _NAME + token
            for task in one.tasks
        }

    # -- poll and cancel -------------------------------------------------------------------------

    def poll(self, allocations: Iterable[Allocation]) -> dict[int, Status]:
        wanted = {(one.token, one.task): one for one in allocations}
        found = {}
        arrays, cut = set(), set()
        for line in self._listing():
            arrays.add(line.array)
            if line.is_cut:
                cut.add(line.array)
            token = line.name.removeprefix(_NAME)
            for task in line.tasks:
                known = wanted.get((token, task))
                if known is not None and known.engine_id == f"{line.array}_{task}":
                    found[known.id] = line.status
        missing = [one for one in wanted.values() if one.id not in found and one.engine_id]
        found |= {one.id: Status(state=UNKNOWN) for one in missing if _array(one) in cut}
        missing = [one for one in missing if one.id not in found]
        ends = {**self._cancelled(missing, arrays), **self._accounted(missing), **found}
        now = time.monotonic()
        is_pending = {id for id, status in found.items() if status.state == PENDING}
        self._pending = {
            one.engine_id: now for one in wanted.values() if one.engine_id and one.id in is_pending
        }
        return ends

    def _cancelled(self, missing: list[Allocation], arrays: set[str]) -> dict[int, Status]:
        """Tasks that were cancelled while they waited: Slurm removes them from their array.

        A task that ran would be listed as ended for some time.
        """
        self.limits()
        since = time.monotonic() - self._min_job_age
        return {
            one.id: status_of("CANCELLED", "None", "")
            for one in missing
            if self._pending.get(one.engine_id or "", 0.0) > since and _array(one) in arrays
        }

    def _listing(self) -> list[Listed]:
        return list(
            parse_queue(self._run(["squeue", "--me", "-h", "-t", "all", "-o", SQUEUE_FORMAT]))
        )

    def _accounted(self, missing: list[Allocation]) -> dict[int, Status]:
        """The ends of allocations that left the queue, where Slurm keeps accounting."""
        if not missing or not self._has_accounting:
            return {}
        ids = ",".join(one.engine_id or "" for one in missing)
        try:
            text = self._run(["sacct", "-n", "-P", "-X", "-j", ids, "-o", "JobID,State,NodeList"])
        except Rejected:  # accounting storage is disabled
            self._has_accounting = False
            return {}
        except Unreachable:  # only the database; the listing was answered
            return {one.id: Status(state=UNKNOWN) for one in missing}
        by_id = {one.engine_id: one.id for one in missing}
        found = {}
        for line in text.splitlines():
            engine_id, state, node = [*line.split("|"), "", ""][:3]
            if engine_id in by_id:
                found[by_id[engine_id]] = status_of(state, "None", node)
        return found

    def cancel(self, allocations: Iterable[Allocation]) -> None:
        by_array: dict[str, list[int]] = {}
        for one in allocations:
            if one.engine_id:
                array, _, task = one.engine_id.rpartition("_")
                by_array.setdefault(array, []).append(int(task))
        ids = [f"{array}_[{_ranges(sorted(tasks))}]" for array, tasks in by_array.items()]
        if ids:
            try:
                self._run(["scancel", *ids])
            except Rejected as error:
                if "invalid job id" not in str(error).lower():  # it has ended
                    raise

    def worker_output(self, folder: str, task: int) -> str:
        try:
            with open(os.path.join(folder, f"slurm-{task}.out"), "rb") as file:
                lines = file.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        except FileNotFoundError:
            return (
                f"it wrote nothing into {folder}, so the node probably does not see that folder;"
                " add a backend with a --folder that all nodes share"
            )
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def close(self) -> None:
        pass


def _array(one: Allocation) -> str:
    return (one.engine_id or "").partition("_")[0]


def _pairs(options: Iterable[str]) -> dict[str, str]:
    return dict(one.partition("=")[::2] for one in options)


def _ranges(tasks: Sequence[int]) -> str:
    """The indices of an array.

    >>> _ranges([0, 1, 2, 5])
    '0-2,5'
    """
    parts: list[list[int]] = []
    for task in tasks:
        if parts and task == parts[-1][1] + 1:
            parts[-1][1] = task
        else:
            parts.append([task, task])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
