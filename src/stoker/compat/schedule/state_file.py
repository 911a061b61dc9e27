"""The state file of `schedule`: JSON with six parallel lists, which users' scripts read.

Only the number of GPUs and the unavailable GPUs are read from it. Everything else is a copy of the
leases, which alone decide which task runs where. A file that was edited, damaged or deleted shows
wrong information until the next call, but never makes two tasks share a GPU.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stoker.errors import NoPermission
from stoker.record import Record

PATH = "/tmp/gpu_scheduler_info"
DEFAULT_COUNT = 4
_MAX_GPUS = 4096  # a damaged file must not be read as millions of GPUs
_MAX_BYTES = 1 << 24
_LOCK_SECONDS = 2.0


class Entry(Record):
    """One GPU. Not available with all other fields None: marked unavailable with `-i`."""

    avail: bool = True
    gpu_name: str | None = None
    task: list[str] | None = None
    task_pid: int | None = None
    task_start: str | None = None
    user: str | None = None

    @property
    def is_disabled(self) -> bool:
        return not self.avail and self == _DISABLED


FREE = Entry()
_DISABLED = Entry(avail=False)
# (index of a GPU, its entry in the file) -> the entry that matches the leases.
ActualState = Callable[[int, Entry], Entry]


def fresh(count: int, disabled: tuple[int, ...] = ()) -> list[Entry]:
    """Entries without tasks.

    >>> [entry.avail for entry in fresh(3, (1, 7))]
    [True, False, True]
    """
    return [_DISABLED if index in disabled else FREE for index in range(min(count, _MAX_GPUS))]


def dump(entries: list[Entry]) -> str:
    fields = {name: [getattr(entry, name) for entry in entries] for name in Entry._fields}
    return json.dumps(fields, indent=4, sort_keys=True)


def load(text: str) -> list[Entry] | None:
    """The entries of a state file; None if the text is not one."""
    try:
        content = json.loads(text)
        states = content["avail"]
        count = len(states)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(states, list) or count > _MAX_GPUS:
        return None
    columns = []
    for name in Entry._fields:
        column = content.get(name)
        values = column if isinstance(column, list) else []
        columns.append([*values, *[None] * count][:count])
    return [_validated(Entry(*row)) for row in zip(*columns, strict=True)]


def _validated(entry: Entry) -> Entry:
    """The entry without values of a wrong type, since any user can write the file."""
    is_list = isinstance(entry.task, list)
    is_pid = isinstance(entry.task_pid, int) and not isinstance(entry.task_pid, bool)
    return Entry(
        entry.avail is not False,
        str(entry.gpu_name) if entry.gpu_name is not None else None,
        [str(word) for word in entry.task or ()] if is_list else None,
        entry.task_pid if is_pid else None,
        str(entry.task_start) if entry.task_start is not None else None,
        str(entry.user) if entry.user is not None else None,
    )


def status_text(entries: list[Entry]) -> str:
    lines = []
    used = [entry for entry in entries if not entry.avail]
    free = [index for index, entry in enumerate(entries) if entry.avail]
    if used:
        lines += ["Currently used GPU:", "-------------------"]
    for entry in used:
        lines += [
            f"GPU: {entry.gpu_name}",
            f"User: {entry.user}",
            f"Task: {entry.task}",
            f"Task PID: {entry.task_pid}",
            f"Started: {entry.task_start}",
            "",
        ]
    if free:
        lines += ["Free GPU:", "---------", *(f"GPU {index}" for index in free)]
    else:
        lines.append("No GPU available.")
    return "".join(f"{line}\n" for line in lines)


class StateFile:
    """The state file. Every change happens under its lock and also copies the leases into it."""

    def __init__(self, actual_state: ActualState, default_count: int = DEFAULT_COUNT) -> None:
        self.path = os.environ.get("STOKER_SCHEDULE_FILE") or PATH
        self._actual_state = actual_state
        self._default = default_count
        self.was_damaged = False
        self._last: list[Entry] | None = None  # used while the file cannot be opened

    def read(self) -> list[Entry]:
        """Update the file from the leases and return its entries."""
        return self.change(lambda entries: entries)

    def peek(self) -> list[Entry]:
        """The entries as they are in the file: takes no lock and does not check the leases."""
        descriptor = self._open()
        if descriptor is not None:
            try:
                found = load(os.pread(descriptor, _MAX_BYTES, 0).decode("utf-8", "replace"))
                self._last = self._last if found is None else found
            finally:
                os.close(descriptor)
        return fresh(self._default) if self._last is None else self._last

    def change(self, edit: Callable[[list[Entry]], list[Entry]]) -> list[Entry]:
        """Apply `edit` and return the new entries.

        Raises NoPermission if `edit` changed something and the file is not writable.
        """
        with self._opened() as descriptor:
            text = b"" if descriptor is None else os.pread(descriptor, _MAX_BYTES, 0)
            found = load(text.decode("utf-8", "replace"))
            if found is None:
                self.was_damaged = bool(text)
                found = fresh(self._default) if self._last is None else self._last
            wanted = edit(found)
            changed = wanted != found
            wanted = [self._actual_state(index, entry) for index, entry in enumerate(wanted)]
            if dump(wanted).encode() != text:
                self._write(descriptor, dump(wanted).encode(), changed)
            self._last = wanted
            return wanted

    def _write(self, descriptor: int | None, data: bytes, is_needed: bool) -> None:
        if descriptor is not None:
            try:
                # Write before truncating, so that a reader without the lock sees a whole file.
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
                return
            except OSError as error:
                if error.errno not in (errno.EBADF, errno.EINVAL):  # not opened read-only
                    is_needed = False  # e.g. a full disk: the leases do not depend on the file
        if is_needed:
            raise NoPermission(
                f"cannot write the state file `{self.path}`",
                "ask its owner to run: chmod 666 " + self.path,
            )

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """The locked file; None if it cannot be opened, which is harmless since it is a copy."""
        descriptor = self._open()
        if descriptor is None:
            yield None
            return
        try:
            _lock(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        # Another user may have put a symlink or FIFO there: do not follow it or block on it.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        for more in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
            try:
                descriptor = os.open(self.path, flags | more, 0o666)
            except OSError:
                continue
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
                os.close(descriptor)
                return None
            if more & os.O_CREAT:
                os.fchmod(descriptor, 0o666)  # for all users, regardless of the umask
            return descriptor
        return None


def _lock(descriptor: int) -> None:
    """Take the lock, or continue without it after two seconds: any user can hold it for ever."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
