"""A secret in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat

from stoker.errors import NoPermission, UsageError

_BYTES = 32
_SHORTEST = 32  # characters of a token that a user brings


def load_token(path: str) -> str:
    """The token in this file; made when there is none."""
    return read_token(path) if os.path.lexists(path) else _make(path)


def read_token(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"cannot read the token file `{path}`: {error.strerror}") from None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            raise NoPermission(f"the token file `{path}` is not a file of yours")
        if info.st_mode & 0o077:
            raise NoPermission(
                f"the token file `{path}` is open to other users", f"chmod 600 {path}"
            )
        text = os.read(descriptor, 4096).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(text) < _SHORTEST or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"the token file `{path}` holds no token of {_SHORTEST} or more characters",
            "remove it, and a good one is made",
        )
    return text


def _make(path: str) -> str:
    token = secrets.token_urlsafe(_BYTES)
    try:
        # Under another name first: whoever reads finds a whole token or none.
        part = f"{path}.{os.getpid()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(part, flags, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(part, path)
    except OSError as error:
        raise UsageError(f"cannot write the token file `{path}`: {error.strerror}") from None
    return token
