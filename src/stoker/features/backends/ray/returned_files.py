"""What returns from a node that does not see the files of the queue, while jobs run there.

Events return last: when the end of a job is recorded, its log, metrics, outputs and result are
here. Everything can be interrupted: what has returned is known from sizes and times of local files.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any

from stoker.engine.supervisor.empty_logs import EmptyLogs
from stoker.engine.supervisor.logs import (
    cap_log,
    job_folder,
    log_path,
    metrics_path,
    progress_path,
    requeue_path,
    stop_path,
)
from stoker.features.backends.chunk_files import EVENTS, JOBS, STOPS, read_lines
from stoker.features.backends.ray.sent_files import PIECE, Piece, SentJob, read_jobs, stream_name
from stoker.functions.payload_files import result_name
from stoker.record import Record

_BUDGET = 64 << 20  # bytes in one poll: the driver has other work too
_CHECKPOINT_SECONDS = 10.0
_STILL_NS = 2_000_000_000  # a checkpoint that was written this recently may not be complete
_POSITIONS = "streams.json"  # how much of the streams of jobs has returned


class NodeFile(Record):
    """A file on a node, as `NodeActor.listing` describes it."""

    name: str
    size: int
    mtime_ns: int
    mode: int
    target: str | None = None


class _OutOfBudget(Exception):
    pass


class Return:
    """The files of an allocation on one node."""

    def __init__(self, id: str, chunk: str, files: str) -> None:
        self._id = id
        # Of a job on several nodes, the first has the log and the metrics.
        self._is_first = not os.path.basename(id).startswith("rank-") or id.endswith("/rank-0")
        self._chunk = chunk
        self._files = files
        self._log_limit = next(read_lines(os.path.join(chunk, JOBS)))["log_limit"]
        self._call: Callable[..., Any]
        self._events = os.path.join(chunk, EVENTS)
        self._jobs: dict[int, SentJob] = read_jobs(chunk)
        self._active: dict[int, SentJob] = {}  # jobs that run
        for event in read_lines(self._events):
            self._note(event)
        self._stopped: set[int] = set()  # jobs whose stop file was sent
        self._stops = 0  # bytes of stops.jsonl that were sent
        self._checkpoints_at = 0.0
        self._budget = 0
        self._empty_logs = EmptyLogs()
        self._positions = self._load_positions()

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("kind") == "begun":
            self._active[event["job"]] = self._jobs[event["job"]]
        elif event.get("kind") == "ended":
            self._active.pop(event["job"], None)

    def exchange(self, call: Callable[..., Any]) -> bool:
        """Send requests to stop, and fetch what is new; returns whether nothing is left.

        `call(method, ...)` calls the actor of the node.
        """
        self._call = call
        self._send_stops()
        self._budget = _BUDGET
        try:
            while True:
                have = _size(self._events)
                data = self._call("read_events", self._id, have)
                events = [json.loads(line) for line in data.splitlines()]
                begun = {one["job"] for one in events if one.get("kind") == "begun"}
                ended = {one["job"] for one in events if one.get("kind") == "ended"}
                active = {**self._active, **{job: self._jobs[job] for job in begun | ended}}
                self._fetch(active.values(), ended)
                if not data:
                    return True
                with open(self._events, "ab") as file:
                    file.write(data)
                for event in events:
                    self._note(event)
        except _OutOfBudget:
            return False

    # -- to the node -----------------------------------------------------------------------------

    def _send_stops(self) -> None:
        pieces = []
        path = os.path.join(self._chunk, STOPS)
        size = _size(path)
        if size > self._stops:
            with open(path, "rb") as file:
                data = file.read(size)
            pieces.append(Piece(name=f"batches/{self._id}/{STOPS}", offset=0, data=data))
        stopping = [
            job
            for job in self._active
            if job not in self._stopped and os.path.exists(stop_path(self._local(job)))
        ]
        pieces += [
            Piece(name=stop_path(job_folder("files", job)), offset=0, data=b"") for job in stopping
        ]
        if pieces:
            self._call("write", [piece._asdict() for piece in pieces])
            self._stops = max(size, self._stops)
            self._stopped.update(stopping)

    # -- from the node ---------------------------------------------------------------------------

    def _local(self, job: int) -> str:
        return job_folder(self._files, job)

    def _fetch(self, jobs: Iterable[SentJob], ended: set[int]) -> None:
        """Fetch what is new of these jobs; of those that ended, outputs and results too."""
        targets: dict[str, str] = {}  # local paths of single files, by their names on the node
        growing = set()  # logs and metrics are appended to
        trees: dict[str, str] = {}
        complete: set[str] = set()  # folders of jobs that ended
        now = time.monotonic()
        with_checkpoints = now >= self._checkpoints_at
        for job in jobs:
            folders = job.folders(self._files)
            node, local = folders[0]
            name = log_path("files", job.job, job.number)
            path = log_path(self._files, job.job, job.number)
            if self._is_first:
                targets |= {name: path, metrics_path(node): metrics_path(local)}
                growing |= {name, metrics_path(node)}
                targets |= {progress_path(node): progress_path(local)}
            for number, stream in enumerate(job.streams, 1):
                if stream is not None:
                    targets[stream_name(job.job, number)] = stream
            if job.job in ended:
                targets[requeue_path(node)] = requeue_path(local)
                trees |= dict(folders)
                complete.update(dict(folders))
                if job.call is not None and self._is_first:
                    base = f"files/calls/{os.path.basename(job.call)}/{result_name(job.job)}"
                    targets[base] = os.path.join(job.call, result_name(job.job))
            elif job.saves_checkpoints and with_checkpoints:
                node, local = folders[-1]
                trees[f"{node}/checkpoints"] = f"{local}/checkpoints"
        if with_checkpoints:
            self._checkpoints_at = now + _CHECKPOINT_SECONDS
        if not targets:
            return
        found, node_now = self._call("listing", list(targets), list(trees))
        seen = set()
        for values in found:
            file = NodeFile(**values)
            seen.add(file.name)
            base = "" if file.name in targets else _base(trees, file.name)
            local_path = targets.get(file.name) or trees[base] + file.name[len(base) :]
            if file.name in growing:
                self._append(file, local_path)
            elif ".stream-" in file.name and file.name in targets:
                self._append_stream(file, local_path)
            elif file.name.endswith("/checkpoints") or "/checkpoints/" in file.name:
                if base in complete or node_now - file.mtime_ns > _STILL_NS:
                    self._replace(file, local_path)
            else:
                self._replace(file, local_path)
        for job in jobs:
            if job.job in ended and job.streams[0] is None:
                self._note_empty_log(job, seen)

    def _note_empty_log(self, job: SentJob, seen: set[str]) -> None:
        """Empty logs are removed on the node; `stoker log` must know that there was one."""
        path = log_path(self._files, job.job, job.number)
        if log_path("files", job.job, job.number) not in seen and not os.path.exists(path):
            _make_parent(path)
            open(path, "ab").close()
            self._empty_logs.remove(path)

    def _read(self, name: str, offset: int, size: int, path: str) -> None:
        """Append a part of a file on the node to a local file, as far as the budget allows."""
        _make_parent(path)
        with open(path, "ab", opener=_private) as file:
            while size > 0:
                if self._budget <= 0:
                    raise _OutOfBudget
                data = self._call("read", name, offset, min(size, PIECE))
                if not data:
                    return  # it was truncated in the meantime
                file.write(data)
                offset += len(data)
                size -= len(data)
                self._budget -= len(data)

    def _append(self, file: NodeFile, path: str) -> None:
        have = _size(path)
        if have < file.size:
            self._read(file.name, have, file.size - have, path)
            if path.endswith(".log"):
                cap_log(path, self._log_limit)

    def _append_stream(self, file: NodeFile, path: str) -> None:
        have = self._positions.get(file.name, 0)
        if have < file.size:
            before = _size(path)
            try:
                self._read(file.name, have, file.size - have, path)
            finally:
                self._positions[file.name] = have + _size(path) - before
                with open(os.path.join(self._chunk, _POSITIONS), "w", encoding="utf-8") as stored:
                    json.dump(self._positions, stored)

    def _load_positions(self) -> dict[str, int]:
        try:
            with open(os.path.join(self._chunk, _POSITIONS), encoding="utf-8") as file:
                found: dict[str, int] = json.load(file)
                return found
        except (FileNotFoundError, ValueError):
            return {}

    def _replace(self, file: NodeFile, path: str) -> None:
        """Fetch a whole file, unless the local one is the same."""
        try:
            info = os.lstat(path)
        except OSError:
            info = None
        if file.target is not None:
            if info is None:
                _make_parent(path)
                os.symlink(file.target, path)
            return
        if stat.S_ISDIR(file.mode):
            os.makedirs(path, 0o700, exist_ok=True)
            return
        if info is not None and (info.st_size, info.st_mtime_ns) == (file.size, file.mtime_ns):
            return
        # Named after the content, so that an interrupted copy is continued only if it is the same.
        key = hashlib.sha256(os.fsencode(f"{path}\0{file.size}\0{file.mtime_ns}")).hexdigest()[:24]
        part = os.path.join(self._chunk, "parts", key)
        have = _size(part)
        self._read(file.name, have, file.size - have, part)
        _make_parent(path)
        os.chmod(part, stat.S_IMODE(file.mode))
        os.utime(part, ns=(file.mtime_ns, file.mtime_ns))
        os.replace(part, path)


def _base(trees: dict[str, str], name: str) -> str:
    """The folder of these that has this file."""
    return next(base for base in trees if name == base or name.startswith(f"{base}/"))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _make_parent(path: str) -> None:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
