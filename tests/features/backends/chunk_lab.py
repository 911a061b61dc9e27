"""A chunk of jobs in a folder, and workers that run it without an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from stoker.engine.model import Context, JobSpec, Request
from stoker.features.backends import chunk_files
from stoker.features.backends.chunk_files import ChunkJob, Header, to_line
from tests.lab import wait_until

_HEADER = Header(
    version=chunk_files.VERSION, files="", grace=0.5, log_limit=1 << 20, is_single=False
)


class ChunkLab:
    """Jobs have the ids 1, 2, ... and the attempts 101, 102, ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "chunk"
        self.files = folder / "files"
        self.work = folder / "work"
        self.temporary = folder / "tmp"  # TMPDIR of workers
        for path in (self.files, self.work, self.temporary):
            path.mkdir()
        self._workers: list[subprocess.Popen[str]] = []

    def write(
        self, *commands: str, gpus: int = 1, job: dict[str, Any] | None = None, **header: Any
    ) -> None:
        """Write the chunk with a job for each command."""
        env = (("PATH", os.environ["PATH"]), ("HOME", str(self.work)))
        context = Context(cwd=str(self.work), env=env, umask=0o022, shell="/bin/sh")
        lines = [to_line(_job(id, text, gpus, job)) for id, text in enumerate(commands, 1)]
        made = _HEADER._replace(files=str(self.files), **header)
        chunk_files.write_chunk(str(self.folder), made, {1: context}, lines)

    def start(self, identity: str = "5_0.0", **env: str) -> subprocess.Popen[str]:
        """Start a worker in an allocation with two GPUs."""
        names = ("SLURM_", "SLURMD_", "STOKER_")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(names)}
        own = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_CPUS_PER_TASK": "2", "STOKER_NVML": "0"}
        words = [sys.executable, "-P", "-m", "stoker.features.backends.worker", str(self.folder)]
        worker = subprocess.Popen(
            [*words, "--as", identity],
            env=clean | own | {"TMPDIR": str(self.temporary)} | env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._workers.append(worker)
        return worker

    def run(self, identity: str = "5_0.0", **env: str) -> tuple[int, str]:
        """Run a worker to its end; its exit code and what it printed."""
        worker = self.start(identity, **env)
        printed = worker.communicate()[1]
        return worker.returncode, printed

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / chunk_files.EVENTS
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [event for event in found if kind in (None, event["kind"])]

    def ends(self) -> dict[int, tuple[int | None, str | None]]:
        """Wait status and cause of each job that ended."""
        ended = self.events("ended")
        assert len({event["job"] for event in ended}) == len(ended), "an end is reported twice"
        return {event["job"]: (event["status"], event["cause"]) for event in ended}

    def returned(self) -> list[tuple[int, str]]:
        return [(job, event["why"]) for event in self.events("returned") for job in event["jobs"]]

    def wait_begun(self, count: int) -> None:
        wait_until(lambda: len(self.events("begun")) >= count, what=f"{count} jobs to begin")

    def stop_jobs(self, *jobs: int, grace: float | None = None) -> None:
        """What the driver writes to cancel jobs."""
        path = os.path.join(self.folder, chunk_files.STOPS)
        chunk_files.append_lines(path, [{"job": job, "grace": grace} for job in jobs])

    def log(self, job: int) -> str:
        found = sorted(self.files.glob(f"jobs/*/{job}-*.log"))
        return found[-1].read_text() if found else ""

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            with worker:  # closes its pipes
                pass


def _job(id: int, command: str, gpus: int, changes: dict[str, Any] | None) -> ChunkJob:
    spec = JobSpec(
        argv=(command,),
        context=Context(cwd="/", env=(), umask=0o077, shell="/bin/sh"),
        shell=True,
        request=Request(gpus=gpus),
    )
    return ChunkJob(
        job=id,
        attempt=100 + id,
        number=1,
        spec=spec._replace(**(changes or {})),
        context=1,
        batch=None,
        batch_index=None,
        saves_checkpoints=False,
        estimate=None,
    )
