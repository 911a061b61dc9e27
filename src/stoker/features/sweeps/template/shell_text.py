"""Find the quoting context of each placeholder in shell text and quote values for it.

The text is tokenized like a POSIX shell does, far enough to know whether a placeholder is unquoted,
in "double" quotes or in 'single' quotes. A placeholder is refused where its value could be
evaluated a second time, or where shells disagree about the end of a quotation: a wrong guess would
let a value run as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stoker.errors import UsageError
from stoker.features.sweeps.template.interpreters import (
    HOLE,
    LIVE,
    NO_DASH,
    OK,
    PLAIN,
    reads_commands,
)
from stoker.features.sweeps.template.placeholders import Part, Placeholder
from stoker.features.sweeps.template.shell_variables import Variables

_SAFE = re.compile(r"[A-Za-z0-9_./:+@%-]+")  # no = (assignments), no , (brace expansion)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9._-]*")
_DROPPED = re.compile(rf"(--?[A-Za-z0-9][A-Za-z0-9._-]*=|[A-Za-z_+][A-Za-z0-9_.+-]*=)?{HOLE}")
_VARIABLE = re.compile(r"\{?[!#]?([A-Za-z_][A-Za-z0-9_]*|[0-9@*])")
_RESERVED = ("if", "then", "elif", "else", "do", "while", "until", "!", "{", "time")
_GLOBS = frozenset("{}[]~*?$!")
_NAME_GOES_ON = frozenset("_@*#?!-$:[")


class Slot:
    """A placeholder with its quoting context."""

    def __init__(self, hole: Placeholder, quote: str, is_glued: bool) -> None:
        self.hole = hole
        self.quote = quote
        self.is_glued = is_glued  # directly after `$name`, which would absorb letters
        self.is_forced = is_glued  # always quoted, even if the value looks safe
        self.guard = OK

    def write(self, text: str) -> str:
        """Quote `text` for this context, so that the program gets exactly `text`."""
        if self.quote == "'":
            return text.replace("'", "'\\''")
        if self.quote == '"':
            return ('""' if self.is_glued else "") + re.sub(r'([\\"$`])', r"\\\1", text)
        return text if not self.is_forced and _SAFE.fullmatch(text) else quote(text)

    def write_gpus(self) -> str:
        """The variable with the GPUs of the job, expanded by the shell."""
        if self.quote == "'":
            return "'\"${STOKER_GPUS}\"'"
        return "${STOKER_GPUS}" if self.quote == '"' else '"${STOKER_GPUS}"'


class Word:
    def __init__(self, command: int, is_target: bool) -> None:
        self.parts: list[str | Slot] = []
        self.literal = ""  # without quotes; HOLE and LIVE mark placeholders and expansions
        self.command = command
        self.is_target = is_target  # of a redirection
        self.is_head = False
        self.is_array = False  # `A=(...)`: the elements are separate words
        self.variables: set[str] = set()  # shell variables that the word expands

    @property
    def slots(self) -> list[Slot]:
        return [part for part in self.parts if isinstance(part, Slot)]

    @property
    def can_go(self) -> bool:
        """Whether to drop the word if its value is absent: `{wd}`, `--wd={wd}`, `wd={wd}`."""
        return not (self.is_target or self.is_head) and bool(_DROPPED.fullmatch(self.literal))

    @property
    def is_option(self) -> bool:
        return bool(_OPTION.fullmatch(self.literal))


Piece = str | Word


def quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def read(parts: Iterable[Part]) -> list[Piece]:
    """Split shell text into separators and words; raises UsageError for an unsafe placeholder."""
    reader = _Reader(parts)
    reader.read()
    _check_placeholders(reader)
    return reader.pieces


def refuse(hole: Placeholder, where: str, hint: str | None = None) -> UsageError:
    if where.endswith(("arithmetic", "subscript")):
        hint = "compute it in the program"  # bash also evaluates variables' values there
    name = re.sub(r"[^A-Za-z0-9]", "_", hole.name)
    known = {"gpu": "STOKER_GPUS", "params": "STOKER_PARAMS"}
    variable = known.get(hole.name, f"STOKER_PARAM_{name}")
    return UsageError(
        f"`{{{hole.name}}}` is {where}, where a value cannot be quoted safely",
        hint or f'use the environment variable there: "${variable}"',
    )


class _Reader:
    def __init__(self, parts: Iterable[Part]) -> None:
        self._atoms: list[str | Placeholder] = []
        for part in parts:
            self._atoms.extend([part] if isinstance(part, Placeholder) else part)
        self._at = 0
        self._quote = ""
        self._word: Word | None = None
        self._dollar = False
        self._blocked: str | None = None  # why placeholders are refused from here on
        self._is_target = False
        self.pieces: list[Piece] = []
        self.words: list[Word] = []
        self.piped: set[int] = set()  # commands that read from a pipe
        self._command = 0

    def read(self) -> None:
        while self._at < len(self._atoms):
            atom = self._atoms[self._at]
            if isinstance(atom, Placeholder):
                self._hole(atom)
            elif self._quote == "'":
                self._add(atom, "" if atom == "'" else atom)
                self._quote = "" if atom == "'" else "'"
            elif atom == "\\":
                self._backslash()
            elif atom == "$":
                self._substitution()
            elif atom == "`":
                self._backticks()
            elif self._quote == '"' or atom in "'\"":
                self._double_or_quote(atom)
            else:
                self._unquoted(atom)
            self._at += 1

    def _hole(self, hole: Placeholder) -> None:
        if self._blocked:
            raise refuse(hole, self._blocked)
        word = self._open_word()
        word.parts.append(Slot(hole, self._quote, self._dollar))
        word.literal += HOLE
        self._dollar = False

    def _double_or_quote(self, char: str) -> None:
        if char == self._quote:
            self._add(char, "")
            self._quote = ""
            self._dollar = False
        elif not self._quote:
            self._add(char, "")
            self._quote = char
            self._dollar = False
        else:
            self._add(char, char)

    def _backslash(self) -> None:
        following = self._ahead(1)
        if isinstance(following, Placeholder):
            raise refuse(following, "after a backslash", "remove the backslash")
        if following == "\n" and self._word is None:
            self._separate("\\\n")
        else:
            keeps = self._quote == '"' and following not in ("$", "`", '"', "\\", "\n")
            self._add("\\" + following, ("\\" if keeps else "") + following.replace("\n", ""))
        self._dollar = False
        self._at += 1

    def _substitution(self) -> None:
        found = _VARIABLE.match(self._text(self._at + 1, 200))
        if found:
            self._open_word().variables.add(found[1])
        following = self._ahead(1)
        assert not isinstance(following, Placeholder)  # placeholders.parse refuses `${...}`
        if following == "(":
            where = "in arithmetic" if self._ahead(2) == "(" else "inside $(...)"
            self._skip(self._parentheses(self._at + 2, where))
        elif following == "{":
            self._skip(self._braces(self._at + 2))
        elif following == "'" and not self._quote:
            self._skip(self._ansi(self._at + 2))
        else:
            if following == "[" or (following == '"' and not self._quote):
                self._blocked = f"after `${following}`"
            self._add("$", LIVE)
            self._dollar = True

    def _backticks(self) -> None:
        end = self._at + 1
        while end < len(self._atoms) and self._atoms[end] != "`":
            self._check_inside(end, "inside backticks")
            if self._atoms[end] in ("\\", "'", '"'):
                self._blocked = "after quotes inside backticks"
            end += 2 if self._atoms[end] == "\\" else 1
        self._skip(end + 1)

    def _parentheses(self, at: int, where: str) -> int:
        """Return the place after the closing parenthesis. If the contents are ambiguous,
        placeholders that follow are blocked."""
        depth, inner, start = 1, "", at
        while at < len(self._atoms) and depth:
            self._check_inside(at, where)
            char = self._atoms[at]
            assert isinstance(char, str)
            if char == "\\":
                at += 1
                if at < len(self._atoms):
                    self._check_inside(at, where)
            elif inner:
                inner = "" if char == inner else inner
                if char in "`$" and inner == '"':
                    self._blocked = "after quotes inside $(...)"
            elif char in "'\"":
                inner = char
            elif char in "()":
                depth += 1 if char == "(" else -1
            elif char in "`#" or (char == "<" and self._text(at, 2) == "<<"):
                self._blocked = "after a $(...) that Stoker cannot parse"
            at += 1
        if depth or re.search(r"\b(case|esac)\b", self._text(start, at - start)):
            self._blocked = "after a $(...) that Stoker cannot parse"
        return at

    def _braces(self, at: int) -> int:
        while at < len(self._atoms) and self._atoms[at] != "}":
            self._check_inside(at, "inside ${...}")
            if self._atoms[at] in ("'", '"', "`", "\\", "{", "("):
                self._blocked = "after a ${...} that Stoker cannot parse"
            at += 1
        return at + 1

    def _ansi(self, at: int) -> int:
        while at < len(self._atoms) and self._atoms[at] != "'":
            self._check_inside(at, "inside $'...'")
            if self._atoms[at] == "\\":  # not every shell supports $'...'
                self._blocked = "after $'...' with a backslash"
                at += 1
            at += 1
        return at + 1

    def _check_inside(self, at: int, where: str) -> None:
        atom = self._atoms[at]
        if isinstance(atom, Placeholder):
            raise refuse(atom, where)

    def _skip(self, end: int) -> None:
        self._add(self._text(self._at, end - self._at), LIVE)
        self._dollar = False
        self._at = end - 1

    def _unquoted(self, char: str) -> None:
        following = self._ahead(1)
        if char in " \t":
            self._separate(char)
        elif char == "#" and self._word is None:
            self._comment()
        elif char in "<>" and following == "(":
            self._end_word()
            self._skip(self._parentheses(self._at + 2, "inside <(...)"))
        elif char in "<>" or (char == "&" and following == ">"):
            self._redirection(char)
        elif char in ";&|()\n":
            if char == "(" and self._word is not None:
                self._word.is_array = self._word.literal.endswith("=")
            if char == "(" and following == "(":
                self._blocked = "after `((`, in arithmetic"
            self._separate(char)
            self._command += 1
            self._is_target = False
            is_pipe = char == "|" and self._before() != "|" and following != "|"
            if is_pipe or (char == "&" and self._before() == "|"):
                self.piped.add(self._command)
        else:
            self._add(char, char)

    def _redirection(self, char: str) -> None:
        if self._word is not None:
            if self._word.literal.isdigit() and not self._word.slots:
                self._word.is_target = True  # a file descriptor, not a word of the command
            for slot in self._word.slots:
                slot.is_forced = True  # `2>` redirects descriptor 2, `'2'>` does not
        self._separate(char)
        while self._ahead(1) in ("<", ">", "&", "|"):
            self._at += 1
            following = self._atoms[self._at]
            assert isinstance(following, str)
            if char + following == "<<":
                self._blocked = "after `<<`"
            self._separate(following)
        self._is_target = True

    def _comment(self) -> None:
        while self._at < len(self._atoms) and self._atoms[self._at] != "\n":
            self._check_inside(self._at, "in a comment")
            self._separate(self._text(self._at, 1))
            self._at += 1
        self._at -= 1

    def _open_word(self) -> Word:
        if self._word is None:
            self._word = Word(self._command, self._is_target)
            self._is_target = False
            self.pieces.append(self._word)
            self.words.append(self._word)
        return self._word

    def _end_word(self) -> None:
        self._word = None
        self._dollar = False

    def _add(self, text: str, literal: str) -> None:
        word = self._open_word()
        if word.parts and isinstance(word.parts[-1], str):
            word.parts[-1] += text
        else:
            word.parts.append(text)
        word.literal += literal
        if self._dollar and not (text.isalnum() or text in _NAME_GOES_ON):
            self._dollar = False

    def _separate(self, text: str) -> None:
        self._end_word()
        if self.pieces and isinstance(self.pieces[-1], str):
            self.pieces[-1] += text
        else:
            self.pieces.append(text)

    def _ahead(self, distance: int) -> str | Placeholder:
        place = self._at + distance
        return self._atoms[place] if place < len(self._atoms) else ""

    def _before(self) -> str | Placeholder:
        return self._atoms[self._at - 1] if self._at else ""

    def _text(self, start: int, length: int) -> str:
        return "".join(a for a in self._atoms[start : start + length] if isinstance(a, str))


def _check_placeholders(reader: _Reader) -> None:
    """Refuse placeholders in words that are evaluated again; set the guards of the others."""
    commands: dict[int, list[Word]] = {}
    in_test = False
    for word in reader.words:
        if not word.is_target:
            commands.setdefault(word.command, []).append(word)
        in_test = (in_test or word.literal == "[[") and word.literal != "]]"
        if in_test and word.slots:
            raise refuse(word.slots[0].hole, "inside [[ ]]", "use [ ] or test, which only compare")
        for slot in word.slots:
            slot.is_forced |= bool(_GLOBS & set(word.literal))
    variables = Variables()
    for words in commands.values():
        variables.read(words, _without_prefix(words))
    variables.propagate()
    for number, words in commands.items():
        rest = _without_prefix(words)
        literals = [word.literal for word in rest]
        if number in reader.piped and reads_commands(literals):
            _refuse_all(reader.words, "in a command with a pipe into a shell")
        if literals and literals[0] == "eval":
            _refuse_all(reader.words, "in a command with eval")
        for word, verdict in zip(rest, variables.judge(rest), strict=True):
            if verdict == OK:
                continue
            for slot in variables.values_in(word):
                if verdict not in (PLAIN, NO_DASH) or slot.guard not in (OK, verdict):
                    raise refuse(
                        slot.hole,
                        "in a variable that becomes part of a program",
                        "call the program directly",
                    )
                slot.guard = verdict
            for slot in word.slots:
                if verdict not in (PLAIN, NO_DASH):
                    raise _parsed_again(slot.hole, verdict)
                slot.guard = verdict


def _without_prefix(words: list[Word]) -> list[Word]:
    """The words after reserved words and assignments."""
    for index, word in enumerate(words):
        if word.literal in _RESERVED and not word.slots:
            continue
        found = _ASSIGNMENT.match(word.literal)
        if found is None:
            for slot in word.slots:
                slot.is_forced = True  # quoting prevents a reserved word, alias or assignment
            word.is_head = True
            return words[index:]
        if found[1] and HOLE in found[1]:
            raise refuse(word.slots[0].hole, "in a subscript")
    return []


def _refuse_all(words: Iterable[Word], where: str) -> None:
    for word in words:
        for slot in word.slots:
            raise refuse(slot.hole, where, "call the program directly")


def _parsed_again(hole: Placeholder, reader: str) -> UsageError:
    if reader == "script":
        return refuse(
            hole,
            "in the program text of another shell",
            "leave out `sh -c`, or write the command as words after `--`",
        )
    return refuse(hole, f"in a word that {reader} parses again", "call the program directly")
