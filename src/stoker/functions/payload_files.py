"""Read and write the pickle files of calls and results.

    <state_dir>/calls/<token>/call            consecutive calls
    <state_dir>/calls/<token>/result-<job>    the outcome of the latest attempt of a job

Unpickling runs code, so other users must not be able to write these files. A file is opened once
and checked through its descriptor: it must be a regular file in a folder of this user, not writable
by others, and match a SHA-256 (of a call: in the command of the job; of a result: in its first
line). A file that fails a check is refused before it is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import stat

from stoker.errors import Broken, NoPermission, NotFound, TryLater

CALL = "call"
_MAGIC = b"stoker-result-1"
_PICKLE_HINT = "the file contains pickled Python objects, and unpickling runs code"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Slice = tuple[int, int]  # offset, length


def new_folder(state_dir: str, token: str | None = None) -> str:
    """Create a private folder and return its path; the folder of a given token may exist."""
    calls = os.path.join(state_dir, "calls")
    try:
        if not os.path.isdir(calls):
            os.makedirs(calls, 0o700, exist_ok=True)
            _sync_folder(state_dir)
        folder = os.path.join(calls, token or os.urandom(16).hex())
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if token is None:
                raise
        _sync_folder(calls)
    except OSError as error:
        raise _unwritten(calls, error) from None
    return folder


def remove_folder(folder: str) -> None:
    """Remove a folder whose calls are no longer needed."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def write(folder: str, name: str, pieces: list[bytes]) -> None:
    """Write a file atomically and sync it to disk. Raises TryLater or NoPermission."""
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o600)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.writelines(pieces)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, os.path.join(folder, name))
        _sync_folder(folder)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise _unwritten(os.path.join(folder, name), error) from None


def read_call(folder: str, sha256: str, slices: list[Slice]) -> bytes:
    """Return the bytes of one call, given by the arguments in the job's command."""
    with _Opened(folder, CALL) as opened:
        data = b"".join(opened.read(length, offset) for offset, length in slices)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise _changed(os.path.join(folder, CALL))
    return data


def result_name(job: int) -> str:
    return f"result-{job}"


def write_result(folder: str, job: int, body: bytes) -> None:
    header = b"%s %s %d\n" % (_MAGIC, hashlib.sha256(body).hexdigest().encode(), len(body))
    write(folder, result_name(job), [header, body])


def read_result(folder: str, job: int) -> bytes:
    """Return the body of a result; raises NotFound if the job has not written one."""
    name = result_name(job)
    with _Opened(folder, name) as opened:
        data = opened.read(opened.size, 0)
    header, _, body = data.partition(b"\n")
    words = header.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC:
        raise _changed(os.path.join(folder, name))
    if [hashlib.sha256(body).hexdigest().encode(), b"%d" % len(body)] != words[1:]:
        raise _changed(os.path.join(folder, name))
    return body


class _Opened:
    """A file open for reading, after its owner and mode were checked."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = os.path.join(folder, name)
        self.size = 0
        try:
            place = os.open(folder, _FOLDER)
        except FileNotFoundError:
            raise NotFound(f"the folder `{folder}` does not exist") from None
        except OSError as error:
            raise NoPermission(f"cannot open the folder `{folder}`: {error.strerror}") from None
        try:
            _check_owner(folder, os.fstat(place))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._descriptor = os.open(name, flags, dir_fd=place)
        except FileNotFoundError:
            raise NotFound(f"the file `{self._path}` does not exist") from None
        except OSError as error:
            raise NoPermission(f"cannot open `{self._path}`: {error.strerror}") from None
        finally:
            os.close(place)

    def __enter__(self) -> _Opened:
        try:
            info = os.fstat(self._descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise NoPermission(f"refusing to read `{self._path}`: it is not a regular file")
            _check_owner(self._path, info)
            self.size = info.st_size
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, length: int, offset: int) -> bytes:
        if offset + length > self.size:
            raise _changed(self._path)
        pieces = []
        while length:
            piece = os.pread(self._descriptor, min(length, 1 << 30), offset)
            if not piece:
                raise _changed(self._path)
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)


def _check_owner(path: str, info: os.stat_result) -> None:
    if info.st_uid != os.geteuid():
        raise NoPermission(
            f"refusing to read `{path}`: it belongs to uid {info.st_uid}, not to you",
            _PICKLE_HINT,
        )
    if info.st_mode & 0o022:
        raise NoPermission(
            f"refusing to read `{path}`: other users can write to it",
            _PICKLE_HINT,
        )


def _changed(path: str) -> Broken:
    return Broken(
        f"refusing to read `{path}`: it was changed after it was written",
        "submit or rerun the job again",
    )


def _unwritten(path: str, error: OSError) -> TryLater | NoPermission:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TryLater(f"cannot write `{path}`: {error.strerror}", "free some space")
    return NoPermission(f"cannot write `{path}`: {error.strerror}")


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
