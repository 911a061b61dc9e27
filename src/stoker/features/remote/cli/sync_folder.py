"""`--sync DIR`: make the copy of a folder on a box equal to the folder."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from typing import IO, Any

from stoker.cli.output import notice, plural
from stoker.errors import Error, TryLater, UsageError
from stoker.features.remote.cli.recover import check_support, recover
from stoker.features.remote.connection import LOST, Connection, Lost
from stoker.features.remote.sync_receiver import OTHER, Mark, file_mark
from stoker.text.terminal import printable

_NAMED = 3


def sync_folder(connection: Connection, folder: str, *, is_quiet: bool) -> str:
    """Copy a folder to the box. Returns the folder there that corresponds to the current one.

    Raises UsageError for a folder that cannot be read, and Unavailable.
    """
    files = files_of(folder)
    place = folder_on_box(connection.box.sync_dir, folder)
    while True:
        try:
            done = _sync_once(connection, folder, place, files)
            break
        except Lost as error:
            recover(connection, error)
    if not is_quiet:
        notice(
            f"{plural(len(done['send']), 'file')} of {len(files)} copied to "
            f"{connection.box.name}:{printable(place)}"
        )
    _warn("changed on the box, and kept there as", done["renamed"])
    _warn("not copied, because a link on the box leads elsewhere:", done["outside"])
    return _place_of(os.getcwd(), folder, done["folder"])


def _sync_once(
    connection: Connection, folder: str, place: str, files: dict[str, Any]
) -> dict[str, Any]:
    plan = json.loads(_box(connection, place, "plan", json.dumps({"files": files}).encode()))
    if plan["send"]:
        send_files(connection, folder, plan["folder"], plan["send"])
        _box(connection, place, "finish")
    found: dict[str, Any] = plan
    return found


def _box(connection: Connection, place: str, action: str, data: bytes = b"") -> bytes:
    done = connection.capture(
        ["box", "sync", json.dumps({"folder": place}), action], folder="~", input=data
    )
    check_support(connection, done)
    if done.code != 0:
        text = done.err.decode("utf-8", "replace").strip().removeprefix("error: ")
        raise Error(f"cannot copy files to {connection.box.name}: {text}")
    return done.out


def _warn(text: str, paths: list[str]) -> None:
    if paths:
        more = f" and {len(paths) - _NAMED} others" if len(paths) > _NAMED else ""
        notice(f"warning: {text} {printable(', '.join(paths[:_NAMED]))}{more}")


def _place_of(current: str, folder: str, there: str) -> str:
    """The folder on the box for the current folder, if that is inside of the copied one."""
    path = os.path.relpath(os.path.realpath(current), os.path.realpath(folder))
    if path == "." or path.startswith(".."):
        return there
    return f"{there}/{path}"


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
