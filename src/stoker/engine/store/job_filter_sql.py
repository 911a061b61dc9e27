"""Translate a filter into SQL over the columns of jobs (job_columns.py).

The meaning is that of `Expression.matches`: comparisons with missing values are false, except `==`
and `!=`, which compare missing values too. Types are known before any row is read, so a comparison
that makes no sense is an error at its place in the text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from stoker.engine.store.job_columns import (
    ANY,
    BYTES,
    COMMAND,
    NUMBER,
    NUMBERS,
    SECONDS,
    TAGS,
    TEXT,
    TIME,
    WORD,
    Condition,
    column,
    find_column,
)
from stoker.errors import UsageError
from stoker.record import Record
from stoker.text.byte_text import to_bytes
from stoker.text.durations import parse_duration
from stoker.text.filters.expressions import InvalidExpression
from stoker.text.filters.filter_text import FilterText
from stoker.text.sizes import parse_size

_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_FLIPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_TEXTS = (WORD, TEXT, COMMAND, TAGS)
_KIND_WORDS = {
    NUMBER: "a number",
    SECONDS: "a duration",
    BYTES: "a size",
    TIME: "a time",
    WORD: "text",
    TEXT: "text",
    COMMAND: "text",
    TAGS: "text",
    ANY: "a value",
}
_MAX_INT = 2**63 - 1
_LARGEST = 10**300  # a float can have it


class _Operand(Record):
    """A part of the expression: a column or a calculation (`sql`), or a constant."""

    node: ast.AST
    kind: str | None  # None: a constant
    sql: str = ""
    value: object = None
    argv: bool = False


def compile_filter(
    typed: FilterText, parse_time: Callable[[str], float], prefix: str = "f"
) -> Condition:
    """Return the condition of a filter. Raises InvalidExpression with its place in the text.

    `parse_time`: seconds since the epoch of a text; raises UsageError.
    """
    return _Compiler(typed, parse_time, prefix).condition()


class _Compiler:
    def __init__(self, typed: FilterText, parse_time: Callable[[str], float], prefix: str) -> None:
        self._typed = typed
        self._parse_time = parse_time
        self._prefix = prefix
        self._columns = typed.find_columns(find_column)
        self._values: dict[str, object] = {}
        self._joins: set[str] = set()

    def condition(self) -> Condition:
        sql = self._truth(self._typed.expression.tree)
        return Condition(sql, self._values, "".join(sorted(self._joins)))

    def _error(self, node: ast.AST, message: str, hint: str | None = None) -> InvalidExpression:
        return InvalidExpression(message, hint, self._typed.place(node))

    def _bind(self, value: object) -> str:
        name = f"{self._prefix}{len(self._values)}"
        if isinstance(value, int) and abs(value) > _MAX_INT:
            value = float(max(-_LARGEST, min(value, _LARGEST)))
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        self._values[name] = value
        return f":{name}"

    # -- conditions ----------------------------------------------------------------------------

    def _truth(self, node: ast.AST) -> str:
        """SQL that is 0 or 1, never NULL."""
        if isinstance(node, ast.BoolOp):
            word = " AND " if isinstance(node.op, ast.And) else " OR "
            return f"({word.join(self._truth(part) for part in node.values)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(NOT {self._truth(node.operand)})"
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            pairs = [
                self._compare(left, op, right)
                for left, op, right in zip(parts, node.ops, parts[1:], strict=False)
            ]
            return f"({' AND '.join(pairs)})"
        one = self._operand(node)
        if one.kind is None:
            return "1" if one.value else "0"
        if one.kind == TAGS:
            return _tagged("1")
        if one.kind in NUMBERS:
            return f"(coalesce({one.sql}, 0) != 0)"
        return f"(coalesce({one.sql}, '') NOT IN ('', x'', 0))"

    def _compare(self, left: ast.AST, op: ast.cmpop, right: ast.AST) -> str:
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._contained(left, right)
            return f"(NOT {found})" if isinstance(op, ast.NotIn) else found
        return self._pair(self._operand(left), type(op), self._operand(right))

    def _contained(self, left: ast.AST, right: ast.AST) -> str:
        if isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            one = self._operand(left)
            found = [self._pair(one, ast.Eq, self._operand(part)) for part in right.elts]
            return f"({' OR '.join(found)})" if found else "0"
        part, whole = self._operand(left), self._operand(right)
        if whole.kind is None:
            return self._constant(ast.In, part, whole)
        if whole.kind in NUMBERS:
            raise self._error(
                right,
                f"`{self._text(right)}` is {_KIND_WORDS[whole.kind]}, so nothing is `in` it",
                "for example: 'train' in name, or state in ('failed', 'lost')",
            )
        if part.kind is not None or not isinstance(part.value, str):
            raise self._error(left, "only a text can be `in` a column", "for example: 'a' in name")
        if whole.kind == TAGS:
            return _tagged(f"tag = {self._bind(to_bytes(part.value))}")
        if whole.kind == COMMAND:
            return self._in_command(part.value)
        wanted = to_bytes(part.value) if whole.kind == TEXT else part.value
        return f"(coalesce(instr({whole.sql}, {self._bind(wanted)}), 0) > 0)"

    def _in_command(self, text: str) -> str:
        """Words of commands are stored with NUL between them, except for shell commands."""
        words = text.replace(" ", "\0")
        plain, packed = self._bind(to_bytes(text)), self._bind(to_bytes(words))
        return f"(instr(j.argv, CASE WHEN j.shell THEN {plain} ELSE {packed} END) > 0)"

    def _pair(self, left: _Operand, op: type[ast.cmpop], right: _Operand) -> str:
        if left.kind is None and right.kind is None:
            return self._constant(op, left, right)
        if left.kind is None:
            left, right, op = right, left, _FLIPPED.get(op, op)
        if right.kind is None and right.value is None:
            if op in _SIGNS:
                return "0"
            is_missing = _tagged("1") if left.kind == TAGS else f"({left.sql} IS NOT NULL)"
            return is_missing if op in (ast.NotEq, ast.IsNot) else f"(NOT {is_missing})"
        self._check_kinds(left, right)
        if TAGS in (left.kind, right.kind):
            return self._tag_pair(left, op, right)
        one, other = self._sides(left, right)
        if op in _SIGNS:
            guard = self._same_types(left, right)
            return f"coalesce({guard}{one} {_SIGNS[op]} {other}, 0)"
        return f"({one} {'IS' if op in (ast.Eq, ast.Is) else 'IS NOT'} {other})"

    def _sides(self, left: _Operand, right: _Operand) -> tuple[str, str]:
        if right.kind is None:
            return left.sql, self._bind(self._converted(left, right))
        if left.kind in _TEXTS and right.kind in _TEXTS and left.kind != right.kind:
            return f"CAST({left.sql} AS BLOB)", f"CAST({right.sql} AS BLOB)"
        if ANY in (left.kind, right.kind):  # values of JSON are TEXT, never BLOB
            one, other = (
                f"CAST({part.sql} AS TEXT)" if part.kind == TEXT else part.sql
                for part in (left, right)
            )
            return one, other
        return left.sql, right.sql

    def _converted(self, left: _Operand, right: _Operand) -> object:
        """A constant in the form in which the column is stored."""
        value = right.value
        if not isinstance(value, str):
            return value
        if left.kind == TEXT:
            return to_bytes(value)
        parsers: dict[str | None, Callable[[str], float]] = {
            SECONDS: lambda text: parse_duration(text, "s"),
            BYTES: parse_size,
            TIME: self._parse_time,
        }
        if left.kind not in parsers:
            return value
        try:
            return parsers[left.kind](value)
        except UsageError as error:
            raise self._error(right.node, error.message, error.hint) from None

    def _same_types(self, left: _Operand, right: _Operand) -> str:
        """A guard for values whose type is known only for each job: SQL orders all types."""
        if ANY not in (left.kind, right.kind):
            return ""
        numbers = [
            f"(typeof({one.sql}) IN ('integer', 'real'))"
            if one.kind == ANY
            else str(int(_is_number(one)))
            for one in (left, right)
        ]
        return f"{numbers[0]} = {numbers[1]} AND "

    def _tag_pair(self, left: _Operand, op: type[ast.cmpop], right: _Operand) -> str:
        if right.kind is not None or not isinstance(right.value, str):
            raise self._error(right.node, "`tag` can be compared only with a text", "tag == 'a'")
        value = self._bind(to_bytes(right.value))
        if op in (ast.NotEq, ast.IsNot):
            return f"(NOT {_tagged(f'tag = {value}')})"
        return _tagged(f"tag {_SIGNS.get(op, '=')} {value}")

    def _check_kinds(self, left: _Operand, right: _Operand) -> None:
        if ANY in (left.kind, right.kind):
            return
        if right.kind is not None:
            if (left.kind in NUMBERS) != (right.kind in NUMBERS):
                raise self._error(right.node, self._mismatch(left, right), None)
            return
        is_text = isinstance(right.value, str)
        if isinstance(right.value, list):
            raise self._error(right.node, "a list can only be used after `in`", "x in (1, 2)")
        has_units = is_text and left.kind in (SECONDS, BYTES, TIME)
        if is_text != (left.kind in _TEXTS) and not has_units:
            hint = f"put it in quotes: '{right.value}'" if left.kind in _TEXTS else None
            raise self._error(right.node, self._mismatch(left, right), hint)

    def _mismatch(self, left: _Operand, right: _Operand) -> str:
        kinds = [
            ("text" if isinstance(one.value, str) else "a number")
            if one.kind is None
            else _KIND_WORDS[one.kind]
            for one in (left, right)
        ]
        return (
            f"`{self._text(left.node)}` is {kinds[0]}, but `{self._text(right.node)}` is {kinds[1]}"
        )

    def _text(self, node: ast.AST) -> str:
        place = self._typed.place(node)
        return self._typed.text[place[0] : place[1]] if place else self._typed.text

    def _constant(self, op: type[ast.cmpop], left: _Operand, right: _Operand) -> str:
        node = ast.Expression(
            ast.Compare(ast.Constant(left.value), [op()], [ast.Constant(right.value)])  # type: ignore[arg-type]
        ).body
        return "1" if self._typed.expression.constant(node) else "0"

    # -- values --------------------------------------------------------------------------------

    def _operand(self, node: ast.AST) -> _Operand:
        if isinstance(node, ast.Constant):
            return _Operand(node, None, value=node.value)
        if isinstance(node, ast.Name):
            found = column(self._columns[node.id])
            self._joins.update(found.joins)
            return _Operand(node, found.kind, found.sql)
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return self._signed(node)
        if isinstance(node, ast.BinOp):
            return self._calculated(node)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            parts = [self._operand(part) for part in node.elts]
            return _Operand(node, None, value=[one.value for one in parts])
        raise self._error(
            node,
            f"`{self._text(node)}` is a condition, not a value",
            "use `and` between conditions",
        )

    def _signed(self, node: ast.UnaryOp) -> _Operand:
        one = self._number(node.operand)
        sign = "-" if isinstance(node.op, ast.USub) else ""
        if one.kind is None:
            assert isinstance(one.value, (int, float))
            return _Operand(node, None, value=-one.value if sign else one.value)
        return _Operand(node, NUMBER, f"({sign} {one.sql})")

    def _calculated(self, node: ast.BinOp) -> _Operand:
        left, right = self._number(node.left), self._number(node.right)
        kind = left.kind if left.kind in NUMBERS and left.kind == right.kind else NUMBER
        if left.kind is None and right.kind is None:
            value = self._typed.expression.constant(
                ast.BinOp(ast.Constant(left.value), node.op, ast.Constant(right.value))  # type: ignore[arg-type]
            )
            return _Operand(node, None, value=value)
        one, other = (
            self._bind(part.value) if part.kind is None else part.sql for part in (left, right)
        )
        sign = _ARITHMETIC.get(type(node.op))
        if sign is not None:
            return _Operand(node, kind, f"({one} {sign} {other})")
        if isinstance(node.op, ast.Div):
            return _Operand(node, NUMBER, f"(CAST({one} AS REAL) / {other})")
        name = "stoker_floor" if isinstance(node.op, ast.FloorDiv) else "stoker_rest"
        return _Operand(node, NUMBER, f"{name}({one}, {other})")

    def _number(self, node: ast.AST) -> _Operand:
        one = self._operand(node)
        if one.kind == ANY:
            is_number = f"typeof({one.sql}) IN ('integer', 'real')"
            return one._replace(kind=NUMBER, sql=f"(CASE WHEN {is_number} THEN {one.sql} END)")
        if not _is_number(one):
            raise self._error(node, f"`{self._text(node)}` is not a number", None)
        return one


def _is_number(one: _Operand) -> bool:
    if one.kind is None:
        return isinstance(one.value, (int, float))
    return one.kind in NUMBERS


def _tagged(condition: str) -> str:
    return f"EXISTS (SELECT 1 FROM tags WHERE tags.job = j.id AND {condition})"
