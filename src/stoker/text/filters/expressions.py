"""Small expressions over named values: `when = "opt == 'adam'"`, `--where 'lr < 0.01'`.

A subset of Python's grammar: values, names, comparisons, arithmetic and `and`/`or`/`not`. There are
no calls, attributes or indexing, so an expression from an untrusted file is harmless.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stoker.errors import UsageError
from stoker.text.suggestions import nearest

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
# No powers and no shifts: `9**9**9` would exhaust memory.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MAX_LENGTH = 2000
_MAX_DEPTH = 100  # nesting levels; each needs a few frames of Python's stack
HINT = "for example: lr < 0.01 and opt == 'adam'"
# For what other languages write.
_HINTS = {
    "=": "compare with ==",
    "&&": "write `and`",
    "&": "write `and`",
    "||": "write `or`",
    "|": "write `or`",
    "!": "write `not`, or != to compare",
    "<>": "write !=",
    "AND": "write `and` in lower case",
    "OR": "write `or` in lower case",
    "NOT": "write `not` in lower case",
    "IN": "write `in` in lower case",
    "LIKE": "write 'text' in name",
}
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class InvalidExpression(UsageError):
    """`at`: the place in the text that the error is about, as (start, end) in characters."""

    def __init__(
        self, message: str, hint: str | None = None, at: tuple[int, int] | None = None
    ) -> None:
        super().__init__(message, hint)
        self.at = at

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.hint, self.at), {"field": self.field}


class Expression:
    """A parsed expression. The constructor raises InvalidExpression if the text is not allowed."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_LENGTH:
            raise UsageError(
                f"an expression of {len(text)} characters is too long",
                f"write at most {_MAX_LENGTH} characters",
            )
        self._shift = len(text) - len(text.lstrip())
        try:
            self.tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise self._syntax_error(error) from None
        except ValueError:
            raise InvalidExpression(f"`{text}` is not an expression", HINT) from None
        except (RecursionError, MemoryError):
            raise _too_deep(text) from None
        if _is_deep(self.tree):
            raise _too_deep(text)
        self.names = frozenset(self._check(self.tree))

    def place(self, node: ast.AST) -> tuple[int, int] | None:
        """Where a part of the tree is in the text, as (start, end) in characters; None if unknown.

        The text must be one line.
        """
        if getattr(node, "lineno", 0) != 1:
            return None
        line = self.text.strip().encode()  # ast counts bytes
        start, end = (
            len(line[: getattr(node, name)].decode("utf-8", "replace"))
            for name in ("col_offset", "end_col_offset")
        )
        return start + self._shift, end + self._shift

    def _syntax_error(self, error: SyntaxError) -> InvalidExpression:
        text = self.text
        end = len(text.rstrip())
        if error.lineno != 1 or not error.offset:
            return InvalidExpression(f"`{text}` is not an expression", HINT, (end, end))
        at = min(error.offset - 1 + self._shift, end)
        if "never closed" in error.msg or "unterminated" in error.msg:
            problem = f"`{text[at : at + 1]}` at character {at + 1} is not closed"
            return InvalidExpression(
                f"`{text}` is not an expression: {problem}", HINT, (at, at + 1)
            )
        if at >= end:
            return InvalidExpression(
                f"`{text}` is not an expression: it ends too early", HINT, (end, end)
            )
        word = _word_at(text, at)
        hint = _HINTS.get(word.upper(), HINT)
        problem = f"unexpected `{word}` at character {at + 1}"
        return InvalidExpression(
            f"`{text}` is not an expression: {problem}", hint, (at, at + len(word))
        )

    def check_names(self, known: Iterable[str]) -> None:
        """Raise UsageError for an unknown name and suggest the most similar known one."""
        known = list(known)
        for name in sorted(self.names.difference(known)):
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"unknown name `{name}` in `{self.text}`", hint)

    def evaluate(self, values: Mapping[str, object]) -> object:
        """Return the value of the expression; missing names are None.

        Raises UsageError if it cannot be evaluated, for example because None is ordered.
        """
        try:
            return self._value(self.tree, values)
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError) as error:
            raise UsageError(f"`{self.text}` cannot be evaluated: {error}", HINT) from None

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether the expression is true; false if it cannot be evaluated."""
        try:
            return bool(self._value(self.tree, values))
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError):
            return False

    def matches(self, values: Mapping[str, object]) -> bool:
        """Like `holds`, but a comparison with a missing value is false, and decides alone.

        So `lr < 1 or state == "failed"` is true for failed rows without `lr`.
        """
        try:
            return bool(self._value(self.tree, values, is_lenient=True))
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError):
            return False

    def constant(self, node: ast.AST) -> object:
        """The value of a part of the tree without names; None if it cannot be evaluated."""
        try:
            return self._value(node, {}, is_lenient=True)
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError):
            return None

    def type_error(self, values: Mapping[str, object]) -> str | None:
        """Why the expression does not fit the types of these values.

        None if it does, or if one of its names has no value.
        """
        try:
            self._value(self.tree, values)
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
        raise InvalidExpression(
            f"`{self.text}` uses more than names, values, arithmetic and comparisons",
            HINT,
            self.place(node),
        )

    def _check_all(self, nodes: Iterable[ast.AST]) -> set[str]:
        found: set[str] = set()
        for node in nodes:
            found |= self._check(node)
        return found

    def _value(
        self, node: ast.AST, values: Mapping[str, object], is_lenient: bool = False
    ) -> object:
        def of(part: ast.AST) -> object:
            return self._value(part, values, is_lenient)

        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return values.get(node.id)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return [of(part) for part in node.elts]
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            result: object = None
            for part in node.values:
                result = of(part)
                if bool(result) is wanted:
                    break
            return result
        if isinstance(node, ast.UnaryOp):
            value = of(node.operand)
            if isinstance(node.op, ast.Not):
                return not value
            if value is None and is_lenient:
                return None
            return -value if isinstance(node.op, ast.USub) else +value  # type: ignore[operator]
        if isinstance(node, ast.BinOp):
            left, right = of(node.left), of(node.right)
            if is_lenient and (left is None or right is None):
                return None
            if isinstance(node.op, (ast.Mult, ast.Mod)) and not _are_numbers(left, right):
                raise TypeError("only numbers can be multiplied")  # 'a' * 10**12 is 1 TB
            try:
                return _ARITHMETIC[type(node.op)](left, right)
            except ZeroDivisionError:
                if is_lenient:
                    return None
                raise
        assert isinstance(node, ast.Compare)
        left = of(node.left)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = of(part)
            if is_lenient and _is_unknown(op, left, right):
                if isinstance(op, ast.NotIn):  # no text is in a missing value
                    left = right
                    continue
                return False
            try:
                is_true = _COMPARE[type(op)](left, right)
            except TypeError:
                raise TypeError(f"{_kind(left)} cannot be compared with {_kind(right)}") from None
            if not is_true:
                return False
            left = right
        return True


def _is_unknown(op: ast.cmpop, left: object, right: object) -> bool:
    """Whether a comparison has no answer because a value is missing."""
    if isinstance(op, _ORDERS):
        return left is None or right is None
    return isinstance(op, (ast.In, ast.NotIn)) and right is None


def _word_at(text: str, at: int) -> str:
    """The word or the operator that begins at a place."""
    end = at + 1
    if text[at].isalnum() or text[at] == "_":
        while end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
    elif text[at : at + 2] in ("&&", "||", "<>"):
        end += 1
    return text[at:end]


def _is_deep(node: ast.AST) -> bool:
    """Whether the tree has more than _MAX_DEPTH levels; does not recurse."""
    level: list[ast.AST] = [node]
    for _ in range(_MAX_DEPTH):
        level = [child for parent in level for child in ast.iter_child_nodes(parent)]
        if not level:
            return False
    return True


def _too_deep(text: str) -> UsageError:
    return UsageError(
        f"`{text[:40]}...` is nested too deeply",
        f"use at most {_MAX_DEPTH} levels of operators and parentheses",
    )


def _kind(value: object) -> str:
    if value is None:
        return "a missing value"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return "a string" if isinstance(value, str) else "a list"


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, (int, float)) for value in values)
