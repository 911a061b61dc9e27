"""Task classes of the main script, which a process of an instance has to read once more.

It is read as multiprocessing reads it: not as `__main__`, so that what is for the main program only
is left out. What such a part defines and the class uses goes along by value. Where nothing is left
out, the reading ends at the `start` of a scheduler.
"""

from __future__ import annotations

import io
import sys
from _pickle import loads
from types import CodeType, FunctionType, ModuleType

from stoker.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Set
    from typing import Any

_NAME = "__mp_main__"
_others: list[ModuleType] = []  # main modules of before, which must not be taken apart


class _Reached(BaseException):
    """The script has come to the start of a scheduler, and has defined what is wanted."""


class _Reading(Record):
    module: ModuleType
    wanted: str


_reading: _Reading | None = None


def is_being_read() -> bool:
    return _reading is not None


def is_only_read() -> bool:
    """Asked by `start`: whether the script is read for its classes, and nothing is to be run."""
    if _reading is None:
        return False
    if hasattr(_reading.module, _reading.wanted):
        raise _Reached
    return True  # it goes on: the class comes later


def read(path: str, wanted: str, package: str | None, values: dict[str, bytes]) -> None:
    """Make the script's names those of `__main__`."""
    global _reading
    module = ModuleType(_NAME)
    module.__file__ = path
    module.__package__ = package
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    _others.append(sys.modules["__main__"])
    sys.modules["__main__"] = sys.modules[_NAME] = module
    _reading = _Reading(module, wanted.partition(".")[0])
    try:
        exec(code, module.__dict__)
    except _Reached:
        pass
    finally:
        _reading = None
    for name, value in values.items():
        if not hasattr(module, name):
            setattr(module, name, loads(value))


def names_of(path: str) -> set[str]:
    """What a process that reads this main script finds there."""
    import ast

    try:
        with io.open_code(path) as file:
            return _defined(ast.parse(file.read()))
    except (OSError, SyntaxError, ValueError, RecursionError):  # a long sum is deep, and is Python
        return set(sys.modules["__main__"].__dict__)


def values_for_main_only(known: Set[str]) -> dict[str, bytes]:
    """What classes and functions of this main script use, and only the main program defines."""
    names = sys.modules["__main__"].__dict__
    values = {}
    for name in sorted(_used(names) & names.keys() - known):
        try:
            values[name] = by_value(names[name], known)
        except Exception:
            continue  # it is missed only if it is really used
    return values


def by_value(value: object, known: Set[str]) -> bytes:
    """A pickle for what plain pickle refuses; but what the script defines stays what it is there.

    A copy of a class beside the class itself would be another class to `isinstance`.
    """
    import cloudpickle  # type: ignore[import-untyped]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, one: object) -> Any:
            if isinstance(one, (type, FunctionType)) and _is_found(one, known):
                return NotImplemented  # by its name
            return super().reducer_override(one)

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def _is_found(one: type | FunctionType, known: Set[str]) -> bool:
    first, *others = one.__qualname__.split(".")
    if one.__module__ != "__main__" or first not in known:
        return False
    found = sys.modules["__main__"].__dict__.get(first)
    for name in others:
        found = getattr(found, name, None)
    return found is one


def _used(names: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    values = [value for value in names.values() if getattr(value, "__module__", "") == "__main__"]
    while values:
        value = values.pop()
        if isinstance(value, type):
            values += [one for one in vars(value).values() if not isinstance(one, type)]
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, FunctionType):
            found.update(*(code.co_names for code in _codes(function.__code__)))
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _defined(script: ast.Module) -> set[str]:
    """Names that the script gives a meaning outside of what is for the main program."""
    import ast

    found: set[str] = set()
    for statement in script.body:
        if isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name.partition(".")[0])
    return found
