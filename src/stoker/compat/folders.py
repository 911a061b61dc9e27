"""Where a door keeps things: what jobs of one run leave, which goes with it, and what was not run.

Most runs need no folder at all, so none is made before somebody has something to put there.
"""

from __future__ import annotations

import os
import time

from stoker.errors import NoPermission
from stoker.settings import Settings, prepare_state_dir

_PREFIX = "door-"


def new_folder(settings: Settings) -> str:
    """A path for the folder of this run.

    It is where other runs have theirs, unless the state folder cannot be used. (It may be on a
    network, where locks cannot be trusted. What only one process uses needs no locks.)
    """
    try:
        prepare_state_dir(settings)
        runs = os.path.join(settings.state_dir, "runs")
        _remove_left(runs)
    except (NoPermission, OSError):
        import tempfile

        runs = tempfile.gettempdir()
    return os.path.join(runs, f"{_PREFIX}{os.getpid()}-{time.time_ns()}")


def remove_folder(folder: str) -> None:
    if os.path.isdir(folder):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(runs: str) -> None:
    """What runs that were killed have left here."""
    for name in os.listdir(runs) if os.path.isdir(runs) else ():
        pid = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            remove_folder(os.path.join(runs, name))


def keep_commands(settings: Settings, door: str, commands: list[str]) -> str:
    """Write down commands that nobody else may know any more; the path of the file."""
    name = f"{door}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        prepare_state_dir(settings)
        folder = os.path.join(settings.state_dir, "not-run")
        os.makedirs(folder, 0o700, exist_ok=True)
    except (NoPermission, OSError):
        import tempfile

        folder = tempfile.mkdtemp(prefix="stoker-not-run-")
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write("".join(f"{line}\n" for line in commands).encode("utf-8", "surrogateescape"))
    return path
