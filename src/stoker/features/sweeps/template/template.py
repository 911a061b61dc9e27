"""The command of a sweep with placeholders, and how the values of a point are inserted.

    {lr}             the value of a parameter
    {params}         all parameters: --lr 0.1 --bs 32
    {params:hydra}   lr=0.1 bs=32        {params:equals}  --lr=0.1 --bs=32
    {params:flags}   --lr=0.1 --amp      (a flag if true, nothing if false)
    {params:json}    one word of JSON    {params:file}    the path of a JSON file
    {id} {dir}       the number of the trial, and its folder
    {gpu}            its GPUs, known when it starts

Values never become part of a program: in shell text, a value is quoted for its context. If a point
lacks a parameter, its word is dropped together with the option before it: `--wd {wd}` and
`--wd={wd}` disappear, `run-{wd}` becomes `run-`. A value may start with a dash; put `--` before it
if the program would read it as an option.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache

from stoker.errors import UsageError
from stoker.features.sweeps.spec import other_names
from stoker.features.sweeps.spec.search_space import variable
from stoker.features.sweeps.spec.values import Point, Value, check_text
from stoker.features.sweeps.template import placeholders, shell_text
from stoker.features.sweeps.template.interpreters import (
    HARMLESS,
    HOLE,
    NO_DASH,
    OK,
    PLAIN,
    POSIX_SHELLS,
    SCRIPT,
    judge,
)
from stoker.features.sweeps.template.placeholders import SPECIAL, Placeholder
from stoker.features.sweeps.template.shell_text import Piece, Slot, Word, quote
from stoker.record import Record
from stoker.text.suggestions import nearest

PARAMS_FILE = "params.json"  # for {params:file}, in the folder of the trial; the caller writes it
_WHOLE_WORDS = ("", "hydra", "equals", "flags")  # styles of {params} that give several words


class Rendered(Record):
    argv: tuple[str, ...]
    shell: bool  # argv holds a single text for a POSIX shell


class Template(Record):
    """A command; if `shell` is true, `words` holds a single shell text."""

    words: tuple[str, ...]
    shell: bool = False

    @property
    def holes(self) -> tuple[Placeholder, ...]:
        parts = [part for word in self.words for part in placeholders.parse(word)]
        return tuple(part for part in parts if isinstance(part, Placeholder))

    @property
    def wants_file(self) -> bool:
        """Whether {dir}/params.json must exist when the trial starts."""
        return any(hole.style == "file" for hole in self.holes)

    def check(self, names: Iterable[str], lenient: bool = False) -> None:
        """Raise UsageError for an unknown or unsafe placeholder, or an unused parameter."""
        names = tuple(names)
        if not self.words or not any(word.strip() for word in self.words):
            raise UsageError("the command is missing", "write it as one quoted word, or after `--`")
        used = {hole.name for hole in self.holes}
        for name in sorted(used):
            if name in SPECIAL and name in names:
                raise UsageError(f"`{{{name}}}` is reserved by Stoker", "rename the parameter")
            if name not in SPECIAL and name not in names:
                near = nearest(name, [*names, *SPECIAL], other_names.PLACEHOLDERS)
                raise UsageError(
                    f"`{{{name}}}` does not refer to a parameter",
                    f"did you mean `{{{near}}}`?" if near else "write {{ and }} for literal braces",
                )
        _compile(self)
        unused = [name for name in names if name not in used]
        if unused and "params" not in used and not lenient:
            raise UsageError(
                f"the command does not use `{unused[0]}`",
                f"write {{{unused[0]}}} where it belongs, or {{params}} for all parameters",
            )

    def render(self, point: Point, number: int = 0, folder: str = ".") -> Rendered:
        """The command of one trial; raises UsageError if a value is not safe in its place."""
        filler = _Filler(point, number, folder)
        compiled = _compile(self)
        if self.shell:
            return Rendered((filler.text(compiled[0]),), True)
        if any(_uses_gpu(pieces) for pieces in compiled):
            words = filler.words(compiled, for_shell=True)
            return Rendered(("exec " + " ".join(words),), True)
        return Rendered(tuple(filler.words(compiled)), False)

    def to_json(self) -> dict[str, object]:
        return {"words": list(self.words), "shell": self.shell}

    @classmethod
    def from_json(cls, stored: dict[str, object]) -> Template:
        words = stored["words"]
        assert isinstance(words, list)
        return Template(tuple(words), bool(stored["shell"]))


def shell(text: str) -> Template:
    return Template((text,), True)


def argv(words: Iterable[str]) -> Template:
    return Template(tuple(words), False)


def variables(point: Point) -> dict[str, str]:
    """The environment variables of a trial: STOKER_PARAMS and one STOKER_PARAM_* per parameter."""
    data = {name: value.data for name, value in point.items()}
    made = {f"STOKER_PARAM_{variable(name)}": check_text(v.text) for name, v in point.items()}
    return {**made, "STOKER_PARAMS": json.dumps(data, ensure_ascii=False)}


def check_shell(path: str) -> None:
    """Raise UsageError unless `path` is a POSIX shell; fish and csh have other quoting rules."""
    if os.path.basename(path) not in POSIX_SHELLS:
        raise UsageError(
            f"`{path}` is not a POSIX shell, so values cannot be quoted for it",
            "write the command as words after `--`",
        )


class _Script(Record):
    """A word of argv that is the program text of a shell."""

    pieces: list[Piece]


_Compiled = list[list[Piece] | _Script]


@lru_cache(maxsize=100)
def _compile(template: Template) -> _Compiled:
    if template.shell:
        pieces = shell_text.read(placeholders.parse(template.words[0]))
        _check_params(pieces)
        return [pieces]
    parsed = [placeholders.parse(word) for word in template.words]
    literals = [
        "".join(HOLE if isinstance(p, Placeholder) else p for p in parts) for parts in parsed
    ]
    compiled: _Compiled = []
    for parts, literal, verdict in zip(parsed, literals, judge(literals), strict=True):
        if verdict == SCRIPT and any(isinstance(part, Placeholder) for part in parts):
            pieces = shell_text.read(parts)
            _check_params(pieces)
            compiled.append(_Script(pieces))
            continue
        word = Word(0, False)
        word.literal = literal
        word.is_head = not compiled
        for part in parts:
            if isinstance(part, str):
                word.parts.append(part)
                continue
            if verdict not in (OK, PLAIN, NO_DASH, SCRIPT):
                raise shell_text.refuse(
                    part, f"in a word that {verdict} parses again", "call the program directly"
                )
            slot = Slot(part, "", False)
            slot.guard = verdict
            word.parts.append(slot)
        _check_params([word])
        compiled.append([word])
    return compiled


def _check_params(pieces: list[Piece]) -> None:
    for word in pieces:
        if isinstance(word, str):
            continue
        for slot in word.slots:
            is_many = slot.hole.name == "params" and slot.hole.style in _WHOLE_WORDS
            if is_many and (word.literal != HOLE or slot.quote or word.is_head or word.is_target):
                raise UsageError(
                    "`{params}` expands to several words and must stand alone",
                    "put spaces around it and no quotes, or use {params:json}",
                )


def _uses_gpu(pieces: list[Piece] | _Script) -> bool:
    """Whether a word needs a shell around it to expand {gpu}."""
    if isinstance(pieces, _Script):
        return False  # its own shell expands it
    return any(s.hole.name == "gpu" for w in pieces if isinstance(w, Word) for s in w.slots)


class _Filler:
    """Inserts the values of one point into a command."""

    def __init__(self, point: Point, number: int, folder: str) -> None:
        self._point = point
        self._special = {"id": str(number), "dir": folder}
        self._folder = folder

    def text(self, pieces: list[Piece] | _Script) -> str:
        """The shell text; words whose value is absent are dropped with the option before them."""
        if isinstance(pieces, _Script):
            pieces = pieces.pieces
        made: list[str] = []
        before: Word | None = None
        for piece in pieces:
            if isinstance(piece, str):
                blank = piece.replace("\\\n", " ")  # a line continuation
                before = before if blank.isspace() and "\n" not in blank else None
                made.append(piece)
            elif self._is_absent(piece):
                if before is not None and before.is_option and piece.literal == HOLE:
                    del made[-2:]
                before = None
                made.append("")
            else:
                made.append("".join(self._shell_part(part) for part in piece.parts))
                before = piece
        return "".join(made)

    def words(self, compiled: _Compiled, for_shell: bool = False) -> list[str]:
        """The words of argv; with `for_shell`, quoted for the shell that expands {gpu}."""
        made: list[str] = []
        before: Word | None = None
        wrap = quote if for_shell else str
        for pieces in compiled:
            if isinstance(pieces, _Script):
                made.append(wrap(self.text(pieces)))
                before = None
                continue
            (word,) = pieces
            assert isinstance(word, Word)
            many = self._many(word)
            if many is not None:
                made.extend(map(wrap, many))
                before = None
            elif self._is_absent(word):
                if before is not None and before.is_option and word.literal == HOLE:
                    made.pop()
                before = None
            else:
                made.append(self._quoted(word) if for_shell else self._plain(word))
                before = word
        return made

    def _is_absent(self, word: Word) -> bool:
        """Whether to drop the word because the point lacks its parameter."""
        if not word.can_go or not word.slots:
            return False
        name = word.slots[0].hole.name
        return name not in SPECIAL and name not in self._point

    def _shell_part(self, part: str | Slot) -> str:
        if isinstance(part, str):
            return part
        if part.hole.name == "gpu":
            return part.write_gpus()
        if part.hole.name == "params" and part.hole.style in _WHOLE_WORDS:
            return " ".join(part.write(word) for word in self._params(part))
        return part.write(self._value(part))

    def _plain(self, word: Word) -> str:
        return "".join(part if isinstance(part, str) else self._value(part) for part in word.parts)

    def _quoted(self, word: Word) -> str:
        made = [
            quote(part)
            if isinstance(part, str)
            else part.write_gpus()
            if part.hole.name == "gpu"
            else quote(self._value(part))
            for part in word.parts
        ]
        return "".join(made) or quote("")

    def _many(self, word: Word) -> list[str] | None:
        slots = word.slots
        if slots and slots[0].hole.name == "params" and slots[0].hole.style in _WHOLE_WORDS:
            return self._params(slots[0])
        return None

    def _value(self, slot: Slot) -> str:
        hole = slot.hole
        if hole.name == "params":
            return _guarded(slot, self._params(slot)[0])
        if hole.name in self._special:
            return _guarded(slot, self._special[hole.name])
        value = self._point.get(hole.name)
        return "" if value is None else _guarded(slot, value.text)

    def _params(self, slot: Slot) -> list[str]:
        style = slot.hole.style
        if style == "json":
            return [json.dumps({n: v.data for n, v in self._point.items()}, ensure_ascii=False)]
        if style == "file":
            return [os.path.join(self._folder, PARAMS_FILE)]
        made: list[str] = []
        for name, value in self._point.items():
            if style == "":
                made += [f"--{name}", value.text]
            elif style == "hydra":
                made.append(override(name, value))
            elif style == "flags" and isinstance(value.data, bool):
                made += [f"--{name}"] if value.data else []
            else:
                made.append(f"--{name}={value.text}")
        return [_guarded(slot, word) for word in made]


def _guarded(slot: Slot, text: str) -> str:
    check_text(text)
    if slot.guard == PLAIN and not HARMLESS.fullmatch(text):
        raise UsageError(
            f"`{text}` would become part of a program at `{{{slot.hole.name}}}`",
            f"let the program read the variable STOKER_PARAM_{variable(slot.hole.name)}",
        )
    if slot.guard == NO_DASH and text[:1] in ("-", "+"):
        raise UsageError(
            f"`{text}` in place of `{{{slot.hole.name}}}` would be read as an option",
            "use values that do not start with - or +",
        )
    return text


# Write parameters as Hydra command-line overrides that Hydra parses back to the same values.
#
# Hydra reads `x=true` as a boolean and `x='true'` as a string, splits at commas, and has its own
# escape sequences. Grammar: https://hydra.cc/docs/advanced/override_grammar/basic/

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Strings that need no quotes, unless they are one of _WORDS.
_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@%-]*")
_WORDS = ("true", "false", "null", "nan", "inf")
# Dict keys cannot be quoted. Special characters can only be escaped, and not all of them can.
_KEY = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@%\-+*?|$(){}\[\]:=, \t\\]*")
_ESCAPED_IN_KEYS = re.compile(r"([\\(){}\[\]:=, \t])")


def override(name: str, value: Value) -> str:
    """Return the override `name=value`.

    >>> override("lr", Value(0.001, "1e-3")), override("note", Value("a, b", "a, b"))
    ('lr=1e-3', "note='a, b'")
    >>> override("+db", Value({"user": "me", "ports": [1, None]}, ""))
    '+db={user:me,ports:[1,null]}'
    """
    data = value.data
    is_bool = isinstance(data, bool) and value.text.lower() in ("true", "false")
    is_number = isinstance(data, (int, float)) and _NUMBER.fullmatch(value.text) is not None
    # Keep the user's spelling where Hydra reads the same value: Hydra names folders after it.
    return f"{name}={value.text if is_bool or is_number else _rendered(data)}"


def _rendered(data: object) -> str:
    if data is None:
        return "null"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, (int, float)):
        return repr(data)
    if isinstance(data, list):
        return f"[{','.join(map(_rendered, data))}]"
    if isinstance(data, dict):
        return f"{{{','.join(f'{_key(key)}:{_rendered(part)}' for key, part in data.items())}}}"
    return _text(str(data))


def _text(text: str) -> str:
    if _BARE.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # A backslash is an escape only before a quote, also before the closing one.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


def _key(key: str) -> str:
    is_plain = _KEY.fullmatch(key) is not None and key.lower() not in _WORDS
    if not is_plain or key != key.strip():
        raise UsageError(
            f"Hydra cannot parse the dict key `{key}` on a command line",
            "start keys with a letter and use only letters, digits, _ and -",
        )
    return _ESCAPED_IN_KEYS.sub(r"\\\1", key)
