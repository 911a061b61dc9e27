"""Folders of foreground runs: a temporary one per run, and one for commands that were not run.

Most runs need no folder, so it is created when the first file is written.
"""

from __future__ import annotations

import os
import time

from stoker.core.formats.byte_text import to_system
from stoker.errors import NoPermission
from stoker.settings import Settings, prepare_state_dir

_PREFIX = "compat"


def new_folder(settings: Settings) -> str:
    """A path for the folder of this run, which does not exist yet.

    It is inside the state folder if that exists and is usable. A network file system is fine, since
    only one process uses the folder and no locks are needed. A missing state folder is not created:
    a job that creates its own folder would create it too, readable by every user.
    """
    if os.path.isdir(settings.state_dir):
        try:
            prepare_state_dir(settings)
            runs = os.path.join(settings.state_dir, "runs")
            _remove_leftovers(runs)
            return os.path.join(runs, f"{_PREFIX}-{os.getpid()}-{time.time_ns()}")
        except (NoPermission, OSError):
            pass
    # Unpredictable, so that no other user can create it first.
    return os.path.join(
        _temporary_folder(), f"stoker-{_PREFIX}-{os.getpid()}-{os.urandom(8).hex()}"
    )


def _temporary_folder() -> str:
    """Like `tempfile.gettempdir`, without the slow import of `tempfile`."""
    path = os.environ.get("TMPDIR", "")
    return path if os.path.isabs(path) and os.access(path, os.W_OK) else "/tmp"


def working_directory() -> str:
    """The current directory, or `.` if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return "."


def remove_folder(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            os.rmdir(os.path.join(folder, name))  # output folders of jobs, usually empty
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError:
        import shutil  # slow to import

        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(runs: str) -> None:
    """Remove the folders of runs that were killed."""
    for name in os.listdir(runs) if os.path.isdir(runs) else ():
        prefix, *numbers = name.split("-")  # PREFIX-PID-TIME; other names are of `stoker run`
        if len(numbers) != 2 or prefix != _PREFIX or not numbers[0].isdigit():
            continue
        if not os.path.exists(f"/proc/{numbers[0]}"):
            remove_folder(os.path.join(runs, name))


def save_commands(settings: Settings, tool: str, commands: list[str]) -> str:
    """Save commands that were not run, which may have come from a pipe; returns the path."""
    name = f"{tool}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
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
