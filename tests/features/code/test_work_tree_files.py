"""Which files of a work tree are copied into a snapshot, and which ones stay at their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.features.code import work_tree_files
from stoker.features.code.repository import find_repository
from stoker.features.code.work_tree_files import WorkTree, list_work_tree
from tests.features.code.git_repository import GitRepository


@pytest.fixture
def repo(tmp_path: Path) -> GitRepository:
    repo = GitRepository(tmp_path / "repo")
    repo.write(".gitignore", "data/\n*.log\n__pycache__/\n")
    repo.commit(train_py="1\n")
    return repo


def content(repo: GitRepository) -> WorkTree:
    repository = find_repository(str(repo.folder))
    assert repository is not None
    return list_work_tree(repository)


def paths(repo: GitRepository) -> list[str]:
    return [file.path for file in content(repo).files]


def test_tracked_and_untracked_files_are_code_and_ignored_ones_are_links(
    repo: GitRepository,
) -> None:
    repo.write("data/deep/a.bin")
    repo.write("out.log")
    repo.write("src/x.log")
    repo.write("src/new.py")
    repo.write("src/__pycache__/x.pyc")
    assert paths(repo) == [".gitignore", "src/new.py", "train.py"]
    assert content(repo).links == ("data", "out.log", "src/x.log")


def test_untracked_folder_without_files_is_a_link(repo: GitRepository) -> None:
    (repo.folder / "outputs").mkdir()
    repo.write("results/a.log")
    assert content(repo).links == ("outputs", "results")


def test_large_untracked_file_is_a_link_and_large_tracked_file_is_code(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_tree_files, "MAX_UNTRACKED_BYTES", 100)
    repo.write("tracked.bin", "x" * 200)
    repo.commit()
    repo.write("model.bin", "x" * 200)
    repo.write("models/only.bin", "x" * 200)
    repo.write("mixed/a.py")
    repo.write("mixed/b.bin", "x" * 200)
    assert content(repo).links == ("mixed/b.bin", "model.bin", "models")
    assert paths(repo) == [".gitignore", "mixed/a.py", "tracked.bin", "train.py"]


def test_deleted_files_are_left_out_and_modes_are_kept(repo: GitRepository) -> None:
    repo.write("run.sh", mode=0o755)
    repo.commit()
    (repo.folder / "train.py").unlink()
    assert [(file.path, file.is_executable) for file in content(repo).files] == [
        (".gitignore", False),
        ("run.sh", True),
    ]


def test_links_that_leave_the_work_tree_become_absolute(
    repo: GitRepository, tmp_path: Path
) -> None:
    (repo.folder / "deep").mkdir()
    for name, target in (("in", "../train.py"), ("out", "../../else"), ("abs", "/etc/hosts")):
        (repo.folder / "deep" / name).symlink_to(target)
    repo.commit()
    targets = {file.path: file.target for file in content(repo).files if file.target}
    assert targets == {
        "deep/in": "../train.py",
        "deep/out": str(tmp_path / "else"),
        "deep/abs": "/etc/hosts",
    }


def test_names_with_any_bytes_are_code(repo: GitRepository) -> None:
    names = ["a b", 'q"', "n\nl", "ü", os.fsdecode(b"\xff"), "-x", " lead"]
    for name in names:
        repo.write(name)
    assert set(names) <= set(paths(repo))
    repo.commit()
    assert set(names) <= set(paths(repo))


def test_submodules_are_code_and_other_repositories_are_links(
    repo: GitRepository, tmp_path: Path
) -> None:
    inner = GitRepository(tmp_path / "inner")
    inner.write(".gitignore", "*.bin\n")
    inner.commit(lib_py="1\n")
    repo.git("submodule", "add", "-q", str(inner.folder), "lib")
    repo.commit()
    repo.write("lib/big.bin")
    repo.write("lib/new.py")
    GitRepository(repo.folder / "other").commit(x_py="1\n")
    assert [path for path in paths(repo) if path.startswith(("lib", "other"))] == [
        "lib/.gitignore",
        "lib/lib.py",
        "lib/new.py",
    ]
    assert content(repo).links == ("lib/big.bin", "other")


def test_unborn_branch_sparse_checkout_and_linked_work_tree_are_listed(
    repo: GitRepository, tmp_path: Path
) -> None:
    fresh = GitRepository(tmp_path / "fresh")
    fresh.write("a.py")
    assert paths(fresh) == ["a.py"]
    repo.git("worktree", "add", "-q", "../linked")
    linked = find_repository(str(tmp_path / "linked"))
    assert linked is not None
    assert [file.path for file in list_work_tree(linked).files] == [".gitignore", "train.py"]
    repo.write("a/x")
    repo.write("b/y")
    repo.commit()
    repo.git("sparse-checkout", "set", "--cone", "--sparse-index", "a")
    assert paths(repo) == [".gitignore", "a/x", "train.py"]


def test_exclude_files_of_repository_and_user_are_used(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.folder / ".git/info").mkdir(exist_ok=True)
    (repo.folder / ".git/info/exclude").write_text("by-repo\n")
    (tmp_path / "ignore").write_text("by-user\n")
    (tmp_path / ".gitconfig").write_text(f"[core]\n\texcludesFile = {tmp_path}/ignore\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    repo.write("by-repo")
    repo.write("by-user")
    assert content(repo).links == ("by-repo", "by-user")


def test_too_many_files_are_refused(repo: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_tree_files, "MAX_FILES", 1)
    with pytest.raises(UsageError, match="more than 1 files that are not ignored"):
        content(repo)


def test_hostile_settings_execute_nothing(repo: GitRepository, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    evil.chmod(0o755)
    for key in ("core.fsmonitor", "filter.x.clean", "core.sshCommand", "core.excludesFile"):
        repo.git("config", key, str(evil))
    repo.git("config", "core.hooksPath", str(tmp_path))
    (tmp_path / "executed").unlink(missing_ok=True)
    repo.write("new.py")
    assert paths(repo) == [".gitignore", "new.py", "train.py"]
    assert not (tmp_path / "executed").exists()
