"""Sessions that were logged out and tickets that were used; on disk, to survive a restart."""

from __future__ import annotations

import hashlib
import os

from stoker.errors import TryLater


class Revocations:
    """A file with one line for each: a hash (the text itself is a secret) and when it expires."""

    def __init__(self, path: str | None, now: float) -> None:
        """With `path=None`, revocations are kept in memory only."""
        self._path = path
        self._expiries: dict[str, int] = {}
        if path is None:
            return
        lines = _lines(path)
        for line in lines:
            digest, _, end = line.partition(" ")
            if end.isdigit() and int(end) > now:
                self._expiries[digest] = int(end)
        if len(self._expiries) < len(lines):  # some have expired
            self._rewrite(path)

    def __contains__(self, text: str) -> bool:
        return _digest(text) in self._expiries

    def add(self, text: str, end: int) -> None:
        """Revoke, also across a crash; raises TryLater when the file cannot be written."""
        digest = _digest(text)
        if digest in self._expiries:
            return
        self._expiries[digest] = end
        if self._path is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, f"{digest} {end}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            del self._expiries[digest]
            raise TryLater(
                f"cannot write `{self._path}`: {error.strerror}", "the cookie is still valid"
            ) from None

    def _rewrite(self, path: str) -> None:
        temporary = f"{path}.new"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "w", encoding="ascii") as file:
                file.writelines(f"{digest} {end}\n" for digest, end in self._expiries.items())
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError:
            pass  # the longer file means the same


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        # Without the file, sessions that were logged out would be valid again.
        raise TryLater(f"cannot read `{path}`: {error.strerror}") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
