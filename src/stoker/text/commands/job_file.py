"""Job files: one job per line.

- Empty lines and lines that begin with `#` are skipped.
- A backslash at the end continues the line.
- `#stoker FLAGS` after a command sets flags of that job; on a line of its own, of all jobs that
  follow. Inside quotes it is part of the command, like `#` in a shell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stoker.errors import UsageError
from stoker.record import Record

DIRECTIVE = "#stoker"
_GAP = ("", " ", "\t")  # what may follow the directive
_PLAIN_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_~$")


class JobLine(Record):
    number: int
    text: str
    flags: str  # of the directives before this line, then of those on it
    flags_at: int = 0  # the line of the last of these directives; 0: of none


class Parser:
    """Takes lines one by one, so that jobs from a slow producer start without delay."""

    def __init__(self) -> None:
        self._common_flags = ""
        self._flags_at = 0
        self._joined = ""
        self._first = 0
        self._number = 0

    def feed(self, raw: str) -> JobLine | None:
        """Return the job that this line completes, or None. Raises UsageError."""
        self._number += 1
        if not self._joined and _is_plain(raw):
            return JobLine(self._number, raw, self._common_flags, self._flags_at)
        line = raw.rstrip("\r\n")
        if "\0" in line:
            raise UsageError(f"line {self._number} holds a NUL byte", "is this a text file?")
        if self._joined:
            line, self._joined = self._joined + line, ""
        else:
            self._first = self._number
            if self._number == 1:
                line = line.removeprefix("\ufeff")  # byte order mark
        head = line.lstrip()
        if not head:
            return None
        if head[0] == "#":  # a backslash does not continue a comment
            if head.startswith(DIRECTIVE) and head[len(DIRECTIVE) :][:1] in _GAP:
                flags = head[len(DIRECTIVE) :].strip()
                self._common_flags = f"{self._common_flags} {flags}".strip()
                self._flags_at = self._number
            return None
        if line[-1] == "\\" and (len(line) - len(line.rstrip("\\"))) % 2:
            self._joined = line[:-1]
            return None
        return self._line(line)

    def finish(self) -> JobLine | None:
        """Return the last job if the input ended inside a continued line, else None."""
        if not self._joined.strip():
            return None
        text, self._joined = self._joined, ""
        return self._line(text)

    def _line(self, text: str) -> JobLine:
        common = self._common_flags
        if DIRECTIVE not in text:
            return JobLine(self._first, _trim(text), common, self._flags_at)
        command, *flags = _split(text)
        joined = " ".join(filter(None, (common, *flags)))
        return JobLine(
            self._first, _trim(command), joined, self._first if flags else self._flags_at
        )


def parse(lines: Iterable[str]) -> Iterator[JobLine]:
    """
    >>> [line.text for line in parse(["# two jobs", "echo a \\\\", "b", "echo c #stoker --gpus 2"])]
    ['echo a b', 'echo c']
    """
    parser = Parser()
    for raw in lines:
        line = parser.feed(raw)
        if line is not None:
            yield line
    last = parser.finish()
    if last is not None:
        yield last


def _is_plain(raw: str) -> bool:
    """Whether a line is a command as it is: the usual case."""
    return (
        raw[:1] in _PLAIN_START
        and "#" not in raw
        and "\\" not in raw
        and "\0" not in raw
        and not raw[-1].isspace()
    )


def _split(text: str) -> list[str]:
    """Return the command, then the flags of each directive outside of quotes.

    >>> _split("echo ' #stoker a' #stoker -G 2 #stoker -n 'b #stoker c'")
    ["echo ' #stoker a' ", '-G 2', "-n 'b #stoker c'"]
    """
    parts: list[str] = []
    start = place = 0
    before, quote, is_comment = " ", "", False
    while place < len(text):
        char, end = text[place], place + len(DIRECTIVE)
        if quote:
            if char == quote:
                quote = ""
            elif char == "\\" and quote == '"':
                place += 1
        elif before in " \t" and text.startswith(DIRECTIVE, place) and text[end : end + 1] in _GAP:
            parts.append(text[start:place])
            start, place, is_comment = end, end - 1, False
            char = " "
        elif is_comment:
            pass  # quotes have no meaning in a shell comment
        elif char == "#" and before in " \t;&|()<>" and not parts:
            is_comment = True
        elif char == "\\":
            place += 1
        elif char in "\"'":
            quote = char
        before = char
        place += 1
    return [*parts[:1], *map(str.strip, parts[1:]), text[start:].strip() if parts else text]


def _trim(text: str) -> str:
    trimmed = text.strip()
    return text.lstrip() if trimmed.endswith("\\") else trimmed  # the last space is escaped


_LANGUAGES = {
    "py": "python",
    "ipynb": "jupyter nbconvert --execute",
    "r": "Rscript",
    "jl": "julia",
    "js": "node",
    "pl": "perl",
    "rb": "ruby",
}
_SWEEPS = ("toml", "yaml", "yml", "json")
_SHEBANGS = ("python", "Rscript", "julia", "node", "perl", "ruby")
_PYTHON_STARTS = ("def ", "class ", "@", '"""', "'''")


def other_use(path: str, head: str) -> tuple[str, str] | None:
    """Return what a file is and the command that runs it; None for a list of commands.

    >>> other_use("train.py", "")
    ('is a program', 'python train.py')
    >>> other_use("jobs.txt", "python train.py --lr 0.1") is None
    True
    """
    suffix = path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path else ""
    if suffix in _LANGUAGES:
        return "is a program", f"{_LANGUAGES[suffix]} {path}"
    if suffix in _SWEEPS:
        return "is not a list of commands", ""
    lines = [line.strip() for line in head.splitlines()]
    if lines and lines[0].startswith("#!"):
        program = next((name for name in _SHEBANGS if name in lines[0]), None)
        if program is not None:
            return "is a program", f"{program} {path}"
    if any(line.startswith("#SBATCH ") for line in lines):
        return "is one script with #SBATCH options", path
    first = next((line for line in lines if line and line[0] != "#"), "")
    is_import = first.startswith("import ") or (first.startswith("from ") and " import " in first)
    if is_import or first.startswith(_PYTHON_STARTS):
        return "looks like Python", f"python {path}"
    return None
