"""Read the state of the code in a folder: commit, branch and diff.

`begin` starts git, and `PendingState.finish` takes its result, so that git runs while a submit
prepares its jobs. The diff is what `git diff COMMIT` prints: changes of tracked files, staged or
not, without the content of binary files.
"""

from __future__ import annotations

import os
import select
import time

from stoker.code.private_git import find_git, git_environment
from stoker.code.repository import Head, Repository, find_repository, read_head
from stoker.core.formats.git_patch import without_touched
from stoker.core.record import Record

MAX_DIFF_BYTES = 5_000_000
TIME_LIMIT_SECONDS = 2.0
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # known to git without an object
NO_REPOSITORY = "in no git repository"
_MAX_WORDS = 100  # of a command
_SHA256_LENGTH = 64
_SIGKILL = 9  # the module signal imports enum, which would make every submit slower
_DIFF = (
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--full-index",
    "--no-renames",
    "--ignore-submodules=dirty",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)


class CodeState(Record):
    """The code in a folder. `problem` says why the diff is not known or was not kept."""

    root: str
    commit: str | None  # None: there is no commit yet
    branch: str | None  # None: HEAD is detached
    is_dirty: bool | None  # whether tracked files differ from the commit; None: not known
    diff: bytes = b""
    diff_bytes: int = 0  # its size, also if it was not kept
    problem: str | None = None


def read_state(cwd: str) -> CodeState | None:
    """The state of the code in `cwd`; None if it is not in a git repository.

    Never raises OSError: the state has the problem.
    """
    repository = find_repository(cwd)
    return None if repository is None else begin(repository).finish()


def read_files(cwd: str, words: tuple[str, ...]) -> CodeState | None:
    """The state of a folder in no git repository: hashes of the files that a command names, such
    as `train.py`, or a module after `-m`. None if it names none."""
    import hashlib
    import re

    hashes = {}
    for name in re.findall(r"[^\s'\"=;|&<>()]+", " ".join(words))[:_MAX_WORDS]:
        for path in (name, f"{name.replace('.', '/')}.py"):
            full = os.path.join(cwd, path)
            try:
                if not os.path.isfile(full) or os.path.getsize(full) > MAX_DIFF_BYTES:
                    continue
                with open(full, "rb") as file:
                    hashes[path] = hashlib.sha256(file.read()).hexdigest()[:12]
            except (OSError, ValueError):
                continue
    if not hashes:
        return None
    files = ", ".join(f"{path} has the SHA-256 {value}" for path, value in hashes.items())
    return CodeState(cwd, None, None, None, problem=f"{NO_REPOSITORY}; {files}")


def begin(
    repository: Repository, *, base: str | None = None, seconds: float = TIME_LIMIT_SECONDS
) -> PendingState:
    """Start to read the state of a work tree. `base`: the commit to compare with, if not HEAD."""
    head = read_head(repository)
    if head.problem is not None and base is None:
        return PendingState(repository, head, None, f"diff not recorded: {head.problem}", seconds)
    commit = base or head.commit or EMPTY_TREE
    git = find_git()
    if git is None:
        return PendingState(
            repository, head, None, "diff not recorded: git is not installed", seconds
        )
    try:
        env = git_environment(repository, len(commit) == _SHA256_LENGTH)
        process = _Process(git, ["-C", repository.root, *_DIFF, commit, "--"], env)
    except OSError as error:
        why = f"diff not recorded: cannot run git: {error.strerror}"
        return PendingState(repository, head, None, why, seconds)
    return PendingState(repository, head, process, None, seconds)


class PendingState:
    """A state that is being read."""

    def __init__(
        self,
        repository: Repository,
        head: Head,
        process: _Process | None,
        problem: str | None,
        seconds: float,
    ) -> None:
        self.repository = repository
        self._head = head
        self._process = process
        self._problem = problem
        self._seconds = seconds

    def finish(self) -> CodeState:
        """Wait for git, for a few seconds at most, and return the state."""
        unknown = CodeState(
            self.repository.root, self._head.commit, self._head.branch, None, problem=self._problem
        )
        process, self._process = self._process, None
        if process is None:
            return unknown
        result = process.finish(self._seconds)
        if result.status is None:
            why = f"diff not recorded: git did not finish within {self._seconds:.0f} s"
            return unknown._replace(problem=why)
        if result.status:
            text = " ".join(result.errors.decode("utf-8", "replace").split())[:300]
            return unknown._replace(problem=f"diff not recorded: {text or 'git failed'}")
        if result.size > MAX_DIFF_BYTES:
            why = f"diff too large: {result.size / 1e6:.0f} MB"
            return unknown._replace(is_dirty=True, diff_bytes=result.size, problem=why)
        diff = without_touched(result.output)
        return unknown._replace(is_dirty=bool(diff), diff=diff, diff_bytes=len(diff))

    def cancel(self) -> None:
        """End git if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process = None


class _Result(Record):
    status: int | None  # wait status; None: it took too long
    output: bytes  # the first MAX_DIFF_BYTES at least
    size: int
    errors: bytes


class _Process:
    """A git process whose output is read by pipes. It has no terminal and no standard input."""

    def __init__(self, git: str, words: list[str], env: dict[str, str]) -> None:
        output, output_end = os.pipe2(os.O_CLOEXEC)
        errors, errors_end = os.pipe2(os.O_CLOEXEC)
        self._pipes = (output, errors)
        try:
            self._pid = os.posix_spawn(
                git,
                [git, "--no-pager", *words],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output_end, 1),
                    (os.POSIX_SPAWN_DUP2, errors_end, 2),
                ],
            )
        except OSError:
            self._close()
            raise
        finally:
            os.close(output_end)
            os.close(errors_end)

    def finish(self, seconds: float) -> _Result:
        """Read until git has closed its output; kill it if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        output, errors = self._pipes
        parts: list[bytes] = []
        size, kept, error_text = 0, 0, b""
        poll = select.poll()
        for pipe in self._pipes:
            poll.register(pipe, select.POLLIN)
        is_open = {output, errors}
        while is_open:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                self.kill()
                return _Result(None, b"", size, error_text)
            for pipe, _ in ready:
                part = os.read(pipe, 1 << 16)
                if not part:
                    is_open.discard(pipe)
                    poll.unregister(pipe)
                elif pipe == errors:
                    error_text = (error_text + part)[:4096]
                else:
                    size += len(part)
                    if kept <= MAX_DIFF_BYTES:
                        parts.append(part)
                        kept += len(part)
        self._close()
        return _Result(self._wait(), b"".join(parts), size, error_text)

    def kill(self) -> None:
        os.kill(self._pid, _SIGKILL)
        self._close()
        self._wait()

    def _wait(self) -> int:
        try:
            return os.waitpid(self._pid, 0)[1]
        except ChildProcessError:  # the program that uses Stoker ignores SIGCHLD
            return 0

    def _close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)
