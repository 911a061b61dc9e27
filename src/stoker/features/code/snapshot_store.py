"""Snapshots of code: copies of work trees, in which jobs run.

    code/lock                   shared while a snapshot is taken, exclusive while some are removed
    code/objects/ab/HASH        a file, by the SHA-256 of its content; HASH.x: executable;
                                HASH.400: other users may not read it, as they may not in the
                                work tree (any mode but 444 and 555)
    code/trees/ID/              a snapshot: hard links to objects, and links to what stays at its
                                place; ID is a hash of all names and contents
    code/tmp/                   trees and objects that are not complete yet, or are being removed

A tree is complete when it has its name, because it is renamed after everything is on disk. Files
are read-only and have the time MARK: a program that changed one in spite of that changed its time
too, and the next snapshot replaces it. Folders are writable, so that programs can create files.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Collection

from stoker.errors import TryLater, UsageError
from stoker.features.code.repository import Repository
from stoker.features.code.work_tree_files import TreeFile, WorkTree
from stoker.record import Record
from stoker.testing.failpoints import failpoint

MARK = 946_684_800  # 2000-01-01, the time of every file of a snapshot
_BLOCK = 1 << 20
_ID_LENGTH = 32
_FORMAT = b"1"


class Snapshot(Record):
    """A snapshot that is on disk."""

    id: str
    root: str  # the work tree that it is a copy of
    tree: str  # its folder
    files: int
    bytes: int
    changing: tuple[str, ...] = ()  # files that were written while they were copied


class SnapshotStore:
    """The snapshots in one folder. Call `close` when their jobs are in the database."""

    def __init__(self, folder: str) -> None:
        """`folder`: the state folder, or the folder of a backend."""
        self._folder = os.path.join(folder, "code")
        self._lock: int | None = None

    @property
    def exists(self) -> bool:
        return os.path.isdir(self._folder)

    def tree_of(self, id: str) -> str:
        return os.path.join(self._folder, "trees", id)

    def reuse(self, id: str) -> bool:
        """Whether a snapshot is still there. Keeps the shared lock until `close`."""
        self._lock_for(fcntl.LOCK_SH)
        return os.path.isdir(self.tree_of(id))

    def take(self, repository: Repository, content: WorkTree) -> Snapshot:
        """Copy a work tree, unless an equal snapshot exists. Keeps the shared lock until `close`.

        Raises UsageError for a file that cannot be read, TryLater if the disk is full.
        """
        self._lock_for(fcntl.LOCK_SH)
        try:
            return self._take(repository, content)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise TryLater(
                    f"cannot take a snapshot: {error.strerror}",
                    "free some space, or use --no-snapshot",
                ) from None
            raise

    def _take(self, repository: Repository, content: WorkTree) -> Snapshot:
        files = [file for file in content.files if file.target is None]
        objects: dict[str, str] = {}
        for _ in range(_COPY_TRIES):
            copied = [(file, *self._store(repository.root, file)) for file in files]
            objects.update((file.path, place) for file, place, _ in copied)
            files = [file for file, _, at in copied if _stamp(repository.root, file) != at]
            if not files:
                break
        id = _id_of(self._folder, repository.root, content, objects)
        tree = self.tree_of(id)
        snapshot = Snapshot(
            id=id,
            root=repository.root,
            tree=tree,
            files=len(content.files),
            bytes=content.size,
            changing=tuple(file.path for file in files),
        )
        if os.path.isdir(tree):
            self._repair(tree, objects)
            return snapshot
        temporary = self._temporary()
        os.mkdir(temporary, 0o755)
        self._fill(temporary, repository.root, content, objects)
        failpoint("snapshot.before_sync")
        _sync(self._folder)
        failpoint("snapshot.before_rename")
        try:
            os.rename(temporary, tree)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(temporary, ignore_errors=True)  # another submit was faster
        _sync_folder(os.path.dirname(tree))
        failpoint("snapshot.after_rename")
        return snapshot

    def _fill(self, tree: str, root: str, content: WorkTree, objects: dict[str, str]) -> None:
        for file in content.files:
            place = os.path.join(tree, file.path)
            os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
            if file.target is not None:
                os.symlink(file.target, place)
            else:
                _link(objects[file.path], place)
        for path in content.links:
            place = os.path.join(tree, path)
            os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
            os.symlink(os.path.join(root, path), place)

    def _repair(self, tree: str, objects: dict[str, str]) -> None:
        """Replace files that a job changed or removed."""
        for path, stored in objects.items():
            place = os.path.join(tree, path)
            if not _is_unchanged(place, os.stat(stored).st_size):
                os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
                temporary = self._temporary()
                _link(stored, temporary)
                os.rename(temporary, place)

    # -- objects ---------------------------------------------------------------------------------

    def _store(self, root: str, file: TreeFile) -> tuple[str, _Stamp]:
        """Store the content of a file; returns the path of its object and what it is a copy of."""
        path = os.path.join(root, file.path)
        temporary = self._temporary()
        try:
            copied_at = _stamp(root, file)
            digest, size, mode = _copy(path, temporary, file.is_executable)
            name = digest + _ENDINGS.get(mode, f".{mode:o}")
            place = os.path.join(self._folder, "objects", name[:2], name)
            if _is_unchanged(place, size):
                os.unlink(temporary)
            else:
                os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
                os.rename(temporary, place)
            failpoint("snapshot.after_object")
            return place, copied_at
        except FileNotFoundError as error:
            if error.filename == path:
                raise TryLater(f"`{path}` was removed while the snapshot was taken") from None
            raise
        except PermissionError as error:
            if error.filename == path:
                raise UsageError(
                    f"cannot take a snapshot: `{path}` cannot be read",
                    "make it readable, or ignore it with .gitignore",
                    "snapshot",
                ) from None
            raise

    def _temporary(self) -> str:
        return os.path.join(self._folder, "tmp", f"{os.getpid()}.{os.urandom(8).hex()}")

    # -- locks and removal -----------------------------------------------------------------------

    def _lock_for(self, mode: int) -> None:
        if self._lock is None:
            for name in ("objects", "trees", "tmp"):
                os.makedirs(os.path.join(self._folder, name), 0o700, exist_ok=True)
            path = os.path.join(self._folder, "lock")
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, mode)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove_unused(self, used: Callable[[], Collection[str]]) -> list[str]:
        """Remove the snapshots that are not used; returns the folders of files that are kept.

        `used` is called under the exclusive lock, when no submit is between its snapshot and its
        transaction. Files that jobs created in a snapshot are not removed: they are moved to
        `code/kept/ID`.
        """
        if not self.exists:
            return []
        self._lock_for(fcntl.LOCK_EX)
        kept: list[str] = []
        try:
            needed = set(used())
            trees = os.path.join(self._folder, "trees")
            temporary = os.path.join(self._folder, "tmp")
            garbage = [os.path.join(temporary, name) for name in os.listdir(temporary)]
            for id in os.listdir(trees):
                if id not in needed:
                    failpoint("snapshot.before_remove")
                    kept += self._keep_created(os.path.join(trees, id), id)
                    failpoint("snapshot.after_kept")
                    garbage.append(self._temporary())
                    os.rename(os.path.join(trees, id), garbage[-1])
            for path in garbage:
                _remove(path)
            failpoint("snapshot.before_objects")
            self._remove_objects()
        finally:
            self.close()
        return kept

    def _keep_created(self, tree: str, id: str) -> list[str]:
        """Move the files that jobs created in a tree to another folder."""
        folder = os.path.join(self._folder, "kept", id)
        for place, folders, names in os.walk(tree):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                path = os.path.join(place, name)
                info = os.lstat(path)
                if stat.S_ISREG(info.st_mode) and info.st_mtime != MARK and info.st_size:
                    goal = os.path.join(folder, os.path.relpath(path, tree))
                    os.makedirs(os.path.dirname(goal), 0o700, exist_ok=True)
                    os.rename(path, goal)
        return [folder] if os.path.isdir(folder) else []

    def _remove_objects(self) -> None:
        """Remove the objects that no tree has a link to."""
        objects = os.path.join(self._folder, "objects")
        for group in os.listdir(objects):
            folder = os.path.join(objects, group)
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if os.lstat(path).st_nlink == 1:
                    os.unlink(path)
            if not os.listdir(folder):
                os.rmdir(folder)


_LINK_TRIES = 100
_COPY_TRIES = 4  # of files that change meanwhile
_ENDINGS = {0o444: "", 0o555: ".x"}
_Stamp = tuple[int, int, int] | None


def _stamp(root: str, file: TreeFile) -> _Stamp:
    """What changes when a file is written; None if it is gone."""
    try:
        info = os.lstat(os.path.join(root, file.path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _copy(source: str, target: str, is_executable: bool) -> tuple[str, int, int]:
    """Copy a regular file; returns the SHA-256 and the size of what was copied, and its mode."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            digest, size = hashlib.sha256(), 0
            while block := os.read(reading, _BLOCK):
                digest.update(block)
                size += len(block)
                left = memoryview(block)
                while left:
                    left = left[os.write(writing, left) :]
            own, all = (0o500, 0o555) if is_executable else (0o400, 0o444)
            mode = os.fstat(reading).st_mode & all | own
            os.fchmod(writing, mode)
            os.utime(writing, (MARK, MARK))
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return digest.hexdigest(), size, mode


def _is_unchanged(path: str, size: int) -> bool:
    """Whether a file of a snapshot is there and as it was made."""
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size == size and info.st_mtime == MARK


def _link(stored: str, place: str) -> None:
    """Give an object a second name; copy it where the file system has no hard links."""
    for tries_left in reversed(range(_LINK_TRIES)):
        try:
            os.link(stored, place)
            return
        except FileNotFoundError:
            # Another submit replaced the object by an equal one between its lookup and the link.
            if not tries_left or not os.path.exists(stored):
                raise
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            shutil.copy2(stored, place)
            return


def _id_of(folder: str, root: str, content: WorkTree, objects: dict[str, str]) -> str:
    """A hash of both folders, and of all names, contents and links."""
    digest = hashlib.sha256()
    parts = [_FORMAT, os.fsencode(folder), os.fsencode(root)]
    for file in content.files:
        is_file = file.target is None
        value = os.path.basename(objects[file.path]) if is_file else f"link {file.target}"
        parts += [os.fsencode(file.path), os.fsencode(value)]
    parts += [b"", *map(os.fsencode, content.links)]
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()[:_ID_LENGTH]


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)


def _sync(folder: str) -> None:
    """Write the file system of a folder to disk: one call instead of one for each file."""
    import ctypes

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
