"""Read the state of the code in a folder: commit, branch and diff.

The diff is what `git diff COMMIT` prints: changes of tracked files, staged or
not, without the content of binary files.
"""

from __future__ import annotations

import os
import select
import time

from stoker.features.code.private_git import find_git, git_environment
from stoker.features.code.repository import Repository, find_repository, read_head
from stoker.record import Record

# The files in a diff that git printed.

UNTRACKED = b"untracked: "  # begins the lines in front of a diff that name untracked files
_HEADER = b"diff --git "
_ESCAPES = {
    b"a": 7,
    b"b": 8,
    b"t": 9,
    b"n": 10,
    b"v": 11,
    b"f": 12,
    b"r": 13,
    b'"': 34,
    b"\\": 92,
}


def split_patch(patch: bytes) -> dict[bytes, bytes]:
    """The parts of a diff by path. A file that became a link has two parts, which are joined."""
    parts: dict[bytes, bytes] = {}
    while patch.startswith(UNTRACKED):
        patch = patch.partition(b"\n")[2]
    place = 0 if patch.startswith(_HEADER) else -1
    while place >= 0:
        end = patch.find(b"\n" + _HEADER, place)
        part = patch[place : end + 1] if end >= 0 else patch[place:]
        path = _path(part[len(_HEADER) : part.find(b"\n")])
        parts[path] = parts.get(path, b"") + part
        place = end + 1 if end >= 0 else -1
    return parts


def without_touched(patch: bytes) -> bytes:
    """A diff without the files of which only the time changed; git prints a header for them."""
    parts = patch.split(b"\n" + _HEADER)
    kept = [part for part in parts if b"\n" in part.removesuffix(b"\n")]
    if not kept:
        return b""
    text = (b"\n" + _HEADER).join(kept).removesuffix(b"\n") + b"\n"
    return text if text.startswith(_HEADER) else _HEADER + text


def changed_paths(old: bytes, new: bytes) -> list[bytes]:
    """The files that two diffs from one commit leave with different content, sorted."""
    before, after = split_patch(old), split_patch(new)
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def _path(names: bytes) -> bytes:
    """The path in `a/PATH b/PATH`; both are equal, because renames are not detected."""
    if names.startswith(b'"'):
        end = 1
        while end < len(names) and names[end : end + 1] != b'"':
            end += 2 if names[end : end + 1] == b"\\" else 1
        return _unquoted(names[1:end])[2:]
    return names[2 : len(names) // 2]


def _unquoted(text: bytes) -> bytes:
    """Undo the quoting of git: octal numbers and the escapes of C."""
    found, place = bytearray(), 0
    while place < len(text):
        if text[place : place + 1] != b"\\":
            found.append(text[place])
            place += 1
        elif text[place + 1 : place + 4].isdigit():
            found.append(int(text[place + 1 : place + 4], 8))
            place += 4
        else:
            found.append(_ESCAPES.get(text[place + 1 : place + 2], 63))
            place += 2
    return bytes(found)


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
    return None if repository is None else compare(repository)


def read_files(cwd: str, words: tuple[str, ...]) -> CodeState | None:
    """The state of a folder in no git repository: hashes of the files that a command names, such
    as `train.py`, or a module after `-m`. None if it names none."""
    hashes = _named_files(cwd, words)
    if not hashes:
        return None
    files = ", ".join(f"{path} {_hash_words(value)}" for path, value in hashes.items())
    return CodeState(cwd, None, None, None, problem=f"{NO_REPOSITORY}; {files}")


def with_untracked(state: CodeState, cwd: str, words: tuple[str, ...]) -> CodeState:
    """The state of a git repository, with hashes of the untracked files that a command names in
    front of the diff, where `git apply` skips them."""
    repository = find_repository(cwd)
    hashes = _named_files(cwd, words) if repository is not None and state.problem is None else {}
    git = find_git() if hashes else None
    if git is None or repository is None:
        return state
    root = os.path.realpath(repository.root)
    inside = [p for p in hashes if os.path.realpath(os.path.join(cwd, p)).startswith(f"{root}/")]
    env = git_environment(repository, len(state.commit or "") == _SHA256_LENGTH)
    list_words = ["--literal-pathspecs", "-C", cwd, "ls-files", "-z", "--", *inside]
    try:
        listed = _run(git, list_words, env, TIME_LIMIT_SECONDS) if inside else None
    except OSError:
        return state
    if inside and (listed is None or listed.status):
        return state
    tracked = set() if listed is None else set(map(os.fsdecode, listed.output.split(b"\0")))
    notes = [
        UNTRACKED + os.fsencode(path) + f" {_hash_words(value)}\n".encode()
        for path, value in hashes.items()
        if os.path.normpath(path) not in tracked
    ]
    return state._replace(diff=b"".join(notes) + state.diff)


def _named_files(cwd: str, words: tuple[str, ...]) -> dict[str, str]:
    """Hashes of the files that a command names, except those that it writes to (`> all.csv`)."""
    import hashlib
    import re

    hashes = {}
    text = re.sub(r">[>|&]?\s*[^\s'\"=;|&<>()]+", " ", " ".join(words))
    for name in re.findall(r"[^\s'\"=;|&<>()]+", text)[:_MAX_WORDS]:
        for path in (name, f"{name.replace('.', '/')}.py"):
            full = os.path.join(cwd, path)
            try:
                if not os.path.isfile(full) or os.path.getsize(full) > MAX_DIFF_BYTES:
                    continue
                with open(full, "rb") as file:
                    hashes[path] = hashlib.sha256(file.read()).hexdigest()[:12]
            except (OSError, ValueError):
                continue
    return hashes


def _hash_words(value: str) -> str:
    return f"has the SHA-256 {value}"


def compare(
    repository: Repository, *, base: str | None = None, seconds: float = TIME_LIMIT_SECONDS
) -> CodeState:
    """The state of a work tree, as git reads it within `seconds`. `base`: the commit to compare
    with, if not HEAD."""
    head = read_head(repository)
    unknown = CodeState(repository.root, head.commit, head.branch, None)
    if head.problem is not None and base is None:
        return unknown._replace(problem=f"diff not recorded: {head.problem}")
    git = find_git()
    if git is None:
        return unknown._replace(problem="diff not recorded: git is not installed")
    commit = base or head.commit or EMPTY_TREE
    env = git_environment(repository, len(commit) == _SHA256_LENGTH)
    try:
        result = _run(git, ["-C", repository.root, *_DIFF, commit, "--"], env, seconds)
    except OSError as error:
        return unknown._replace(problem=f"diff not recorded: cannot run git: {error.strerror}")
    if result is None:
        why = f"diff not recorded: git did not finish within {seconds:.0f} s"
        return unknown._replace(problem=why)
    if result.status:
        text = " ".join(result.errors.decode("utf-8", "replace").split())[:300]
        return unknown._replace(problem=f"diff not recorded: {text or 'git failed'}")
    if result.size > MAX_DIFF_BYTES:
        why = f"diff too large: {result.size / 1e6:.0f} MB"
        return unknown._replace(is_dirty=True, diff_bytes=result.size, problem=why)
    diff = without_touched(result.output)
    return unknown._replace(is_dirty=bool(diff), diff=diff, diff_bytes=len(diff))


class _Result(Record):
    status: int  # wait status
    output: bytes  # the first MAX_DIFF_BYTES at least
    size: int
    errors: bytes


def _run(git: str, words: list[str], env: dict[str, str], seconds: float) -> _Result | None:
    """Run git without a terminal or standard input; kill it and return None after `seconds`."""
    output, output_end = os.pipe2(os.O_CLOEXEC)
    errors, errors_end = os.pipe2(os.O_CLOEXEC)
    try:
        # The module subprocess would make every submit slower.
        pid = os.posix_spawn(
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
        _close(output, output_end, errors, errors_end)
        raise
    _close(output_end, errors_end)
    result = _read(output, errors, time.monotonic() + seconds)
    if result is None:
        os.kill(pid, _SIGKILL)
    _close(output, errors)
    try:
        status = os.waitpid(pid, 0)[1]
    except ChildProcessError:  # the program that uses Stoker ignores SIGCHLD
        status = 0
    return None if result is None else result._replace(status=status)


def _read(output: int, errors: int, deadline: float) -> _Result | None:
    """Read until git has closed its output; None if that takes too long."""
    parts: list[bytes] = []
    size, kept, error_text = 0, 0, b""
    poll = select.poll()
    is_open = {output, errors}
    for pipe in is_open:
        poll.register(pipe, select.POLLIN)
    while is_open:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return None
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
    return _Result(0, b"".join(parts), size, error_text)


def _close(*pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)


def changed_since(
    root: str, commit: str | None, diff: bytes, seconds: float = 2.0
) -> list[str] | str:
    """The files of a work tree that changed since `diff` was its difference from `commit`.

    A text says why that is not known. Both are compared with the same commit, so committing the
    changes, or switching branches and back, is not a change.
    """
    repository = find_repository(root)
    if repository is None or repository.root != root:
        return f"`{root}` is no longer a git repository"
    state = compare(repository, base=commit or EMPTY_TREE, seconds=seconds)
    if state.problem is not None:
        return state.problem
    return [os.fsdecode(path) for path in changed_paths(diff, state.diff)]


def named_files(paths: list[str]) -> str:
    """`train.py and 2 more files`."""
    from stoker.text.terminal import printable

    more = len(paths) - 1
    name = printable(paths[0])
    return name if not more else f"{name} and {more} more file{'s' if more > 1 else ''}"
