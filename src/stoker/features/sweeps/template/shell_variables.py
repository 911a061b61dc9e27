"""Track shell variables that a command sets: they can carry values or contain a program.

`A={x}; sh -c "$A"` passes a value to a second shell, and `A="sh -c"; $A {x}` hides that there is
one. Assignments in the text are therefore tracked; variables from the environment are trusted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.features.sweeps.template.interpreters import (
    HOLE,
    LIVE,
    UNKNOWN_COMMAND,
    WRAPPERS,
    judge,
)

if TYPE_CHECKING:
    from stoker.features.sweeps.template.shell_text import Slot, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)((?:\[.*\])?\+?)=", re.DOTALL)
_ASSIGNING = ("export", "readonly", "declare", "typeset", "local")
_READING = ("read", "mapfile", "readarray")


class Variables:
    """The variables that one shell text assigns."""

    def __init__(self) -> None:
        self._words: list[Word] = []
        self._assigned: dict[str, list[Word]] = {}  # name -> words that determine its value
        self._from_anywhere: set[str] = set()
        self._literal: dict[str, list[str]] = {}  # name -> the value of each plain assignment
        self._slots: dict[str, list[Slot]] = {}  # name -> placeholders whose values it may hold

    def read(self, words: Sequence[Word], rest: Sequence[Word]) -> None:
        """Record the assignments of one command; `rest` is the command after its prefix."""
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
            self._record(others[0].literal, others[1:])
        elif head.literal == "set":
            for name in "123456789@*":
                self._record(name, others)
        elif head.literal in _READING:
            for word in others:
                self._record(word.literal, None)

    def _assign(self, word: Word) -> None:
        found = _ASSIGNMENT.match(word.literal)
        if found is not None and word.is_array:
            self._record(found[1], None)
        elif found is not None:
            self._record(found[1], [word])
            value = word.literal[found.end() :]
            is_plain = not found[2] and HOLE not in value and LIVE not in value
            self._literal.setdefault(found[1], []).append(value if is_plain else LIVE)

    def _record(self, name: str, words: Sequence[Word] | None) -> None:
        """Record an assignment; `words` is None if the value may come from anywhere in the text."""
        self._assigned.setdefault(name, []).extend(words or ())
        if words is None:
            self._from_anywhere.add(name)
            self._literal.setdefault(name, []).append(LIVE)

    def propagate(self) -> None:
        """Find the variables that hold values, also by way of other variables (a fixed point)."""
        before = -1
        while before != sum(map(len, self._slots.values())):
            before = sum(map(len, self._slots.values()))
            for name, assigned in self._assigned.items():
                words = self._words if name in self._from_anywhere else assigned
                found = [slot for word in words for slot in (*word.slots, *self.values_in(word))]
                self._slots[name] = list(dict.fromkeys(found))

    def values_in(self, word: Word) -> list[Slot]:
        """Placeholders whose values the variables of a word may hold."""
        return [slot for name in sorted(word.variables) for slot in self._slots.get(name, ())]

    def judge(self, words: Sequence[Word]) -> list[str]:
        """Like interpreters.judge, but with known variables expanded."""
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
            made[program:] = [UNKNOWN_COMMAND] * (len(made) - program)
        return made

    def _known(self, word: Word) -> list[str] | None:
        """The words of a variable that has exactly one plain assignment; else None."""
        if len(word.variables) != 1 or word.slots:
            return None
        (name,) = word.variables
        if word.literal not in (LIVE, LIVE + name):
            return None
        values = self._literal.get(name, [])
        return values[0].split() if len(values) == 1 and values[0] != LIVE else None

    def _hidden(self, words: Sequence[Word]) -> int | None:
        """The index of the program name if it is a variable of this text with unknown value."""
        for place, word in enumerate(words):
            is_assigned = any(name in self._assigned for name in word.variables)
            hides = is_assigned and self._known(word) is None
            literal = word.literal
            if hides and literal[:1] == LIVE:
                return place
            name = literal.rpartition("/")[2]
            if name not in WRAPPERS and literal[:1] != "-" and "=" not in literal:
                return None
        return None
