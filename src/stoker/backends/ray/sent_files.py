"""What is sent to a node that does not see the files of the queue, before a worker starts there.

node folder                       sent from
--------------------------------  -----------------------------------------------------------
batches/TOKEN/TASK/               the chunk, with the paths of the node
folders/DIGEST/                   the folder of a job; once for each content
files/calls/TOKEN/call            the pickled call of a function job
files/jobs/...                    metrics and outputs of earlier attempts of a job
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator

from stoker.backends.chunk_files import CONTEXTS, JOBS, read_lines
from stoker.backends.ray.copied_folder import FolderReader
from stoker.code.check_files import decided_checks
from stoker.core.formats.output_patterns import expand_patterns, literal_path
from stoker.core.record import Record
from stoker.functions.call import folder_of
from stoker.functions.payload_files import CALL
from stoker.supervisor.logs import job_folder, metrics_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PIECE = 8 << 20  # bytes in one message


class NodePlace(Record):
    """Where files lie on a node."""

    folder: str
    python: str


class Piece(Record):
    """A part of a file for `NodeActor.write`. `target`: of a symbolic link."""

    name: str
    offset: int
    data: bytes
    mode: int = 0o600
    target: str | None = None


class SentJob(Record):
    """A job of a chunk that was sent to a node."""

    job: int
    attempt: int
    number: int
    saves_checkpoints: bool
    call: str | None  # the folder of a function job
    streams: tuple[str | None, str | None]  # files that the user chose for stdout and stderr


def stream_name(job: int, number: int) -> str:
    """A file on the node for stdout (1) or stderr (2)."""
    return f"{job_folder('files', job)}.stream-{number}"


def read_jobs(chunk: str) -> dict[int, SentJob]:
    """The jobs of a chunk."""
    found = {}
    for line in read_lines(os.path.join(chunk, JOBS)):
        if "job" in line:
            spec = line["spec"]
            found[line["job"]] = SentJob(
                job=line["job"],
                attempt=line["attempt"],
                number=line["number"],
                saves_checkpoints=line["saves_checkpoints"],
                call=None if spec["shell"] else folder_of(tuple(spec["argv"])),
                streams=(_regular(spec.get("stdout")), _regular(spec.get("stderr"))),
            )
    return found


def _regular(stored: str | None) -> str | None:
    """The path if it is that of a file, or of one that does not exist: not /dev/null or a pipe."""
    # The other patterns were expanded when the chunk was written; `%N` is refused.
    path = expand_patterns(stored, lambda letter: f"%{letter}") if stored else stored
    return path if path and (os.path.isfile(path) or not os.path.exists(path)) else None


class Sender:
    """Sends chunks to one node. `write` sends pieces; `has_folder` asks for a digest."""

    def __init__(
        self,
        folders: FolderReader,
        place: NodePlace,
        write: Callable[[list[Piece]], None],
        has_folder: Callable[[str], bool],
        finish_folder: Callable[[str], None],
    ) -> None:
        self._folders = folders
        self._place = place
        self._write = write
        self._has_folder = has_folder
        self._finish_folder = finish_folder

    def send(self, chunk: str, name: str, files: str) -> None:
        """Send a chunk and what its jobs need; `name` is its folder on the node.

        Raises TooLarge, or OSError if a folder cannot be read.
        """
        with open(os.path.join(chunk, CONTEXTS), encoding="utf-8") as file:
            contexts = json.load(file)
        jobs = read_jobs(chunk)
        cwds = {one["cwd"]: self._send_folder(one["cwd"]) for one in contexts.values()}
        self._send(self._earlier_files(jobs.values(), files))
        self._send(
            Piece(name=f"{name}/{path}", offset=0, data=data)
            for path, data in decided_checks(chunk)
        )
        lines = self._job_lines(chunk)
        text = json.dumps({id: self._context(one, cwds) for id, one in contexts.items()})
        self._send([
            Piece(name=f"{name}/{CONTEXTS}", offset=0, data=text.encode()),
            *_pieces(f"{name}/{JOBS}", "".join(f"{line}\n" for line in lines).encode()),
        ])  # fmt: skip

    def _send(self, pieces: Iterable[Piece]) -> None:
        waiting: list[Piece] = []
        size = 0
        for piece in pieces:
            if waiting and size + len(piece.data) > PIECE:
                self._write(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += len(piece.data) + 100
        if waiting:
            self._write(waiting)

    # -- the chunk -------------------------------------------------------------------------------

    def _on_node(self, name: str) -> str:
        return os.path.join(self._place.folder, name)

    def _context(self, context: dict[str, Any], cwds: dict[str, str]) -> dict[str, Any]:
        cwd = cwds[context["cwd"]]
        env = dict(context["env"])
        # A function may be imported from the folder of the submitter.
        path = [cwd, *(one for one in env.get("PYTHONPATH", "").split(os.pathsep) if one)]
        if cwd != context["cwd"]:
            env["PYTHONPATH"] = os.pathsep.join(_moved(one, context["cwd"], cwd) for one in path)
            env["PWD"] = cwd
        return {**context, "cwd": cwd, "env": list(env.items())}

    def _job_lines(self, chunk: str) -> Iterator[str]:
        for line in read_lines(os.path.join(chunk, JOBS)):
            if "files" in line:
                line["files"] = self._on_node("files")
            elif "job" in line:
                spec = line["spec"]
                call = None if spec["shell"] else folder_of(tuple(spec["argv"]))
                if call is not None:
                    spec["argv"][0] = self._place.python
                    spec["argv"][5] = self._on_node(f"files/calls/{os.path.basename(call)}")
                for number, key in ((1, "stdout"), (2, "stderr")):
                    if _regular(spec.get(key)):
                        spec[key] = literal_path(self._on_node(stream_name(line["job"], number)))
            yield json.dumps(line)

    # -- other files -----------------------------------------------------------------------------

    def _send_folder(self, cwd: str) -> str:
        """Send the folder of a job; returns where it is on the node."""
        if cwd == "/":
            return cwd  # of the node
        found = self._folders.read(cwd)
        name = f"folders/{found.digest}"
        if not self._has_folder(found.digest):
            self._send(
                piece
                for file in found.files
                for piece in (
                    [Piece(name=f"{name}.new/{file.name}", offset=0, data=b"", target=file.target)]
                    if file.target is not None
                    else _file_pieces(f"{name}.new/{file.name}", os.path.join(cwd, file.name))
                )
            )
            self._finish_folder(found.digest)
        return self._on_node(name)

    def _earlier_files(self, jobs: Iterable[SentJob], files: str) -> Iterator[Piece]:
        calls = set()
        for job in jobs:
            if job.call is not None and job.call not in calls:
                calls.add(job.call)
                name = f"files/calls/{os.path.basename(job.call)}/{CALL}"
                yield from _file_pieces(name, os.path.join(job.call, CALL))
            for path in filter(None, job.streams):
                if job.number == 1:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    open(path, "wb").close()
            if job.number > 1:
                local = job_folder(files, job.job)
                name = job_folder("files", job.job)
                if os.path.isfile(metrics_path(local)):
                    yield from _file_pieces(metrics_path(name), metrics_path(local))
                for place, _, names in os.walk(local):
                    for one in names:
                        path = os.path.join(place, one)
                        if os.path.isfile(path) and not os.path.islink(path):
                            relative = os.path.relpath(path, local)
                            yield from _file_pieces(f"{name}/{relative}", path)


def _moved(path: str, old: str, new: str) -> str:
    """A path inside of the old folder, in the new one."""
    if path == old or path.startswith(old + os.sep):
        return new + path[len(old) :]
    return path


def _file_pieces(name: str, path: str) -> Iterator[Piece]:
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777 | 0o600
        offset = 0
        while True:
            data = file.read(PIECE)
            if data or not offset:
                yield Piece(name=name, offset=offset, data=data, mode=mode)
            if len(data) < PIECE:
                return
            offset += len(data)


def _pieces(name: str, data: bytes) -> Iterator[Piece]:
    for offset in range(0, max(1, len(data)), PIECE):
        yield Piece(name=name, offset=offset, data=data[offset : offset + PIECE])
