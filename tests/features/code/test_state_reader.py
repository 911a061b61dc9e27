"""The state of the code in a folder: commit, branch, whether it is dirty, and the diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.features.code import state_reader
from stoker.features.code.repository import find_repository
from stoker.features.code.state_reader import CodeState, compare, read_state, split_patch
from tests.features.code.git_repository import GitRepository


@pytest.fixture
def repo(tmp_path: Path) -> GitRepository:
    repo = GitRepository(tmp_path / "repo")
    repo.commit(train_py="1\n", data_txt="2\n")
    return repo


def state(repo: GitRepository) -> CodeState:
    found = read_state(str(repo.folder))
    assert found is not None
    return found


def changed(repo: GitRepository) -> list[str]:
    found = state(repo)
    assert found.problem is None
    return [os.fsdecode(path) for path in split_patch(found.diff)]


def test_folder_without_repository_has_no_state(tmp_path: Path) -> None:
    assert read_state(str(tmp_path)) is None


def test_committed_code_is_clean(repo: GitRepository) -> None:
    repo.write("untracked.txt")
    commit = repo.git("rev-parse", "HEAD")
    assert state(repo) == CodeState(str(repo.folder), commit, "main", False)


def test_diff_is_what_git_prints(repo: GitRepository) -> None:
    repo.write("train.py", "one\n")
    assert state(repo).diff.decode().strip() == repo.git("diff", "--full-index", "HEAD")


def test_staged_and_unstaged_changes_are_in_the_diff(repo: GitRepository) -> None:
    repo.write("train.py", "staged\n")
    repo.write("new.py")
    repo.git("add", "train.py", "new.py")
    repo.write("data.txt", "unstaged\n")
    assert changed(repo) == ["data.txt", "new.py", "train.py"]


def test_deleted_files_modes_and_links_are_in_the_diff(repo: GitRepository) -> None:
    repo.write("c.sh")
    repo.commit()
    (repo.folder / "train.py").unlink()
    (repo.folder / "data.txt").unlink()
    (repo.folder / "data.txt").symlink_to("train.py")
    (repo.folder / "c.sh").chmod(0o755)
    assert changed(repo) == ["c.sh", "data.txt", "train.py"]
    parts = split_patch(state(repo).diff)
    assert b"new mode 100755" in parts[b"c.sh"]
    assert b"deleted file mode" in parts[b"data.txt"] and b"120000" in parts[b"data.txt"]


def test_names_with_any_bytes_are_read_back(repo: GitRepository) -> None:
    names = ["a b.py", 'q"uote', "new\nline", "tab\t", "ü", os.fsdecode(b"\xff\xfe"), "b\\n", "-x"]
    for name in names:
        repo.write(name, "1\n")
    repo.commit()
    for name in names:
        repo.write(name, "2\n")
    assert sorted(changed(repo)) == sorted(names)


def test_touched_files_are_not_changes(repo: GitRepository) -> None:
    os.utime(repo.folder / "train.py", (1, 1))
    assert changed(repo) == []


def test_binary_files_have_no_content_in_the_diff(repo: GitRepository) -> None:
    (repo.folder / "train.py").write_bytes(b"\0" * 1000)
    assert changed(repo) == ["train.py"]
    assert state(repo).diff_bytes < 300


def test_unborn_branch_has_its_staged_files_as_diff(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path)
    repo.write("train.py")
    assert state(repo) == CodeState(str(tmp_path), None, "main", False)
    repo.git("add", "train.py")
    assert changed(repo) == ["train.py"]


def test_repository_with_sha256_is_read(tmp_path: Path) -> None:
    repo = GitRepository(tmp_path, "--object-format=sha256")
    commit = repo.commit(train_py="1\n")
    repo.write("train.py", "2\n")
    assert len(commit) == 64 and state(repo).commit == commit
    assert changed(repo) == ["train.py"]


def test_linked_work_tree_has_its_own_changes(repo: GitRepository, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "../linked")
    repo.write("train.py", "changed\n")
    linked = read_state(str(tmp_path / "linked"))
    assert linked is not None and linked.is_dirty is False and linked.branch == "linked"


def test_files_outside_a_sparse_checkout_are_not_deleted(repo: GitRepository) -> None:
    repo.write("a/x")
    repo.write("b/y")
    repo.commit()
    repo.git("sparse-checkout", "set", "--cone", "--sparse-index", "a")
    assert not (repo.folder / "b").exists()
    assert changed(repo) == []
    repo.write("a/x", "changed\n")
    assert changed(repo) == ["a/x"]


def test_commit_of_a_submodule_is_in_the_diff(repo: GitRepository, tmp_path: Path) -> None:
    inner = GitRepository(tmp_path / "inner")
    inner.commit(lib_py="1\n")
    repo.git("submodule", "add", "-q", str(inner.folder), "lib")
    repo.commit()
    assert changed(repo) == []
    module = GitRepository(repo.folder / "lib")
    module.commit(lib_py="2\n")
    assert changed(repo) == ["lib"]
    assert b"Subproject commit" in state(repo).diff


def test_diff_over_the_limit_is_not_kept(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_reader, "MAX_DIFF_BYTES", 1_500_000)
    repo.write("train.py", "x" * 2_000_000 + "\n")
    found = state(repo)
    assert (found.is_dirty, found.diff) == (True, b"")
    assert found.diff_bytes > 2_000_000 and found.problem == "diff too large: 2 MB"


def test_git_that_takes_too_long_is_killed(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(slow), prepend=":")
    repository = find_repository(str(repo.folder))
    assert repository is not None
    found = compare(repository, seconds=0.0)
    assert found.commit is not None and found.is_dirty is None
    assert found.problem == "diff not recorded: git did not finish within 0 s"


def test_host_without_git_records_commit_and_branch(
    repo: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repo.git("rev-parse", "HEAD")
    # A relative folder in PATH would let the repository provide its own git.
    repo.write("git", "#!/bin/sh\ntouch executed\n", 0o755)
    monkeypatch.chdir(repo.folder)
    monkeypatch.setenv("PATH", ".:")
    found = state(repo)
    assert (found.commit, found.branch, found.is_dirty) == (commit, "main", None)
    assert found.problem == "diff not recorded: git is not installed"
    assert not (repo.folder / "executed").exists()


def test_repository_with_hostile_settings_executes_nothing(
    repo: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\ncat\n")
    evil.chmod(0o755)
    inner = GitRepository(tmp_path / "inner")
    inner.commit(lib_py="1\n")
    repo.git("submodule", "add", "-q", str(inner.folder), "lib")
    repo.write(".gitattributes", "*.py filter=evil diff=evil\n*.txt filter=evil2\n")
    repo.commit()
    for where in (repo, GitRepository(repo.folder / "lib")):
        for key in (
            "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "diff.external",
            "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "filter.evil.smudge",
            "filter.evil2.process", "pager.diff", "alias.diff", "uploadpack.packObjectsHook",
        ):  # fmt: skip
            where.git("config", key, f"!{evil}" if key.startswith("alias") else str(evil))
        where.git("config", "filter.evil.required", "true")
        where.git("config", "core.hooksPath", str(tmp_path / "hooks"))
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "post-checkout", "fsmonitor-watchman", "pre-commit"):
        (hooks / name).symlink_to(evil)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(evil))
    (repo.folder / "train.py").write_text("changed\n")
    (repo.folder / "data.txt").write_text("changed\n")
    (repo.folder / "lib/lib.py").write_text("changed\n")
    (tmp_path / "executed").unlink(missing_ok=True)
    assert changed(repo) == ["data.txt", "train.py"]
    assert not (tmp_path / "executed").exists()


def test_reading_does_not_write_the_index(repo: GitRepository) -> None:
    os.utime(repo.folder / "train.py", (1, 1))
    index = repo.folder / ".git/index"
    before = index.stat().st_mtime_ns, index.read_bytes()
    state(repo)
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


def test_missing_objects_are_a_problem_and_not_an_exception(repo: GitRepository) -> None:
    import shutil

    shutil.rmtree(repo.folder / ".git/objects")
    (repo.folder / ".git/objects").mkdir()
    found = state(repo)
    assert found.commit is not None and found.problem is not None
    assert found.problem.startswith("diff not recorded: ")
