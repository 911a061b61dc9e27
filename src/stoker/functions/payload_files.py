"""Files that are unpickled, so nobody else may have written them.

    <state_dir>/calls/<token>/call            calls, one behind the other
    <state_dir>/calls/<token>/result-<job>    how the newest attempt of a job ended

A file is opened once and judged by its descriptor: a plain file in a folder of ours, ours alone to
write, and with the SHA-256 that was recorded elsewhere (for a call in the job's own command) or in
its first line (for a result). Whatever fails a check is refused before a byte of it is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import stat

from stoker.errors import Broken, NoPermission, NotFound, TryLater

CALL = "call"
_MAGIC = b"stoker-result-1"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Slice = tuple[int, int]  # offset, length


def new_folder(state_dir: str, token: str | None = None) -> str:
    """A private folder: a fresh one, or that of a token, which may be there already."""
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
    """The calls in it are not needed any more."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def write(folder: str, name: str, pieces: list[bytes]) -> None:
    """A whole file, on disk before this returns, or none."""
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
    """The bytes of one call, which its job's command describes."""
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
    """The body of a result; NotFound when the job has left none."""
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
    """A file that has passed the checks, open for reading."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = os.path.join(folder, name)
        self.size = 0
        try:
            place = os.open(folder, _FOLDER)
        except FileNotFoundError:
            raise NotFound(f"there is no folder `{folder}`") from None
        except OSError as error:
            raise NoPermission(f"cannot open the folder `{folder}`: {error.strerror}") from None
        try:
            _check_owner(folder, os.fstat(place))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._descriptor = os.open(name, flags, dir_fd=place)
        except FileNotFoundError:
            raise NotFound(f"there is no file `{self._path}`") from None
        except OSError as error:
            raise NoPermission(f"cannot open `{self._path}`: {error.strerror}") from None
        finally:
            os.close(place)

    def __enter__(self) -> _Opened:
        try:
            info = os.fstat(self._descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise NoPermission(f"`{self._path}` is not a plain file and is not read")
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
            f"`{path}` belongs to uid {info.st_uid}, not to you, and is not read",
            "it holds Python objects, and reading those runs code",
        )
    if info.st_mode & 0o022:
        raise NoPermission(
            f"`{path}` can be written by other users and is not read",
            "it holds Python objects, and reading those runs code",
        )


def _changed(path: str) -> Broken:
    return Broken(
        f"`{path}` is not as it was written, and is not read", "submit or rerun the job again"
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
