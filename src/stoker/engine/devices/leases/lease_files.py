"""The lock files of GPUs, and how they are opened and locked.

The lock file of a GPU is `vendor` in its sysfs folder, and its gate is `device` in the same folder.
These belong to root, so users can neither replace nor remove them. GPUs without such a folder and
MIG slices (which share the folder of their GPU) use `<uuid>` and `<uuid>.gate` in a folder that all
users can write to: $STOKER_LEASE_DIR, or /run/lock/stoker-leases, or /tmp/stoker-leases if users
cannot write to /run/lock. All files are opened read-only and never written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from stoker.errors import Error, NoPermission, TryLater
from stoker.settings import Settings, check_filesystem

_SYSFS = "/sys/bus/pci/devices"
_OPEN_TO_ALL = 0o1777
# O_NONBLOCK: opening a FIFO that another user put there must not block.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_REPLACED_LIMIT = 100
_TEMPORARY_HOST_ERRORS = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK)


def lock(path: str, how: int) -> int | None:
    """Return a locked descriptor; None if `how` has LOCK_NB and the file is locked."""
    for _ in range(_REPLACED_LIMIT):
        descriptor = open_or_make(path)
        try:
            fcntl.flock(descriptor, how)
            # The file may have been replaced during the wait: then others lock the new one.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise TryLater(f"another process keeps replacing the lease file `{path}`")


def open_or_make(path: str) -> int:
    while True:
        try:
            return open_existing(path)  # first, because O_CREAT fails for a file of another user
        except FileNotFoundError:
            if path.startswith(_SYSFS):
                raise
        mask = os.umask(0)  # readable for all users from the start
        try:
            os.close(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o444))
        except FileExistsError:
            pass
        finally:
            os.umask(mask)


def open_existing(path: str) -> int:
    """Open a lock file. Raises NoPermission for a link or anything but a regular file."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _planted(path, "a symbolic link") from None
        if error.errno == errno.EACCES and os.path.lexists(path):
            raise _planted(path, "not readable") from None
        raise
    info = os.fstat(descriptor)
    if stat.S_ISREG(info.st_mode) and info.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise _planted(path, "a hard link" if stat.S_ISREG(info.st_mode) else "not a file")


def _planted(path: str, what: str) -> NoPermission:
    try:
        owner = f"user {os.lstat(path).st_uid}"
    except OSError:
        owner = "its owner"
    return NoPermission(f"the lease file `{path}` is {what}", f"ask {owner} to remove it: {path}")


def flock_pid(path: str) -> int | None:
    """Return the PID of a process that locked a file with flock, by /proc/locks; None: no lock."""
    try:
        descriptor = open_existing(path)
    except FileNotFoundError:
        return None
    info = os.fstat(descriptor)
    os.close(descriptor)
    name = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    with open("/proc/locks", encoding="ascii") as file:
        for line in file:
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:00:260072 0 EOF
            if words[1] == "FLOCK" and words[5] == name:
                return int(words[4])
    return None


def lease_error(error: OSError) -> Error:
    if error.errno in _TEMPORARY_HOST_ERRORS:
        return TryLater(f"cannot take a lease: {error.strerror}")
    where = f" with `{error.filename}`" if error.filename else ""
    return NoPermission(
        f"cannot take a lease{where}: {error.strerror}",
        "set STOKER_LEASE_DIR to a folder that all users of this host can write to",
    )


def paths_of(uuid: str, pci: str, is_slice: bool) -> tuple[str, str]:
    """Return the lock file and the gate of a GPU."""
    if pci and not is_slice:
        vendor = f"{_SYSFS}/{pci}/vendor"
        if os.path.exists(vendor):
            return vendor, f"{_SYSFS}/{pci}/device"
    # Old drivers name a slice MIG-GPU-<uuid>/<instance>/<instance>.
    path = f"{lease_folder()}/{uuid.replace('/', '_')}"
    return path, f"{path}.gate"


def lease_folder() -> str:
    """Return the folder for lock files of all users. Raises NoPermission if it is not safe."""
    folder = os.environ.get("STOKER_LEASE_DIR") or _default_folder()
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        _make_folder(folder)
        info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise NoPermission(f"the lease folder `{folder}` is not a folder")
    if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
        raise NoPermission(
            f"in the lease folder `{folder}` users can remove each other's files",
            f"chmod 1777 {folder}",
        )
    _refuse_network(folder, info.st_dev)
    return folder


def _default_folder() -> str:
    # The choice depends only on the host, so that all users get the same folder.
    try:
        is_open = os.stat("/run/lock").st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL
    except OSError:
        is_open = False
    return f"{'/run/lock' if is_open else '/tmp'}/stoker-leases"


def _make_folder(folder: str) -> None:
    mask = os.umask(0)
    try:
        os.mkdir(folder, _OPEN_TO_ALL)
    except FileExistsError:
        pass
    except OSError as error:
        raise NoPermission(
            f"cannot create the lease folder `{folder}`: {error.strerror}",
            "set STOKER_LEASE_DIR to a folder that all users of this host can write to",
        ) from None
    finally:
        os.umask(mask)


_local_filesystems: set[int] = set()


def _refuse_network(folder: str, filesystem: int) -> None:
    """Refuse NFS, where flock is a range lock: not inherited, and in conflict with the records."""
    if filesystem in _local_filesystems:
        return
    try:
        check_filesystem(Settings(state_dir=folder))
    except NoPermission:
        raise NoPermission(
            f"the lease folder `{folder}` is on a network file system",
            "set STOKER_LEASE_DIR to a folder on a local disk, the same for all users",
        ) from None
    _local_filesystems.add(filesystem)
