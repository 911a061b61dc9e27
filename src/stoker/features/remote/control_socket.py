"""The folder of ssh's control sockets, by which commands share one connection to a box."""

from __future__ import annotations

import hashlib
import os
import stat

from stoker.errors import NoPermission

# The limit is 104 to 108 bytes, and ssh adds 17 while it creates a socket.
_MAX_PATH = 104 - 1 - 17
_NAME_LENGTH = 20


def control_path(*identity: object) -> str:
    """The path of the socket for a connection with this identity. Raises NoPermission."""
    digest = hashlib.sha256(repr(identity).encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(_private_folder(), digest[: _NAME_LENGTH - 4])


def _private_folder() -> str:
    """A folder with a short path that no other user can write to; created if missing."""
    problem = ""
    for base, name in _candidates():
        path = os.path.join(base, name)
        if len(os.fsencode(path)) + 1 + _NAME_LENGTH > _MAX_PATH:
            problem = problem or f"the path `{path}` is too long"
            continue
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            problem = f"cannot create `{path}`: {error.strerror}"
            continue
        info = os.lstat(path)
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077:
            return path
        problem = f"`{path}` is not a private folder of yours"
    raise NoPermission(
        f"there is no place for the socket of ssh: {problem}",
        "set XDG_RUNTIME_DIR to a private folder with a short path",
    )


def _candidates() -> list[tuple[str, str]]:
    found = [("/tmp", f"stoker-ssh-{os.geteuid()}"), (os.path.expanduser("~"), ".stoker-ssh")]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return [(runtime, "stoker-ssh"), *found] if runtime else found
