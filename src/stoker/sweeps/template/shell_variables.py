"""Variables that a shell text sets for itself: values can travel in them, and programs can hide.

`A={x}; sh -c "$A"` hands a value to a second reader; `A="sh -c"; $A {x}` does not show that there
is one. What the text says about a variable is therefore read along; variables that come from
outside are the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.sweeps.template.interpreters import HOLE, LIVE, WRAPPERS, judge

if TYPE_CHECKING:
    from stoker.sweeps.template.shell_text import Slot, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)((?:\[.*\])?\+?)=", re.DOTALL)
_ASSIGNING = ("export", "readonly", "declare", "typeset", "local")
_READING = ("read", "mapfile", "readarray")
_NOT_KNOWN = "a command that is not known yet"


class Variables:
    """Every variable of one text, with what is known of it."""

    def __init__(self) -> None:
        self._words: list[Word] = []
        self._said: dict[str, list[Word]] = {}  # by what words its value is said
        self._from_anywhere: set[str] = set()
        self._literal: dict[str, list[str]] = {}  # its value, once for each plain assignment
        self._slots: dict[str, list[Slot]] = {}  # placeholders whose values may be in it

    def read(self, words: Sequence[Word], rest: Sequence[Word]) -> None:
        """One command; `rest` is what stands behind its assignments."""
        self._words += words
        for word in words[: len(words) - len(rest)]:
            self._assign(word)
        if not rest:
            return
        head, *others = rest
        if head.literal in _ASSIGNING:
            for word in others:
                self._assign(word)
        elif head.literal in ("for", "select") and others:
            self._note(others[0].literal, others[1:])
        elif head.literal == "set":
            for name in "123456789@*":
                self._note(name, others)
        elif head.literal in _READING:
            for word in others:
                self._note(word.literal, None)

    def _assign(self, word: Word) -> None:
        found = _ASSIGNMENT.match(word.literal)
        if found is not None and word.is_array:
            self._note(found[1], None)
        elif found is not None:
            self._note(found[1], [word])
            value = word.literal[found.end() :]
            is_plain = not found[2] and HOLE not in value and LIVE not in value
            self._literal.setdefault(found[1], []).append(value if is_plain else LIVE)

    def _note(self, name: str, words: Sequence[Word] | None) -> None:
        """`None`: its value may come from anywhere in the text."""
        self._said.setdefault(name, []).extend(words or ())
        if words is None:
            self._from_anywhere.add(name)
            self._literal.setdefault(name, []).append(LIVE)

    def spread(self) -> None:
        """Find out which variables hold values; one may have its value from another."""
        before = -1
        while before != sum(map(len, self._slots.values())):
            before = sum(map(len, self._slots.values()))
            for name, said in self._said.items():
                words = self._words if name in self._from_anywhere else said
                found = [slot for word in words for slot in (*word.slots, *self.values_in(word))]
                self._slots[name] = list(dict.fromkeys(found))

    def values_in(self, word: Word) -> list[Slot]:
        """Placeholders whose values a word may get through its variables."""
        return [slot for name in sorted(word.variables) for slot in self._slots.get(name, ())]

    def judge(self, words: Sequence[Word]) -> list[str]:
        """The verdict of interpreters.judge on each word, with variables in mind."""
        literals: list[str] = []
        places = []
        for word in words:
            places.append(len(literals))
            known = self._known(word)
            if known is not None:
                literals += known
            else:
                holds = bool(self.values_in(word))
                literals.append(word.literal.replace(LIVE, HOLE) if holds else word.literal)
        verdicts = [*judge(literals), "ok"]
        made = [verdicts[place] for place in places]
        program = self._hidden(words)
        if program is not None:
            made[program:] = [_NOT_KNOWN] * (len(made) - program)
        return made

    def _known(self, word: Word) -> list[str] | None:
        """The words that a variable stands for, where the text says it once and plainly."""
        if len(word.variables) != 1 or word.slots:
            return None
        (name,) = word.variables
        if word.literal not in (LIVE, LIVE + name):
            return None
        said = self._literal.get(name, [])
        return said[0].split() if len(said) == 1 and said[0] != LIVE else None

    def _hidden(self, words: Sequence[Word]) -> int | None:
        """The place of the program, if it is a variable of this text that could be anything."""
        for place, word in enumerate(words):
            is_ours = any(name in self._said for name in word.variables)
            hides = is_ours and self._known(word) is None
            literal = word.literal
            if hides and literal[:1] == LIVE:
                return place
            name = literal.rpartition("/")[2]
            if name not in WRAPPERS and literal[:1] != "-" and "=" not in literal:
                return None
        return None
