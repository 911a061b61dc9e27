"""Small expressions over named values: `when = "opt == 'adam'"`, `--where 'lr < 0.01'`.

Python's own grammar, cut down to values, names, comparisons, arithmetic and `and`/`or`/`not`. No
calls, no attributes, no indexing, so an expression from somebody else's file can do nothing.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from stoker.errors import UsageError

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
# No powers and no shifts: `9**9**9` would be refused by nothing but the machine's memory.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LONGEST = 2000
_DEEPEST = 100  # levels; each costs a few frames of Python's stack
HINT = "such as: lr < 0.01 and opt == 'adam'"


class Expression:
    """One expression, checked when it is made."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise UsageError(f"an expression of {len(text)} characters is too long",
                             f"at most {_LONGEST} characters")  # fmt: skip
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise UsageError(f"`{text}` is not an expression", HINT) from None
        except (RecursionError, MemoryError):
            raise _too_deep(text) from None
        if _is_deep(self._tree):
            raise _too_deep(text)
        self.names = frozenset(self._check(self._tree))

    def check_names(self, known: Iterable[str]) -> None:
        """Refuse names that are not known, with the nearest that is."""
        known = list(known)
        for name in sorted(self.names.difference(known)):
            near = get_close_matches(name, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"`{self.text}` asks for `{name}`, which there is not", hint)

    def evaluate(self, values: Mapping[str, object]) -> object:
        """Its value; a name that is missing is None, and nothing but `==` fits None."""
        try:
            return self._value(self._tree, values)
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError) as error:
            raise UsageError(f"`{self.text}` cannot be evaluated: {error}", HINT) from None

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether it is true; what cannot be compared (a missing value, say) is not."""
        try:
            return bool(self._value(self._tree, values))
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError):
            return False

    def trouble(self, values: Mapping[str, object]) -> str | None:
        """Why it makes no sense for these values, all of which are there; else None."""
        try:
            self._value(self._tree, values)
        except TypeError as error:
            return None if any(values.get(name) is None for name in self.names) else str(error)
        except (ZeroDivisionError, OverflowError, MemoryError):
            pass
        return None

    def _check(self, node: ast.AST) -> set[str]:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, (str, int, float, bool)) or node.value is None:
                return set()
        elif isinstance(node, ast.Name):
            return {node.id}
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._check_all(node.elts)
        elif isinstance(node, ast.BoolOp):
            return self._check_all(node.values)
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Invert):
            return self._check(node.operand)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return self._check(node.left) | self._check(node.right)
        elif isinstance(node, ast.Compare):
            return self._check_all([node.left, *node.comparators])
        raise UsageError(f"`{self.text}` is more than names, values and comparisons", HINT)

    def _check_all(self, nodes: Iterable[ast.AST]) -> set[str]:
        found: set[str] = set()
        for node in nodes:
            found |= self._check(node)
        return found

    def _value(self, node: ast.AST, values: Mapping[str, object]) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return values.get(node.id)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return [self._value(part, values) for part in node.elts]
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            result: object = None
            for part in node.values:
                result = self._value(part, values)
                if bool(result) is wanted:
                    break
            return result
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, values)
            if isinstance(node.op, ast.Not):
                return not value
            return -value if isinstance(node.op, ast.USub) else +value  # type: ignore[operator]
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, values), self._value(node.right, values)
            if isinstance(node.op, (ast.Mult, ast.Mod)) and not _are_numbers(left, right):
                raise TypeError("only numbers can be multiplied")  # 'a' * 10**12 is a lot of text
            return _ARITHMETIC[type(node.op)](left, right)
        assert isinstance(node, ast.Compare)
        left = self._value(node.left, values)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self._value(part, values)
            try:
                is_so = _COMPARE[type(op)](left, right)
            except TypeError:
                raise TypeError(f"{_kind(left)} cannot be compared with {_kind(right)}") from None
            if not is_so:
                return False
            left = right
        return True


def _is_deep(node: ast.AST) -> bool:
    """Whether it has more than so many levels, found without recursion."""
    level: list[ast.AST] = [node]
    for _ in range(_DEEPEST):
        level = [child for parent in level for child in ast.iter_child_nodes(parent)]
        if not level:
            return False
    return True


def _too_deep(text: str) -> UsageError:
    return UsageError(f"`{text[:40]}...` is nested too deeply",
                      f"at most {_DEEPEST} levels of operators and parentheses")  # fmt: skip


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    return "a text" if isinstance(value, str) else "a list"


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, (int, float)) for value in values)
