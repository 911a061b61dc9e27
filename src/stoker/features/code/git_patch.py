"""The files in a diff that git printed."""

from __future__ import annotations

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
