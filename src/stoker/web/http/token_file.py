"""The secret token of a server, in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat

from stoker.errors import NoPermission, UsageError

_BYTES = 32
_MIN_LENGTH = 32  # also for a token that a user wrote into the file


def load_token(path: str) -> str:
    """Read the token from this file; create the file when it does not exist."""
    return read_token(path) if os.path.lexists(path) else _create(path)


def read_token(path: str) -> str:
    """Read the token; raises UsageError or NoPermission when the file is not usable or not safe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"cannot read the token file `{path}`: {error.strerror}") from None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            raise NoPermission(f"the token file `{path}` is not a regular file that you own")
        if info.st_mode & 0o077:
            raise NoPermission(
                f"the token file `{path}` is open to other users", f"chmod 600 {path}"
            )
        text = os.read(descriptor, 4096).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(text) < _MIN_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"the token file `{path}` contains no token of {_MIN_LENGTH} or more characters",
            "remove the file, and Stoker creates a new token",
        )
    return text


def _create(path: str) -> str:
    token = secrets.token_urlsafe(_BYTES)
    try:
        # Written under another name first: a reader finds a complete token or no file.
        temporary = f"{path}.{os.getpid()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write the token file `{path}`: {error.strerror}") from None
    return token
