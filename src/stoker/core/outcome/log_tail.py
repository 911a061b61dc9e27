"""What a program said last before it failed, for people and to tell failures apart.

`causes.py` knows reasons that decide what happens next, and is careful. This is for all others: the
exception of the last traceback, or else the last line.
"""

from __future__ import annotations

TAIL_BYTES = 16 << 10
_LONGEST = 200
_HEADER = b"Traceback (most recent call last)"
_REPORT = b"stoker:"
_AROUND = "()[]{}<>,;:.!?'\"`"


def last_words(tail: bytes) -> str | None:
    """
    >>> last_words(b"1\\nTraceback (most recent call last):\\n  ...\\nKeyError: 'lr'\\nbye\\n")
    "KeyError: 'lr'"
    >>> last_words(b"loading\\rloaded\\ntrain: no such file\\n\\n")
    'train: no such file'
    """
    lines = [line.rpartition(b"\r")[2] for line in tail.replace(b"\r\n", b"\n").split(b"\n")]
    lines = [line for line in lines if line.strip() and not line.startswith(_REPORT)]
    headers = [place for place, line in enumerate(lines) if line.lstrip().startswith(_HEADER)]
    if headers:
        for line in lines[headers[-1] + 1 :]:
            if not line[:1].isspace():
                return _shown(line)
    return _shown(lines[-1]) if lines else None


def masked(text: str) -> str:
    """The same for what differs only in numbers: a trial's number, a value, an address.

    >>> masked("trial 17: no room for 1e-05 at 0x7f3a")
    'trial #: no room for # at #'
    """
    words = []
    for word in text.split(" "):
        core = word.strip(_AROUND)
        is_number = core[:1].isdigit() or core[1:2].isdigit()
        words.append(word.replace(core, "#") if is_number else _without_digits(word))
    return " ".join(words)


def _without_digits(word: str) -> str:
    made = ""
    for char in word:
        if not char.isdigit():
            made += char
        elif not made.endswith("#"):
            made += "#"
    return made


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
