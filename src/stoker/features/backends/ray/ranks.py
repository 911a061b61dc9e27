"""A job on several nodes: a chunk of its own for each node, whose events become those of one job.

The folder `rank-K` in the folder of the chunk is the chunk of node K. Its worker runs the command
with the variables of distributed training. Events of the job are written when they are true for all
nodes: it begins with the first node, and ends when the processes on all nodes have ended. If one of
them fails, the others are stopped, and its result is that of the job.
"""

from __future__ import annotations

import json
import os
from typing import Any

from stoker.engine.supervisor.distributed import distributed_environment
from stoker.engine.supervisor.logs import log_path
from stoker.features.backends.chunk_files import (
    CONTEXTS,
    EVENTS,
    JOBS,
    STOPS,
    append_lines,
    read_lines,
    write_whole,
)
from stoker.features.backends.ray.sent_files import SentJob, read_jobs
from stoker.text.commands.output_patterns import literal_path

_LOG = "output"  # of a node other than the first, in its folder


def rank_folder(chunk: str, rank: int) -> str:
    return os.path.join(chunk, f"rank-{rank}")


def write_ranks(chunk: str, nodes: int, address: str, port: int) -> None:
    """Write the chunk of each node. `address`, `port`: where the processes meet."""
    with open(os.path.join(chunk, CONTEXTS), encoding="utf-8") as file:
        contexts = file.read()
    given = {id: dict(one["env"]) for id, one in json.loads(contexts).items()}
    for rank in range(nodes):
        folder = rank_folder(chunk, rank)
        os.makedirs(folder, 0o700, exist_ok=True)
        lines = []
        for line in read_lines(os.path.join(chunk, JOBS)):
            if "files" in line:
                line |= {"nodes": 1, "launches_everywhere": False}
            elif "job" in line:
                spec = line["spec"]
                own = given[str(line["context"])] | dict(spec["variables"])
                added = distributed_environment(
                    rank=rank,
                    world_size=nodes,
                    local_rank=0,
                    nodes=nodes,
                    address=own.get("MASTER_ADDR") or address,
                    port=int(own.get("MASTER_PORT") or port),
                )
                spec["variables"] = [*spec["variables"], *added.items()]
                if rank:
                    spec |= {"stdout": literal_path(os.path.join(folder, _LOG)), "stderr": None}
            lines.append(json.dumps(line))
        write_whole(os.path.join(folder, CONTEXTS), contexts)
        write_whole(os.path.join(folder, JOBS), "".join(f"{line}\n" for line in lines))


class Ranks:
    """The chunks of the nodes of one job. What was written is known from the files."""

    def __init__(self, chunk: str, names: tuple[str, ...], files: str) -> None:
        self._chunk = chunk
        self._names = names
        self._files = files
        self._folders = [rank_folder(chunk, rank) for rank in range(len(names))]
        (self._job,) = read_jobs(chunk).values()

    def update(self) -> None:
        """Pass on requests to stop, and write what is new; stop all nodes if one failed."""
        events = self._events()
        written = {event["kind"] for event in read_lines(self._path(EVENTS))}
        nodes = ",".join(self._names)
        for kind in ("owned", "reserved", "begun"):
            found = [one for rank in events for one in rank if one["kind"] == kind]
            if found and kind not in written:
                append_lines(self._path(EVENTS), [{**found[0], "node": nodes}])
        stops = list(read_lines(self._path(STOPS)))
        if not stops and self._failed(events):
            stops = [{"job": self._job.job, "grace": None}]
        for folder, own in zip(self._folders, events, strict=True):
            path = os.path.join(folder, STOPS)
            is_ended = any(event["kind"] == "ended" for event in own)
            if stops and not is_ended and sum(1 for _ in read_lines(path)) < len(stops):
                append_lines(path, stops)

    def finish(self) -> None:
        """The workers on all nodes have ended: write the end of the job, once."""
        written = {event["kind"] for event in read_lines(self._path(EVENTS))}
        if "closed" in written:
            return
        events = self._events()
        ends = [event for rank in events for event in rank if event["kind"] == "ended"]
        result = []
        if len(ends) == len(self._folders):
            self._append_logs()
            failed = self._failed(events)
            result = [min(failed, key=lambda event: event["at"]) if failed else ends[0]]
        elif not any(event["kind"] == "begun" for rank in events for event in rank):
            result = [{"kind": "returned", "jobs": [self._job.job]}]
        closed = [event for rank in events for event in rank if event["kind"] == "closed"]
        if result and len(closed) == len(self._folders):
            append_lines(self._path(EVENTS), [*result, closed[-1]])

    def _failed(self, events: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The ends of processes that failed, and were not stopped because another had failed."""
        asked = any(True for _ in read_lines(self._path(STOPS)))
        found = []
        for rank in events:
            for event in rank:
                is_stopped = event.get("cause") == "user" and not asked
                if event["kind"] == "ended" and event["status"] != 0 and not is_stopped:
                    found.append(event)
        return found

    def _events(self) -> list[list[dict[str, Any]]]:
        return [list(read_lines(os.path.join(folder, EVENTS))) for folder in self._folders]

    def _path(self, name: str) -> str:
        return os.path.join(self._chunk, name)

    def _append_logs(self) -> None:
        """Append the output of the other nodes to the log, each line with its node."""
        path = self._log_path()
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(path, "ab") as log:
            for name, folder in zip(self._names[1:], self._folders[1:], strict=True):
                try:
                    with open(os.path.join(folder, _LOG), "rb") as file:
                        log.writelines(
                            b"[%s] %s\n" % (name.encode(), line.rstrip(b"\n")) for line in file
                        )
                except FileNotFoundError:
                    continue

    def _log_path(self) -> str:
        job: SentJob = self._job
        return job.streams[0] or log_path(self._files, job.job, job.number)
