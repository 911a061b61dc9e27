"""The commit and branch of a work tree are read as git reads them."""

from __future__ import annotations

from pathlib import Path

from stoker.features.code.repository import Head, find_repository, read_head
from tests.features.code.git_repository import GitRepository


def head(folder: Path) -> Head:
    repository = find_repository(str(folder))
    assert repository is not None
    return read_head(repository)


def test_folder_without_repository_has_none(tmp_path: Path) -> None:
    assert find_repository(str(tmp_path)) is None


def test_empty_git_folder_is_not_a_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert find_repository(str(tmp_path)) is None


def test_subfolder_belongs_to_the_repository_above(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path / "a b\nü")
    repo.commit(train_py="1\n")
    folder = repo.write("deep/er/x").parent
    found = find_repository(str(folder))
    assert found is not None and found.root == str(repo.folder)


def test_unborn_branch_has_no_commit(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path)
    assert head(repo.folder) == Head(None, "main")


def test_branch_with_slashes_has_its_commit(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path)
    commit = repo.commit(train_py="1\n")
    repo.git("checkout", "-q", "-b", "user/try-ü")
    assert head(repo.folder) == Head(commit, "user/try-ü")


def test_packed_branch_has_its_commit(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path)
    first = repo.commit(train_py="1\n")
    repo.git("branch", "main2")
    repo.git("tag", "-a", "-m", "t", "v1")
    repo.commit(train_py="2\n")
    repo.git("checkout", "-q", "main2")
    repo.git("pack-refs", "--all")
    assert head(repo.folder) == Head(first, "main2")


def test_detached_head_has_no_branch(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path)
    commit = repo.commit(train_py="1\n")
    repo.git("checkout", "-q", "--detach")
    assert head(repo.folder) == Head(commit, None)


def test_linked_work_tree_has_its_own_branch(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path / "main")
    commit = repo.commit(train_py="1\n")
    repo.git("worktree", "add", "-q", "-b", "other", "../linked")
    assert head(tmp_path / "linked") == Head(commit, "other")
    repo.git("pack-refs", "--all")
    assert head(tmp_path / "linked") == Head(commit, "other")


def test_damaged_head_is_a_problem_and_not_an_exception(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path)
    for text in (b"", b"\xff\x00", b"ref: ../../etc/passwd", b"ref: /etc/passwd"):
        (repo.folder / ".git/HEAD").write_bytes(text)
        assert head(repo.folder).problem is not None, text
