"""Create the virtual environment of the Makefile, or print the command that fixes a failure.

    python3 tools/make_environment.py .venv

Uses the first available of: `venv` and `ensurepip` of this Python, virtualenv, uv. A marker file in
the folder identifies an unfinished environment. Deletes and creates again what does not work: its
own environments, and environments without packages. Never deletes other folders. Uses only the
standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

_OLDEST = (3, 11)
_UNFINISHED = "unfinished"  # exists in the folder while it is being created
_COMPLETE = "complete"  # the target in the Makefile


def main(folder: Path) -> int:
    if sys.version_info < _OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        return _refuse(
            f"{sys.executable} is Python {found}; Stoker needs 3.11 or newer",
            "make demo PYTHON=python3.11",
        )
    if not _is_complete(folder):
        if not _is_disposable(folder):
            return _refuse(f"`{folder}` is not an environment with pip", f"rm -r {folder}")
        command = _maker()
        if command is None:
            return _refuse(
                f"{sys.executable} has no `ensurepip`, so it cannot create an environment",
                _install_command(),
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / _UNFINISHED).touch()
        made = subprocess.run([*command, str(folder)])
        if made.returncode != 0:
            return _refuse(f"{' '.join(command)} failed with exit code {made.returncode}")
        (folder / _UNFINISHED).unlink()
    if not (folder / _COMPLETE).exists():
        (folder / _COMPLETE).touch()
    return 0


def _is_complete(folder: Path) -> bool:
    """Whether the environment is finished, its Python still exists, and it has pip."""
    if (folder / _UNFINISHED).exists():
        return False
    words = ["-c", "pass"] if (folder / _COMPLETE).exists() else ["-m", "pip", "--version"]
    try:
        tried = subprocess.run([str(folder / "bin" / "python"), *words], capture_output=True)
    except OSError:
        return False
    return tried.returncode == 0


def _is_disposable(folder: Path) -> bool:
    """Whether the folder is missing, made by this script, or an environment without packages."""
    if not folder.exists() or any((folder / mark).exists() for mark in (_UNFINISHED, _COMPLETE)):
        return True
    packages = [*folder.glob("lib/python*/site-packages/*")]
    return not any(folder.iterdir()) or ((folder / "pyvenv.cfg").exists() and not packages)


def _maker() -> list[str] | None:
    """The command that creates an environment, without its last argument (the folder)."""
    if find_spec("venv") is not None and find_spec("ensurepip") is not None:
        return [sys.executable, "-m", "venv"]
    if find_spec("virtualenv") is not None:
        return [sys.executable, "-m", "virtualenv", "--quiet"]
    virtualenv, uv = shutil.which("virtualenv"), shutil.which("uv")
    if virtualenv is not None:
        return [virtualenv, "--quiet", "--python", sys.executable]
    if uv is not None:
        return [uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", sys.executable]
    return None


def _install_command() -> str:
    if shutil.which("apt-get") is None:
        return "install virtualenv or uv, or a Python with ensurepip"
    # Debian's python3-venv is for its default Python only.
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install -y {package}"


def _refuse(problem: str, hint: str | None = None) -> int:
    sys.stderr.write(f"error: {problem}\n" + (f"hint: {hint}\n" if hint else ""))
    return 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
