"""Snapshots: content addressing, sharing, removal, and crashes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.code.repository import Repository, find_repository
from stoker.features.code.snapshot_store import MARK, Snapshot, SnapshotStore
from stoker.features.code.work_tree_files import TreeFile, WorkTree, list_work_tree
from tests.features.code.git_repository import GitRepository

_NAME = st.text("abü ", min_size=1, max_size=3).filter(lambda name: name.strip())
_FILES = st.dictionaries(_NAME, st.tuples(st.binary(max_size=40), st.booleans()), max_size=4)


@pytest.fixture
def repo(tmp_path: Path) -> GitRepository:
    repo = GitRepository(tmp_path / "repo")
    repo.write(".gitignore", "data/\n")
    repo.write("data/d.txt", "data\n")
    repo.write("run.sh", "#!/bin/sh\n", 0o755)
    repo.commit(train_py="1\n")
    return repo


def take(repo: GitRepository, folder: Path) -> Snapshot:
    repository = find_repository(str(repo.folder))
    assert repository is not None
    store = SnapshotStore(str(folder))
    try:
        return store.take(repository, list_work_tree(repository))
    finally:
        store.close()


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def objects(folder: Path) -> set[str]:
    return {name for _, _, files in os.walk(folder / "code/objects") for name in files}


def test_snapshot_has_the_code_and_links_to_the_rest(repo: GitRepository, tmp_path: Path) -> None:
    snapshot = take(repo, tmp_path)
    tree = Path(snapshot.tree)
    repo.write("train.py", "2\n")
    assert (tree / "train.py").read_text() == "1\n"
    assert os.access(tree / "run.sh", os.X_OK)
    assert (tree / "train.py").stat().st_mode & 0o777 == 0o444
    assert os.readlink(tree / "data") == str(repo.folder / "data")
    (tree / "data/new.txt").write_text("out\n")
    assert (repo.folder / "data/new.txt").read_text() == "out\n"
    assert not (tree / ".git").exists()


def test_equal_code_is_one_snapshot_and_equal_files_are_stored_once(
    repo: GitRepository, tmp_path: Path
) -> None:
    first = take(repo, tmp_path)
    assert take(repo, tmp_path) == first
    repo.write("train.py", "2\n")
    second = take(repo, tmp_path)
    assert second.id != first.id and len(names(tmp_path / "code/trees")) == 2
    shared = [os.stat(f"{one.tree}/run.sh").st_ino for one in (first, second)]
    assert shared[0] == shared[1]
    repo.write("train.py", "1\n")
    assert take(repo, tmp_path) == first


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(one=_FILES, two=_FILES)
def test_snapshots_are_equal_if_and_only_if_their_files_are(
    tmp_path: Path,
    one: dict[str, tuple[bytes, bool]],
    two: dict[str, tuple[bytes, bool]],
) -> None:
    ids, root = [], tmp_path / "root"
    store = SnapshotStore(str(tmp_path))
    for files in (one, two):
        subprocess.run(["rm", "-rf", str(root)], check=True)
        root.mkdir()
        for name, (data, _) in files.items():
            (root / name).write_bytes(data)
        content = WorkTree(
            tuple(TreeFile(name, len(files[name][0]), files[name][1]) for name in sorted(files)), ()
        )
        snapshot = store.take(Repository(str(root), "", ""), content)
        ids.append(snapshot.id)
        assert {
            name: ((Path(snapshot.tree) / name).read_bytes(),
                   bool((Path(snapshot.tree) / name).stat().st_mode & 0o100))
            for name in os.listdir(snapshot.tree)
        } == files  # fmt: skip
    store.close()
    assert (ids[0] == ids[1]) == (one == two)


def test_file_that_a_job_changed_is_replaced_by_the_next_snapshot(
    repo: GitRepository, tmp_path: Path
) -> None:
    tree = Path(take(repo, tmp_path).tree)
    for name in ("train.py", "run.sh"):
        os.chmod(tree / name, 0o644)
    (tree / "train.py").write_text("X\n")
    (tree / "run.sh").unlink()
    take(repo, tmp_path)
    assert (tree / "train.py").read_text() == "1\n" and (tree / "run.sh").exists()
    assert (tree / "train.py").stat().st_mtime == MARK


def test_unused_snapshots_are_removed_with_their_objects(
    repo: GitRepository, tmp_path: Path
) -> None:
    first = take(repo, tmp_path)
    repo.write("train.py", "2\n")
    second = take(repo, tmp_path)
    before = objects(tmp_path)
    store = SnapshotStore(str(tmp_path))
    assert store.remove_unused(lambda: {first.id, second.id}) == []
    assert objects(tmp_path) == before
    assert store.remove_unused(lambda: {second.id}) == []
    assert names(tmp_path / "code/trees") == [second.id] and len(objects(tmp_path)) == 3
    assert store.remove_unused(lambda: ()) == []
    assert names(tmp_path / "code/trees") == [] and objects(tmp_path) == set()


def test_files_that_jobs_created_survive_the_removal(repo: GitRepository, tmp_path: Path) -> None:
    tree = Path(take(repo, tmp_path).tree)
    (tree / "sub").mkdir()
    (tree / "sub/model.pt").write_text("weights\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__/x.pyc").write_text("x\n")
    kept = SnapshotStore(str(tmp_path)).remove_unused(lambda: ())
    assert kept == [str(tmp_path / "code/kept" / tree.name)]
    assert (Path(kept[0]) / "sub/model.pt").read_text() == "weights\n"
    assert names(Path(kept[0])) == ["sub"]


def test_unreadable_file_is_refused_by_name(repo: GitRepository, tmp_path: Path) -> None:
    repository = find_repository(str(repo.folder))
    assert repository is not None
    content = list_work_tree(repository)
    store = SnapshotStore(str(tmp_path))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(repo.folder / "train.py"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stoker.features.code.snapshot_store._copy", refuse)
        with pytest.raises(UsageError, match=r"train.py` cannot be read"):
            store.take(repository, content._replace(files=content.files[-1:]))
    store.close()


def test_private_files_stay_private(repo: GitRepository, tmp_path: Path) -> None:
    """The same content may be private in one file and public in another."""
    for name, mode in (("a", 0o600), ("b", 0o644), ("c", 0o700), ("d", 0o640), ("e", 0o755)):
        repo.write(name, "secret\n", mode)
    tree = Path(take(repo, tmp_path).tree)
    modes = [(tree / name).stat().st_mode & 0o777 for name in "abcde"]
    assert modes == [0o400, 0o444, 0o500, 0o440, 0o555]


@pytest.mark.parametrize("writes", [1, 2, 99])
def test_file_that_is_written_meanwhile_is_copied_again_and_then_named(
    repo: GitRepository, tmp_path: Path, writes: int
) -> None:
    """`writes`: how often the file grows, each time in the middle of a copy."""
    left = [writes]

    class Growing(TreeFile):
        @property
        def is_executable(self) -> bool:
            if left[0]:
                left[0] -= 1
                with open(repo.folder / "log", "a") as file:
                    file.write("x\n")
            return False

    repo.write("log")
    repository = find_repository(str(repo.folder))
    assert repository is not None
    store = SnapshotStore(str(tmp_path))
    content = WorkTree(files=(Growing("log", 2, False),), links=())
    snapshot = store.take(repository, content)
    store.close()
    if writes == 99:
        assert snapshot.changing == ("log",)
    else:
        assert snapshot.changing == ()
        assert (Path(snapshot.tree) / "log").read_text() == (repo.folder / "log").read_text()


def test_removal_waits_for_submits_that_use_a_snapshot(repo: GitRepository, tmp_path: Path) -> None:
    repository = find_repository(str(repo.folder))
    assert repository is not None
    submit = SnapshotStore(str(tmp_path))
    submit.take(repository, list_work_tree(repository))
    with (tmp_path / "code/lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        submit.close()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


_TAKE = """
import sys
from stoker.features.code.repository import find_repository
from stoker.features.code.snapshot_store import SnapshotStore
from stoker.features.code.work_tree_files import list_work_tree
repository = find_repository(sys.argv[1])
SnapshotStore(sys.argv[2]).take(repository, list_work_tree(repository))
"""


@pytest.mark.parametrize(
    "point",
    ["after_object:1", "after_object:3", "before_sync:1", "before_rename:1", "after_rename:1"],
)
def test_killed_submit_leaves_no_half_snapshot(
    repo: GitRepository, tmp_path: Path, point: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _TAKE, str(repo.folder), str(tmp_path)],
        env={**os.environ, "STOKER_FAILPOINT": f"snapshot.{point}"},
    )
    assert killed.returncode == -9
    trees = names(tmp_path / "code/trees")
    assert len(trees) == (1 if point.startswith("after_rename") else 0)
    snapshot = take(repo, tmp_path)
    assert (Path(snapshot.tree) / "train.py").read_text() == "1\n"
    assert not trees or trees == [snapshot.id]
    SnapshotStore(str(tmp_path)).remove_unused(lambda: {snapshot.id})
    assert names(tmp_path / "code/tmp") == [] and len(objects(tmp_path)) == 3


_REMOVE = """
import sys
from stoker.features.code.snapshot_store import SnapshotStore
print(SnapshotStore(sys.argv[1]).remove_unused(lambda: set()))
"""


@pytest.mark.parametrize("point", ["before_remove", "after_kept", "before_objects"])
def test_killed_removal_is_completed_by_the_next_one(
    repo: GitRepository, tmp_path: Path, point: str
) -> None:
    tree = Path(take(repo, tmp_path).tree)
    (tree / "result.txt").write_text("of a job")
    killed = subprocess.run(
        [sys.executable, "-c", _REMOVE, str(tmp_path)],
        env={**os.environ, "STOKER_FAILPOINT": f"snapshot.{point}"},
    )
    assert killed.returncode == -9
    SnapshotStore(str(tmp_path)).remove_unused(set)
    kept = tmp_path / "code/kept" / tree.name / "result.txt"
    assert kept.read_text() == "of a job"
    assert names(tmp_path / "code/trees") == names(tmp_path / "code/tmp") == []
    assert objects(tmp_path) == set()


def test_two_submits_at_once_share_one_snapshot(repo: GitRepository, tmp_path: Path) -> None:
    for number in range(50):
        repo.write(f"f{number}", f"{number}\n")
    words = [sys.executable, "-c", _TAKE, str(repo.folder), str(tmp_path)]
    both = [subprocess.Popen(words) for _ in range(3)]
    assert [one.wait() for one in both] == [0, 0, 0]
    assert len(names(tmp_path / "code/trees")) == 1
    assert names(tmp_path / "code/tmp") == []
