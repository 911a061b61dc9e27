"""Files that other users may have written are never unpickled (threat T12)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.errors import Broken, Error, NoPermission, NotFound
from stoker.functions import payload_files
from stoker.python.api import job, submit
from stoker.python.job import Job
from stoker.python.job_errors import JobFailed
from tests.lab import Lab
from tests.python import job_functions

OTHER_UID = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Bomb:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def give_away(path: Path) -> None:
    os.chown(path, OTHER_UID, OTHER_UID)


def open_to_others(path: Path) -> None:
    path.chmod(0o620)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def open_folder(path: Path) -> None:
    path.parent.chmod(0o770)


def plant(path: Path) -> None:
    """Write a valid file without knowing the checksum recorded elsewhere."""
    data = path.read_bytes()
    bomb = pickle.dumps(Bomb(path.parent / "bang"))
    path.write_bytes((bomb + data)[: len(data)] if len(bomb) < len(data) else bomb)


TRICKS = [
    pytest.param(give_away, NoPermission, "belongs to uid 54321, not to you", marks=needs_root),
    pytest.param(open_to_others, NoPermission, "other users can write to it"),
    pytest.param(open_folder, NoPermission, "other users can write to it"),
    pytest.param(cut, Broken, "it was changed after it was written"),
    pytest.param(empty, Broken, "it was changed after it was written"),
    pytest.param(plant, Broken, "it was changed after it was written"),
    pytest.param(replace_by_link, NoPermission, "cannot open"),
    pytest.param(replace_by_fifo, NoPermission, "is not a regular file"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(payload_files.new_folder(str(tmp_path)))


@pytest.mark.parametrize(("trick", "kind", "words"), TRICKS)
def test_foreign_or_changed_result_is_refused(
    folder: Path, trick: Callable[[Path], None], kind: type[Error], words: str
) -> None:
    payload_files.write_result(str(folder), 7, b"body" * 100)
    assert payload_files.read_result(str(folder), 7) == b"body" * 100
    trick(folder / "result-7")
    with pytest.raises(kind, match=words):
        payload_files.read_result(str(folder), 7)


@pytest.mark.parametrize(("trick", "kind", "words"), TRICKS)
def test_foreign_or_changed_call_is_refused(
    folder: Path, trick: Callable[[Path], None], kind: type[Error], words: str
) -> None:
    import hashlib

    payload_files.write(str(folder), payload_files.CALL, [b"shared", b"first" * 30, b"second" * 30])
    sha256 = hashlib.sha256(b"shared" + b"second" * 30).hexdigest()
    slices = [(0, 6), (156, 180)]
    assert payload_files.read_call(str(folder), sha256, slices) == b"shared" + b"second" * 30
    trick(folder / "call")
    with pytest.raises(kind, match=words):
        payload_files.read_call(str(folder), sha256, slices)


def test_files_and_folders_are_private_for_any_umask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        folder = Path(payload_files.new_folder(str(tmp_path)))
        payload_files.write_result(str(folder), 1, b"x")
    finally:
        os.umask(mask)
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "result-1")]
    assert modes == [0o700, 0o700, 0o600]
    assert [path.name for path in folder.iterdir()] == ["result-1"]


def test_missing_result_is_not_found(folder: Path) -> None:
    with pytest.raises(NotFound):
        payload_files.read_result(str(folder), 1)


# -- the same with real jobs -------------------------------------------------------------------


def folder_of(handle: Job[object]) -> Path:
    return Path(handle.info()["argv"][5])


def test_planted_call_fails_the_job_and_does_not_run(here: Lab) -> None:
    held = job(job_functions.add, hold=True).submit(1)
    folder = folder_of(held)
    bang = folder / "bang"
    (folder / "call").write_bytes(pickle.dumps(Bomb(bang)) + bytes(2000))
    held.release()
    with pytest.raises(JobFailed, match="it was changed after it was written"):
        held.result()
    assert (held.exit_code, bang.exists()) == (70, False)


@needs_root
def test_foreign_call_fails_the_job(here: Lab) -> None:
    held = job(job_functions.add, hold=True).submit(1)
    give_away(folder_of(held) / "call")
    held.release()
    with pytest.raises(JobFailed, match="it belongs to uid 54321, not to you"):
        held.result()


def test_planted_result_is_refused_and_does_not_run(here: Lab) -> None:
    done = submit(job_functions.add, 1)
    assert done.result() == 2
    folder = folder_of(done)
    bang = folder / "bang"
    data = pickle.dumps(Bomb(bang))
    (folder / f"result-{done.id}").write_bytes(b"stoker-result-1 00 %d\n" % len(data) + data)
    with pytest.raises(Broken, match="it was changed after it was written"):
        done.result()
    assert not bang.exists()


def test_call_folder_is_removed_with_its_last_job(here: Lab, tmp_path: Path) -> None:
    from stoker.client.queue_connections import thread_queue
    from stoker.engine.store import changes, function_folders

    jobs = job_functions.double.map([1, 2])
    assert [handle.result() for handle in jobs] == [2, 4]
    precious = tmp_path / "precious"
    precious.mkdir()
    trap = submit(["true", "-P", "-m", "stoker.functions.call", "f", str(precious), "0", "0+1"])
    trap.wait()
    folder, db = folder_of(jobs[0]), thread_queue(jobs[0]._settings).db
    for id, left in ((jobs[0].id, ["call", "result-2"]), (jobs[1].id, None), (trap.id, None)):
        folders = function_folders.folders_of(db, [id], [db.folder])
        function_folders.drop(db, folders, changes.remove(db, [id]))
        found = sorted(os.listdir(folder)) if folder.exists() else None
        assert found == left
    assert precious.exists()
