"""The version of the Python that a process runs, from the path of its program."""

from __future__ import annotations

import os

_BUILD = "/cpython-"  # uv and others install into folders such as cpython-3.11.4-linux-x86_64-gnu


def python_of_process(pid: int) -> str:
    """`3.11` or `3.11.4`; "" if the process has exited, or its program is not named as a Python."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
    return python_of_path(path)


def python_of_path(path: str) -> str:
    """The version in the path of a program; "" if there is none."""
    name = path.rpartition("/")[2]
    if not name.startswith("python"):
        return ""
    version = name.removeprefix("python").rstrip("dmtu")
    build = path.rpartition(_BUILD)[2].partition("-")[0] if _BUILD in path else ""
    if build.startswith(version) and _is_version(build):
        return build
    return version if _is_version(version) else ""


def _is_version(text: str) -> bool:
    return "." in text and text.replace(".", "").isdigit()
