"""Finds paths on which system calls may hang: those on network and FUSE file systems.

If an NFS server is down, or a FUSE program is stuck, every call on one of its paths may wait
forever. The mount table lists such file systems, and symbolic links are resolved one by one without
entering them.
"""

from __future__ import annotations

import os
import select
import time

# Served by the kernel from memory or a local disk. Everything else may hang.
_LOCAL = frozenset(
    b"bcachefs binfmt_misc bpf btrfs cgroup cgroup2 configfs debugfs devpts devtmpfs"
    b" efivarfs erofs exfat ext2 ext3 ext4 f2fs fusectl hfs hfsplus hugetlbfs iso9660 jfs minix"
    b" mqueue msdos nilfs2 nsfs ntfs ntfs3 overlay proc pstore ramfs reiserfs rootfs rpc_pipefs"
    b" securityfs selinuxfs squashfs sysfs tmpfs tracefs udf ufs vfat xfs zfs".split()
)
_MAX_LINKS = 40
_CACHE_SECONDS = 1.0
_INTERPRETER_BYTES = 256  # what the kernel reads of a `#!` line


class Mounts:
    """The mount table of this process, read again when the kernel reports a change."""

    def __init__(self, path: str = "/proc/self/mountinfo") -> None:
        self._table = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._changes = select.poll()
        self._changes.register(self._table, select.POLLPRI)
        self._remote: frozenset[bytes] = frozenset()
        self._known: dict[bytes, bool] = {}
        self._forget_at = 0.0
        self._read()

    def __del__(self) -> None:
        try:
            os.close(self._table)
        except (AttributeError, OSError):
            pass  # it was never opened, or the interpreter is shutting down

    def any_may_hang(self, paths: list[bytes], programs: list[bytes]) -> bool:
        """Whether a call on one of these paths, or executing one of these programs, may hang."""
        if self._has_changed():
            self._read()
        if not self._remote:
            return False
        now = time.monotonic()
        if now >= self._forget_at:  # links may have changed
            self._known.clear()
            self._forget_at = now + _CACHE_SECONDS
        if any(self._may_hang(path) for path in paths):
            return True
        return any(
            self._may_hang(program) or self._may_hang(_interpreter(program)) for program in programs
        )

    def may_hang(self, path: bytes) -> bool:
        return self.any_may_hang([path], [])

    def _has_changed(self) -> bool:
        try:
            return bool(self._changes.poll(0))
        except OSError:  # RLIMIT_NOFILE is 0, so the kernel refuses poll
            return True

    def _may_hang(self, path: bytes) -> bool:
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._leads_to_remote(path)
        return known

    def _leads_to_remote(self, path: bytes) -> bool:
        if b"/" in self._remote:
            return True
        left = path.split(b"/")[::-1]
        here = b""
        links = 0
        while left:
            name = left.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                here = here.rpartition(b"/")[0]
                continue
            step = here + b"/" + name
            if step in self._remote:
                return True
            try:
                target = os.readlink(step)
            except FileNotFoundError:
                return False
            except OSError:  # not a link
                here = step
                continue
            links += 1
            if links > _MAX_LINKS:
                return False
            if target[:1] == b"/":
                here = b""
            left += target.split(b"/")[::-1]
        return False

    def _read(self) -> None:
        kinds: dict[bytes, bytes] = {}
        data = b""
        os.lseek(self._table, 0, os.SEEK_SET)
        while piece := os.read(self._table, 1 << 16):
            data += piece
        for line in data.splitlines():
            before, _, after = line.partition(b" - ")
            fields = before.split(b" ")
            if len(fields) > 4 and after:
                kinds[_unescaped(fields[4])] = after.split(b" ", 1)[0]
        self._remote = frozenset(place for place, kind in kinds.items() if kind not in _LOCAL)
        self._known.clear()


def _interpreter(program: bytes) -> bytes:
    """The program that the kernel starts for a script; b"" if it is not a script."""
    try:
        descriptor = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        line = os.read(descriptor, _INTERPRETER_BYTES).partition(b"\n")[0]
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    words = line[2:].split() if line[:2] == b"#!" else []
    return words[0] if words else b""


def _unescaped(place: bytes) -> bytes:
    """Decode the \\NNN escapes of the mount table."""
    if b"\\" not in place:
        return place
    first, *rest = place.split(b"\\")
    return first + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in rest)
