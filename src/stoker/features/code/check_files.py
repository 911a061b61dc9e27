"""Files with a recorded state of code, which the first process of a job compares with its folder.

`code/checks/ID` in the state folder, or in the folder of a backend's chunk: a line of JSON with the
work tree and the commit, then the diff. The state folder's database is not used, because only the
daemon and clients read it. On a node that has copies of the folders, the line has the difference
(`note`) that was found when they were copied.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from stoker.features.code.state_reader import changed_since, named_files

_CHECKS = "code/checks"


def write_check(state_dir: str, code: int, root: str, commit: str | None, diff: bytes) -> str:
    """Write the file for a state of code; returns its path. Raises OSError."""
    import json

    path = check_path(state_dir, code)
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(json.dumps({"root": root, "commit": commit}).encode() + b"\n" + diff)
    os.rename(temporary, path)
    return path


def check_path(state_dir: str, code: int) -> str:
    return os.path.join(_folder(state_dir), str(code))


def difference(path: str) -> str:
    """`the code has changed since submit: train.py`; "" if it has not, or that is not known."""
    import json

    try:
        with open(path, "rb") as file:
            head = json.loads(file.readline())
            diff = file.read()
    except (OSError, ValueError):
        return ""
    if "note" in head:
        return str(head["note"])
    changed = changed_since(head["root"], head["commit"], diff)
    if isinstance(changed, str) or not changed:
        return ""
    return f"the code has changed since submit: {named_files(changed)}"


def decided_checks(state_dir: str) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each file, for a node that has copies of the folders."""
    import json

    try:
        names = sorted(os.listdir(_folder(state_dir)))
    except FileNotFoundError:
        return
    for name in names:
        note = difference(os.path.join(_folder(state_dir), name))
        yield f"{_CHECKS}/{name}", json.dumps({"note": note}).encode() + b"\n"


def remove_checks(state_dir: str, used: Collection[int]) -> None:
    """Remove the files of states that are not in the database any more."""
    try:
        names = os.listdir(_folder(state_dir))
    except FileNotFoundError:
        return
    for name in names:
        if not name.isdigit() or int(name) not in used:
            try:
                os.unlink(os.path.join(_folder(state_dir), name))
            except FileNotFoundError:
                pass  # another removal was faster


def _folder(state_dir: str) -> str:
    return os.path.join(state_dir, _CHECKS)
