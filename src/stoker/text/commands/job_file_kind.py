"""Recognize files that are not job files, so that their lines are not queued as commands."""

from __future__ import annotations

_LANGUAGES = {
    "py": "python",
    "ipynb": "jupyter nbconvert --execute",
    "r": "Rscript",
    "jl": "julia",
    "js": "node",
    "pl": "perl",
    "rb": "ruby",
}
_SWEEPS = ("toml", "yaml", "yml", "json")
_SHEBANGS = ("python", "Rscript", "julia", "node", "perl", "ruby")
_PYTHON_STARTS = ("def ", "class ", "@", '"""', "'''")


def other_use(path: str, head: str) -> tuple[str, str] | None:
    """Return what a file is and the command that runs it; None for a list of commands.

    >>> other_use("train.py", "")
    ('is a program', 'python train.py')
    >>> other_use("jobs.txt", "python train.py --lr 0.1") is None
    True
    """
    suffix = path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path else ""
    if suffix in _LANGUAGES:
        return "is a program", f"{_LANGUAGES[suffix]} {path}"
    if suffix in _SWEEPS:
        return "is not a list of commands", ""
    lines = [line.strip() for line in head.splitlines()]
    if lines and lines[0].startswith("#!"):
        program = next((name for name in _SHEBANGS if name in lines[0]), None)
        if program is not None:
            return "is a program", f"{program} {path}"
    if any(line.startswith("#SBATCH ") for line in lines):
        return "is one script with #SBATCH options", path
    first = next((line for line in lines if line and line[0] != "#"), "")
    is_import = first.startswith("import ") or (first.startswith("from ") and " import " in first)
    if is_import or first.startswith(_PYTHON_STARTS):
        return "looks like Python", f"python {path}"
    return None
