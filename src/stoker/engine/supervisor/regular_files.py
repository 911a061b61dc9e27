"""Opens regular files at paths that a user chose, without blocking.

Opening a FIFO waits for its other end and opening a device can have side effects, so every path is
opened with O_NONBLOCK and checked afterwards. `/dev/null` is allowed as an output.
"""

from __future__ import annotations

import errno
import os
import stat

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a directory",
}
_NULL_DEVICE = os.makedev(1, 3)
_SAFE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_for_output(path: bytes, *, truncate: bool) -> int:
    """A descriptor that appends. Raises OSError unless it is a regular file or /dev/null."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE
    try:
        descriptor = os.open(path, flags | _flags_for_shared_folder(path), 0o666)
    except FileExistsError:  # created since the check
        raise _planted(path) from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO without a reader, a socket
            raise _refusal(os.stat(path).st_mode, path) from None
        raise
    info = os.fstat(descriptor)
    try:
        if not _is_output(info):
            raise _refusal(info.st_mode, path)
        if truncate and info.st_size:
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)  # a job inherits the flags of its stdout
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _flags_for_shared_folder(path: bytes) -> int:
    """Refuse links and files of other users in world-writable sticky folders such as /tmp.

    Applies the rules of fs.protected_symlinks and fs.protected_regular, which not every host
    enforces, and refuses hard links. Our own entries cannot be replaced in a sticky folder.
    """
    try:
        folder = os.stat(os.path.dirname(path) or b".")
        if not (folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH):
            return 0
        info = os.lstat(path)
    except FileNotFoundError:
        return os.O_EXCL
    is_trusted = info.st_uid in (os.geteuid(), folder.st_uid)
    if stat.S_ISLNK(info.st_mode) and is_trusted:
        return 0
    if not is_trusted or (stat.S_ISREG(info.st_mode) and info.st_nlink > 1):
        raise _planted(path)
    return os.O_NOFOLLOW


def _planted(path: bytes) -> OSError:
    text = "it is a link or file of another user, or a hard link, in a world-writable folder"
    return OSError(errno.EACCES, text, path)


def open_for_reading(path: str | bytes, *, follow: bool = True) -> int:
    """A descriptor to read a regular file. Raises OSError for everything else."""
    flags = os.O_RDONLY | _SAFE | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _refusal(mode, path)
    return descriptor


def output_problem(path: str | bytes) -> str | None:
    """The file type for which this path cannot take the output of a job; None if it can."""
    try:
        info = os.stat(path)
    except OSError:
        return None  # it may exist when the job starts
    return None if _is_output(info) else _KINDS.get(stat.S_IFMT(info.st_mode), "a special file")


def _is_output(info: os.stat_result) -> bool:
    if stat.S_ISCHR(info.st_mode):
        return info.st_rdev == _NULL_DEVICE
    return stat.S_ISREG(info.st_mode)


def _refusal(mode: int, path: str | bytes) -> OSError:
    kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
    return OSError(errno.EINVAL, f"it is {kind}, not a regular file", path)
