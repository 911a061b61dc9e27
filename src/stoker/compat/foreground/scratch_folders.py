"""Where a door keeps things: what jobs of one run leave, which goes with it, and what was not run.

Most runs need no folder at all, so none is made before somebody has something to put there.
"""

from __future__ import annotations

import os
import time

from stoker.core.formats.byte_text import to_system
from stoker.errors import NoPermission
from stoker.settings import Settings, prepare_state_dir

_PREFIX = "door-"


def new_folder(settings: Settings) -> str:
    """A path for the folder of this run, which nobody has made yet.

    It is where other runs have theirs, if there is a state folder that can be used. (It may be on a
    network, where locks cannot be trusted. What only one process uses needs no locks.) One that is
    not there is not made for this: a job that wants its own folder would make it, open to all.
    """
    if os.path.isdir(settings.state_dir):
        try:
            prepare_state_dir(settings)
            runs = os.path.join(settings.state_dir, "runs")
            _remove_left(runs)
            return os.path.join(runs, f"{_PREFIX}{os.getpid()}-{time.time_ns()}")
        except (NoPermission, OSError):
            pass
    # A name that nobody can have taken before us.
    return os.path.join(_temporary(), f"stoker-{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")


def _temporary() -> str:
    """What tempfile would say; importing that takes longer than a short run may."""
    path = os.environ.get("TMPDIR", "")
    return path if os.path.isabs(path) and os.access(path, os.W_OK) else "/tmp"


def here() -> str:
    """Where jobs are run: the working folder, even if somebody has removed it meanwhile."""
    try:
        return os.getcwd()
    except OSError:
        return "."


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
        file.write(to_system("".join(f"{line}\n" for line in commands)))
    return path
