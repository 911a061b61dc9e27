"""Read the paths of output files, whose patterns (text/commands/output_patterns.py) are stored."""

from __future__ import annotations

import os

from stoker.text.byte_text import maybe_text, to_text, unpack_pairs
from stoker.text.commands.output_patterns import expand_patterns, literal_path, safe_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "OUTPUT_FIELDS",
    "expand_output",
    "expand_outputs",
    "literal_path",
    "output_dir_in",
    "own_node",
]


def own_node() -> str:
    """The name of this host, or of this node in its cluster, for `%N`."""
    for key in ("SLURMD_NODENAME", "STOKER_WORKER_NODE"):
        if os.environ.get(key):
            return os.environ[key]
    return os.uname().nodename


def expand_output(
    stored: bytes | None,
    *,
    job: int,
    name: bytes | None,
    array: tuple[int | None, int | None],
    node: str | None,
) -> str | None:
    """Return the path of an output file; None if none was given.

    `array`: id and index of the array; `node`: where the job runs. If that is not known (None),
    `%N` is kept and the path is in the form in which it is stored.
    """
    if stored is None or b"%" not in stored:
        return maybe_text(stored)

    def value(letter: str) -> object:
        id, index = array
        if letter == "A":
            return job if id is None else id
        if letter in "ab":
            return (index or 0) % 10 if letter == "b" else index or 0
        if letter == "x":
            return safe_name(to_text(name)) if name else "job"
        return _user() if letter == "u" else node if letter == "N" else job

    return expand_patterns(to_text(stored), value, keeps_node=node is None)


# The columns of a job that `expand_outputs` reads besides the paths, and where it runs.
OUTPUT_FIELDS = ("name", "batch", "batch_index", "array_index", "node")


def expand_outputs(fields: dict[str, Any], job: int, node: str | None) -> None:
    """Expand the paths of the output files in the columns of a job."""
    if fields["stdout"] is None and fields["stderr"] is None:
        return
    index = fields["array_index"]
    array = (fields["batch"], fields["batch_index"] if index is None else index)
    for key in ("stdout", "stderr"):
        fields[key] = expand_output(
            fields[key], job=job, name=fields["name"], array=array, node=node
        )


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or str(os.getuid())


def output_dir_in(variables: bytes | None) -> str | None:
    """$STOKER_OUTPUT_DIR in the variables of a job; only those of trials have it."""
    return dict(unpack_pairs(variables)).get("STOKER_OUTPUT_DIR") if variables else None
