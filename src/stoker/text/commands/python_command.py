"""Recognize commands that run a Python program: `python train.py`, `python -m pkg`, `python -c`."""

from __future__ import annotations

from stoker.record import Record

_SWITCHES = frozenset("BEIOPRSbdqsu")  # options of the interpreter that take no value
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_ \t")


class PythonCommand(Record):
    """A command that executes a Python interpreter."""

    python: str  # the interpreter as it is named in the command
    flags: tuple[str, ...]
    kind: str  # script, module or code
    program: str  # a path, the name of a module, or source code
    arguments: tuple[str, ...]


def parse_python(argv: tuple[str, ...]) -> PythonCommand | str:
    """Return the parts of a command, or why it is not the simple form that a fork can run.

    >>> parse_python(("python", "-u", "train.py", "--lr", "1"))
    PythonCommand(python='python', flags=('-u',), kind='script', program='train.py', \
arguments=('--lr', '1'))
    >>> parse_python(("uv", "run", "train.py"))
    'its command starts `uv`, not a Python interpreter'
    """
    name = argv[0].rpartition("/")[2]
    if not _is_python(name):
        return f"its command starts `{argv[0]}`, not a Python interpreter"
    flags: list[str] = []
    rest = list(argv[1:])
    while rest:
        word = rest.pop(0)
        if word in ("", "-") or word.startswith("--"):
            return f"`{name} {word}` is not a script, a module or code"
        if word[0] != "-":
            return PythonCommand(argv[0], tuple(flags), "script", word, tuple(rest))
        kept = ""
        for position, letter in enumerate(word[1:], 1):
            value = word[position + 1 :]
            if letter in _SWITCHES:
                kept += letter
                continue
            if letter not in "mcWX" or not (value or rest):
                return f"`{name} {word}` cannot be forked"
            if not value:
                value = rest.pop(0)
            if kept:
                flags.append(f"-{kept}")
            if letter in "WX":
                if value.partition("=")[0] in ("importtime", "presite"):
                    return f"`{name} -X {value}` cannot be forked"
                flags += [f"-{letter}", value]
                kept = ""
                break
            kind = "module" if letter == "m" else "code"
            return PythonCommand(argv[0], tuple(flags), kind, value, tuple(rest))
        if kept:
            flags.append(f"-{kept}")
    return f"`{name}` without a program cannot be forked"


def quoted_words(text: str) -> tuple[str, ...] | None:
    """Return the words of a shell command that has quotes but no other syntax, else None.

    >>> quoted_words("python train.py --name 'a b'")
    ('python', 'train.py', '--name', 'a b')
    >>> quoted_words("python train.py > log") is None
    True
    """
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(text):
        char = text[at]
        if char in " \t":
            if word is not None:
                words.append(word)
            word = None
        elif char in "'\"":
            end = text.find(char, at + 1)
            inside = text[at + 1 : end]
            if end < 0 or (char == '"' and not frozenset('$`\\!"').isdisjoint(inside)):
                return None
            word = (word or "") + inside
            at = end
        elif char not in _PLAIN or (char == "=" and word is None):
            return None
        else:
            word = (word or "") + char
        at += 1
    if word is not None:
        words.append(word)
    return tuple(words) or None


def _is_python(name: str) -> bool:
    version = name.removeprefix("python")
    return name.startswith("python") and not version.strip("0123456789.")
