"""The file that `schedule` shows the world: six parallel lists, as scripts of its users read them.

It says how many GPUs there are and which of them are not to be used; all else in it is copied from
the leases, which alone decide who runs where. So a file that was edited, damaged, deleted or made
by somebody else can show something wrong until the next call, and can never book a GPU twice.
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

from stoker.core.record import Record
from stoker.errors import NoPermission

PATH = "/tmp/gpu_scheduler_info"
DEFAULT_COUNT = 4
_MOST = 4096  # GPUs; a damaged file must not make us wait for millions
_MOST_BYTES = 1 << 24
_LOCK_SECONDS = 2.0


class Entry(Record):
    """One GPU. All None and not available: somebody said that it is not to be used."""

    avail: bool = True
    gpu_name: str | None = None
    task: list[str] | None = None
    task_pid: int | None = None
    task_start: str | None = None
    user: str | None = None

    @property
    def is_withheld(self) -> bool:
        return not self.avail and self == _WITHHELD


FREE = Entry()
_WITHHELD = Entry(avail=False)
# How a GPU really is: its number, and what the file says of it.
Truth = Callable[[int, Entry], Entry]


def fresh(count: int, withheld: tuple[int, ...] = ()) -> list[Entry]:
    """
    >>> [entry.avail for entry in fresh(3, (1, 7))]
    [True, False, True]
    """
    return [_WITHHELD if index in withheld else FREE for index in range(min(count, _MOST))]


def dump(entries: list[Entry]) -> str:
    fields = {name: [getattr(entry, name) for entry in entries] for name in Entry._fields}
    return json.dumps(fields, indent=4, sort_keys=True)


def load(text: str) -> list[Entry] | None:
    """The entries; None when this is no such file."""
    try:
        content = json.loads(text)
        states = content["avail"]
        count = len(states)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(states, list) or count > _MOST:
        return None
    columns = []
    for name in Entry._fields:
        column = content.get(name)
        known = column if isinstance(column, list) else []
        columns.append([*known, *[None] * count][:count])
    return [_sound(Entry(*values)) for values in zip(*columns, strict=True)]


def _sound(entry: Entry) -> Entry:
    """Anybody may have written there; what has the wrong type is nothing."""
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
        lines += [f"GPU: {entry.gpu_name}", f"User: {entry.user}", f"Task: {entry.task}",
                  f"Task PID: {entry.task_pid}", f"Started: {entry.task_start}", ""]  # fmt: skip
    if free:
        lines += ["Free GPU:", "---------", *(f"GPU {index}" for index in free)]
    else:
        lines.append("No GPU available.")
    return "".join(f"{line}\n" for line in lines)


class StateFile:
    """The file, changed only under its lock, and brought to the truth with every change."""

    def __init__(self, truth: Truth, default_count: int = DEFAULT_COUNT) -> None:
        self.path = os.environ.get("STOKER_SCHEDULE_FILE") or PATH
        self._truth = truth
        self._default = default_count
        self.was_damaged = False
        self._known: list[Entry] | None = None  # for when the file cannot be had

    def read(self) -> list[Entry]:
        """How things are; what the file has wrong is put right."""
        return self.change(lambda entries: entries)

    def peek(self) -> list[Entry]:
        """What the file says, without asking whether it is true: no lock is touched."""
        descriptor = self._open()
        if descriptor is not None:
            try:
                found = load(os.pread(descriptor, _MOST_BYTES, 0).decode("utf-8", "replace"))
                self._known = self._known if found is None else found
            finally:
                os.close(descriptor)
        return fresh(self._default) if self._known is None else self._known

    def change(self, how: Callable[[list[Entry]], list[Entry]]) -> list[Entry]:
        """Raises NoPermission when the file cannot be written and something has to be."""
        with self._opened() as descriptor:
            text = b"" if descriptor is None else os.pread(descriptor, _MOST_BYTES, 0)
            found = load(text.decode("utf-8", "replace"))
            if found is None:
                self.was_damaged = bool(text)
                found = fresh(self._default) if self._known is None else self._known
            wanted = how(found)
            changed = wanted != found
            wanted = [self._truth(index, entry) for index, entry in enumerate(wanted)]
            if dump(wanted).encode() != text:
                self._write(descriptor, dump(wanted).encode(), changed)
            self._known = wanted
            return wanted

    def _write(self, descriptor: int | None, data: bytes, is_needed: bool) -> None:
        if descriptor is not None:
            try:
                # One write before the cut: a reader without the lock hardly ever sees half of it.
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
                return
            except OSError as error:
                if error.errno not in (errno.EBADF, errno.EINVAL):  # opened for reading only
                    is_needed = False  # a full disk: what is shown is not worth failing for
        if is_needed:
            raise NoPermission(f"the state file `{self.path}` cannot be written",
                               "its owner can: chmod 666 " + self.path)  # fmt: skip

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """The locked file; None when it cannot be had, for it is only a picture."""
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
        # What somebody planted there (a link, a FIFO) is neither followed nor waited for.
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
                os.fchmod(descriptor, 0o666)  # for all users, whatever our mask is
            return descriptor
        return None


def _lock(descriptor: int) -> None:
    """Not for ever: anybody may hold the lock of a file that everybody can open."""
    give_up = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                return
            time.sleep(0.005)
