"""What is sent to a node that does not see the files of the queue, before a worker starts there.

node folder                       sent from
--------------------------------  -----------------------------------------------------------
batches/TOKEN/TASK/               the chunk, with the paths of the node
folders/DIGEST/                   the folder of a job; once for each content
files/calls/TOKEN/call            the pickled call of a function job
files/jobs/...                    metrics and outputs of earlier attempts of a job
files/sweeps/NAME.ID/TRIAL/       the folder of a trial
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stoker.engine.supervisor.logs import job_folder, metrics_path
from stoker.features.backends.chunk_files import CONTEXTS, JOBS, read_lines
from stoker.features.code.check_files import decided_checks
from stoker.functions.call import folder_of
from stoker.functions.payload_files import CALL
from stoker.record import Record
from stoker.text.commands.output_patterns import expand_patterns, literal_path
from stoker.text.sizes import format_size

_BLOCK = 1 << 20


class TooLarge(Exception):
    """The folder has more bytes than are sent. The text is shown to users."""


class FolderFile(Record):
    """A regular file or a symbolic link."""

    name: str  # relative to the folder
    mode: int
    size: int
    mtime_ns: int
    target: str | None = None  # of a link


class CopiedFolder(Record):
    files: tuple[FolderFile, ...]
    digest: str


class FolderReader:
    """Reads folders; one whose files have not changed since is not read again."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._known: dict[str, CopiedFolder] = {}

    def read(self, folder: str) -> CopiedFolder:
        """Raises TooLarge, or OSError if the folder cannot be read."""
        files = tuple(self._files(folder))
        known = self._known.get(folder)
        if known is None or known.files != files:
            known = self._known[folder] = CopiedFolder(files=files, digest=_digest(folder, files))
        return known

    def _files(self, folder: str) -> Iterator[FolderFile]:
        total = 0
        for name in _names(folder):
            try:
                info = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # deleted, but not yet in git
            is_link = stat.S_ISLNK(info.st_mode)
            if not is_link and not stat.S_ISREG(info.st_mode):
                continue
            total += info.st_size
            if total > self._max_bytes:
                raise TooLarge(
                    f"the folder `{folder}` has more than {format_size(self._max_bytes)}, the most "
                    "that is sent to a node: ignore large files with .gitignore, submit from "
                    "another folder, or raise the option max-size of the backend"
                )
            yield FolderFile(
                name=name,
                mode=stat.S_IMODE(info.st_mode),
                size=info.st_size,
                mtime_ns=info.st_mtime_ns,
                target=os.readlink(os.path.join(folder, name)) if is_link else None,
            )


def _names(folder: str) -> list[str]:
    """The files that git tracks or would track; all files if the folder is not in a repository."""
    words = ["git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return sorted(_all_names(folder))
    if done.returncode:
        return sorted(_all_names(folder))
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _all_names(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            yield os.path.relpath(os.path.join(place, name), folder)


def _digest(folder: str, files: tuple[FolderFile, ...]) -> str:
    whole = hashlib.sha256()
    for file in files:
        if file.target is None:
            one = hashlib.sha256()
            with open(os.path.join(folder, file.name), "rb") as opened:
                while block := opened.read(_BLOCK):
                    one.update(block)
            content = one.hexdigest()
        else:
            content = f"-> {file.target}"
        line = f"{file.name}\0{file.mode & 0o111}\0{content}\0"
        whole.update(line.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:32]


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
    output: str | None = None  # the folder of its trial, relative to the folder with all files

    def folders(self, files: str) -> list[tuple[str, str]]:
        """The names on the node and the local paths of the folders that it writes to."""
        found = [(job_folder("files", self.job), job_folder(files, self.job))]
        if self.output is not None:
            found.append((f"files/{self.output}", os.path.join(files, self.output)))
        return found


def stream_name(job: int, number: int) -> str:
    """A file on the node for stdout (1) or stderr (2)."""
    return f"{job_folder('files', job)}.stream-{number}"


def read_jobs(chunk: str) -> dict[int, SentJob]:
    """The jobs of a chunk."""
    found = {}
    files = ""
    for line in read_lines(os.path.join(chunk, JOBS)):
        files = line.get("files", files)
        if "job" in line:
            spec = line["spec"]
            found[line["job"]] = SentJob(
                job=line["job"],
                attempt=line["attempt"],
                number=line["number"],
                saves_checkpoints=line["saves_checkpoints"],
                call=None if spec["shell"] else folder_of(tuple(spec["argv"])),
                streams=(_regular(spec.get("stdout")), _regular(spec.get("stderr"))),
                output=_output(spec, files),
            )
    return found


def _output(spec: dict[str, Any], files: str) -> str | None:
    path = dict(spec["variables"]).get("STOKER_OUTPUT_DIR", "")
    return os.path.relpath(path, files) if path.startswith(f"{files}/") else None


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
        self._send(
            [
                Piece(name=f"{name}/{CONTEXTS}", offset=0, data=text.encode()),
                *_pieces(f"{name}/{JOBS}", "".join(f"{line}\n" for line in lines).encode()),
            ]
        )

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
        files = ""
        for line in read_lines(os.path.join(chunk, JOBS)):
            if "files" in line:
                files, line["files"] = line["files"], self._on_node("files")
            elif "job" in line:
                spec = line["spec"]
                call = None if spec["shell"] else folder_of(tuple(spec["argv"]))
                output = _output(spec, files)
                if output is not None:  # the command has it too, for `{dir}`
                    old, new = os.path.join(files, output), self._on_node(f"files/{output}")
                    spec["argv"] = [word.replace(old, new) for word in spec["argv"]]
                    spec["variables"] = [
                        (key, value.replace(old, new)) for key, value in spec["variables"]
                    ]
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
            own, *trial = job.folders(files)
            if job.number > 1 and os.path.isfile(metrics_path(own[1])):
                yield from _file_pieces(metrics_path(own[0]), metrics_path(own[1]))
            # Earlier jobs of a trial may have written into its folder.
            for name, local in [own, *trial] if job.number > 1 else trial:
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
