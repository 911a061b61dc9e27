"""Parameters in a command: `--lr 0.1`, `--lr=0.1`, and `lr=0.1` as Hydra reads it.

Jobs outside a sweep have no recorded parameters; these make them comparable.
"""

from __future__ import annotations

import re

_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_ASSIGNMENT = re.compile(r"\+{0,2}([A-Za-z_][\w./@]*)=(.*)", re.DOTALL)
_OPERATORS = ("|", "||", "&", "&&", ";")
_MAX_PARAMS = 100
_MAX_CHARS = 200


def command_params(argv: tuple[str, ...], shell: bool) -> dict[str, object]:
    """The parameters of a command, in its order; an option without a value is true.

    Of a shell command with several programs, only those of the last one count.

    >>> command_params(("python train.py --lr 0.1 --amp data=a",), True)
    {'lr': 0.1, 'amp': True, 'data': 'a'}
    """
    words = _words(argv[0]) if shell else list(argv)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        del words[0]  # a variable for the program
    found: dict[str, object] = {}
    place = 1
    while place < len(words) and len(found) < _MAX_PARAMS:
        word = words[place]
        place += 1
        option = _OPTION.fullmatch(word) if word.startswith("--") else None
        pair = _ASSIGNMENT.fullmatch(word)
        if pair is not None:
            found[pair[1]] = _value(pair[2])
        elif option is not None and option[2] is not None:
            found[option[1]] = _value(option[2])
        elif option is not None:
            if place < len(words) and _is_value(words[place]):
                found[option[1]] = _value(words[place])
                place += 1
            else:
                found[option[1]] = True
    return found


def _words(text: str) -> list[str]:
    import shlex

    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        return []
    starts = [place + 1 for place, word in enumerate(words) if word in _OPERATORS]
    return words[starts[-1] :] if starts else words


def _is_value(word: str) -> bool:
    if _ASSIGNMENT.fullmatch(word):
        return False
    return not word.startswith("-") or _number(word) is not None


def _value(text: str) -> object:
    number = _number(text)
    return text[:_MAX_CHARS] if number is None else number


def _number(text: str) -> float | None:
    for convert in (int, float):
        try:
            return convert(text) if "_" not in text and len(text) < 40 else None
        except ValueError:
            continue
    return None
