"""The files of a folder for `submit --sync`, and their transfer to a box: by rsync, else by tar."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from typing import IO

from stoker.errors import Error, TryLater, UsageError
from stoker.features.remote.connection import LOST, Connection, Lost
from stoker.features.remote.sync_receiver import OTHER, Mark, file_mark

_VANISHED = 24  # rsync: some files were removed meanwhile


def folder_on_box(sync_dir: str, folder: str) -> str:
    """The folder for the copy: one for each folder of each machine."""
    real = os.path.realpath(folder)
    identity = f"{os.uname().nodename}:{real}".encode("utf-8", "surrogateescape")
    name = os.path.basename(real) or "root"
    return f"{sync_dir.rstrip('/')}/{name}-{hashlib.sha256(identity).hexdigest()[:8]}"


def files_of(folder: str) -> dict[str, Mark]:
    """The files to copy, with their marks. In a git repository, all that git does not ignore;
    else all but `.git` and folders with a .gitignore for everything, such as .venv.

    Raises UsageError if the folder cannot be read.
    """
    if not os.path.isdir(folder):
        raise UsageError(f"`--sync {folder}`: there is no such folder")
    found: dict[str, Mark] = {}
    for path in _git_files(folder) if _in_repository(folder) else _all_files(folder):
        mark = file_mark(os.path.join(folder, path))
        if mark is not None and mark != OTHER:
            found[path] = mark
    return found


def send_files(connection: Connection, folder: str, there: str, paths: list[str]) -> None:
    """Copy files to a folder of the box. Raises Lost or TryLater."""
    if shutil.which("rsync") is not None and connection.has_program("rsync"):
        _send_by_rsync(connection, folder, there, paths)
    else:
        _send_by_tar(connection, folder, there, paths)


def _send_by_rsync(connection: Connection, folder: str, there: str, paths: list[str]) -> None:
    shell = shlex.join(connection.session_words("-T"))
    # The name of the host has no effect in an open connection, and rsync cannot parse every one.
    words = [
        "rsync",
        "-lptsKz",
        "--from0",
        "--files-from=-",
        "-e",
        shell,
        f"{folder}/",
        f"stoker-box:{there}/",
    ]
    data = b"\0".join(map(os.fsencode, paths))
    done = subprocess.run(words, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode in (0, _VANISHED):
        return
    if done.returncode == LOST or not connection.is_open():
        raise Lost
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise TryLater(f"rsync failed: {lines[0] if lines else f'exit code {done.returncode}'}")


def _send_by_tar(connection: Connection, folder: str, there: str, paths: list[str]) -> None:
    import json

    words = ["box", "sync", json.dumps({"folder": there}), "receive"]
    process = connection.start(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.process.stdin is not None
    try:
        _write_tar(process.process.stdin, folder, paths)
        process.process.stdin.close()
    except BrokenPipeError:
        pass  # the exit code says why
    process.process.stdin = None
    done = process.capture(None, None)
    if done.code != 0:
        text = done.err.decode("utf-8", "replace").strip().removeprefix("error: ")
        raise Error(f"cannot copy files to {connection.box.name}: {text}")


def _write_tar(stream: IO[bytes], folder: str, paths: Iterable[str]) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            full = os.path.join(folder, path)
            try:
                member = archive.gettarinfo(full, path)
                if member is None or not (member.isreg() or member.issym()):
                    if member is None or not member.islnk():
                        continue
                    member.type = tarfile.REGTYPE  # a hard link: send the file
                    member.size = os.stat(full).st_size
                if member.issym():
                    archive.addfile(member)
                    continue
                with open(full, "rb") as file:
                    archive.addfile(member, file)
            except FileNotFoundError:
                continue  # removed meanwhile


def _in_repository(folder: str) -> bool:
    if shutil.which("git") is None:
        return False
    done = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--is-inside-work-tree"], capture_output=True
    )
    if b"safe.directory" in done.stderr:  # a repository, whose ignored files git does not tell
        lines = os.fsdecode(done.stderr).strip().splitlines()
        raise UsageError(f"git cannot read `{folder}`: {lines[0]}", lines[-1].strip())
    return done.returncode == 0 and done.stdout.strip() == b"true"


def _git_files(folder: str) -> list[str]:
    done = subprocess.run(
        ["git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
    )
    if done.returncode != 0:
        raise UsageError(f"git cannot list `{folder}`: {os.fsdecode(done.stderr).strip()}")
    found: dict[str, None] = {}
    for name in filter(None, done.stdout.split(b"\0")):
        path = os.fsdecode(name).rstrip("/")
        full = os.path.join(folder, path)
        if os.path.isdir(full) and not os.path.islink(full):  # a submodule, or another repository
            inner = _git_files(full) if _is_repository(full) else _all_files(full)
            found.update(dict.fromkeys(f"{path}/{file}" for file in inner))
        else:
            found[path] = None
    return list(found)


def _is_repository(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git")) and _in_repository(folder)


def _all_files(folder: str) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name != ".git" and not _ignores_itself(os.path.join(place, name))
        )
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        prefix = os.path.relpath(place, folder)
        for name in sorted([*names, *links]):
            if name != ".git":
                found.append(name if prefix == "." else f"{prefix}/{name}")
    return found


def _ignores_itself(folder: str) -> bool:
    """Whether a .gitignore in the folder ignores everything, as that of a virtual environment."""
    try:
        with open(os.path.join(folder, ".gitignore"), "rb") as file:
            lines = file.read(4096).splitlines()
    except OSError:
        return False
    return [line for line in lines if line.strip() and not line.startswith(b"#")] == [b"*"]
