"""Output paths with `%j`, as in Slurm: `-o out-%j.txt`.

The database stores the path as given; these columns insert the job id when it is read, because a
rerun has another id. In a path for which `%j` has no meaning, it is stored as `%`, NUL, `j`: no
path contains NUL.
"""

from __future__ import annotations

_PATH = "CAST(replace(replace({0}, '%j', j.id), '%' || char(0) || 'j', '%j') AS BLOB)"
STDOUT = _PATH.format("j.stdout")
STDERR = _PATH.format("j.stderr")


def literal_path(path: str) -> str:
    """The path as it must be stored so that `%j` in it stays as it is."""
    return path.replace("%j", "%\0j")
