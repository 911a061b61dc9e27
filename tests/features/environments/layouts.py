"""Folders that look like environments: as fast as possible, and without installing anything."""

from __future__ import annotations

import sys
from pathlib import Path

PREFIX = "import sys; print(sys.prefix)"


def venv(folder: Path) -> Path:
    """A virtual environment of this Python, as `python -m venv` makes it, without pip."""
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(sys.executable)
    home = Path(sys.base_prefix) / "bin"
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    return folder


def conda(prefix: Path, *, script: str = "", variables: str = "") -> Path:
    """A conda environment. `script`: an activation script; `variables`: JSON, set by the user."""
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    program = prefix / "bin" / "where"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$CONDA_PREFIX" "$OF_SCRIPT" "$OF_STATE"\n')
    program.chmod(0o755)
    if variables:
        (prefix / "conda-meta" / "state").write_text(f'{{"env_vars": {variables}}}')
    if script:
        scripts = prefix / "etc" / "conda" / "activate.d"
        scripts.mkdir(parents=True)
        (scripts / "a.sh").write_text(script)
    return prefix


# A fake of Environment Modules: `module load NAME` prepends folders/NAME/bin to PATH.
MODULES = """\
module() {
  [ "$1" = load ] || return 1
  [ -d "$FAKE_MODULES/$2" ] || { echo "module: $2 unknown" >&2; return ${FAKE_STATUS:-1}; }
  export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}$2"
  export PATH="$FAKE_MODULES/$2/bin:$PATH"
}
set -- changed arguments
"""


def modules(folder: Path, *names: str) -> dict[str, str]:
    """Environment modules with these names; returns the variables that announce them."""
    (folder / "home" / "init").mkdir(parents=True)
    (folder / "home" / "init" / "bash").write_text(MODULES)
    for name in names:
        (folder / "files" / name / "bin").mkdir(parents=True)
        program = folder / "files" / name / "bin" / "tool"
        program.write_text(f"#!/bin/sh\necho tool of {name}\n")
        program.chmod(0o755)
    return {"MODULESHOME": str(folder / "home"), "FAKE_MODULES": str(folder / "files")}
