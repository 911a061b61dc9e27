"""Patterns in the paths of output files, as in Slurm: `-o logs/%x-%A_%a.txt`.

    %j  job id            %A  array id: the id of its first job; the job id outside of arrays
    %x  job name          %a  index in the array; 0 outside of arrays
    %u  user              %N  host or node where the job runs
    %%  a percent sign

A number pads with zeros: `%4a`. Other percent signs stay as they are. The database stores a path as
it was given, because a rerun has another id; a percent sign without a meaning is stored as `%` and
NUL, which no path contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_LITERAL = "%\0"
_NUMBERS = "jAab"
_LETTERS = f"{_NUMBERS}xuN%"
_MAX_WIDTH = 10
_NO_ARRAY = 4294967294  # Slurm's value of %a outside of arrays


def literal_path(path: str) -> str:
    """The path as it must be stored so that every percent sign in it stays as it is."""
    return path.replace("%", _LITERAL)


def expand_patterns(path: str, value: Callable[[str], object], *, keeps_node: bool = False) -> str:
    """Replace the patterns by `value(letter)`.

    `keeps_node`: keep `%N`, and return a path in the stored form.

    >>> expand_patterns("a-%4j%%-%x", {"j": 7, "x": "train"}.get)
    'a-0007%-train'
    """
    percent = _LITERAL if keeps_node else "%"
    parts: list[str] = []
    for before, width, letter in _pieces(path, _LETTERS):
        parts.append(before)
        if letter in ("\0", "%"):
            parts.append(percent)
        elif letter == "N" and keeps_node:
            parts.append("%N")
        elif letter:
            text = str(value(letter))
            parts.append(text.zfill(width) if letter in _NUMBERS else text)
    return "".join(parts)


def uses_node(path: str) -> bool:
    """Whether the path contains `%N`."""
    return any(letter == "N" for _, _, letter in _pieces(path, _LETTERS))


def safe_name(name: str) -> str:
    """A job name as a part of a path: it must not lead into another folder.

    >>> safe_name("../a b")
    '_._a b'
    """
    name = name.replace("/", "_")
    return f"_{name[1:]}" if name.startswith(".") else name


def from_slurm(path: str, *, is_array: bool) -> str:
    """The patterns of `#SBATCH --output` as those of Stoker.

    >>> from_slurm("%x-%4J_%t.%a%%", is_array=False)
    '%x-%4j_0.4294967294%%'
    """
    own = {"J": "%j", "n": "0", "t": "0", "s": "batch", "%": "%%", "\0": "%"}
    if not is_array:
        own |= {"a": str(_NO_ARRAY), "b": str(_NO_ARRAY % 10)}
    parts: list[str] = []
    for before, width, letter in _pieces(path, f"{_LETTERS}Jnts"):
        parts.append(before)
        padding = str(width) if width and own.get(letter, "%j") == "%j" else ""
        text = own.get(letter, f"%{letter}" if letter else "")
        parts.append(f"%{padding}{text[1:]}" if padding else text)
    return "".join(parts)


def _pieces(path: str, letters: str) -> Iterator[tuple[str, int, str]]:
    """Yield the text before each pattern, its width and its letter.

    The letter of a percent sign without a meaning is NUL; the last letter is empty.
    """
    rest = path
    while True:
        before, found, rest = rest.partition("%")
        if not found:
            yield before, 0, ""
            return
        tail = rest.lstrip("0123456789")
        letter, digits = tail[:1], rest[: len(rest) - len(tail)]
        if rest.startswith("\0"):
            yield before, 0, "\0"
            rest = rest[1:]
        elif letter and letter in letters:
            yield before, min(int(digits), _MAX_WIDTH) if digits else 0, letter
            rest = tail[1:]
        else:
            yield before, 0, "\0"
