"""Task classes defined in the main script, which the process of an instance executes again.

As in multiprocessing, the script does not run as `__main__`, so that code behind the usual guard is
skipped. Values that only the guarded code defines and the class uses are passed by value. A script
without a guard is executed up to the `start` of a scheduler.
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
_replaced: list[ModuleType] = []  # earlier main modules, kept alive


class _Reached(BaseException):
    """The script has defined the wanted class and reached the start of a scheduler."""


class _Reading(Record):
    module: ModuleType
    wanted: str


_reading: _Reading | None = None


def is_being_read() -> bool:
    return _reading is not None


def is_only_read() -> bool:
    """Whether `start` must not run anything, because the script is executed for its classes.

    Ends the execution of the script if the wanted class is already defined.
    """
    if _reading is None:
        return False
    if hasattr(_reading.module, _reading.wanted):
        raise _Reached
    return True  # continue: the class is defined later


def read(path: str, wanted: str, package: str | None, values: dict[str, bytes]) -> None:
    """Execute the script as the new `__main__` module and add the passed values to it."""
    global _reading
    module = ModuleType(_NAME)
    module.__file__ = path
    module.__package__ = package
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    _replaced.append(sys.modules["__main__"])
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
    """The names that a process finds in the main script when it executes it again."""
    import ast

    try:
        with io.open_code(path) as file:
            return _defined(ast.parse(file.read()))
    except (OSError, SyntaxError, ValueError, RecursionError):  # deeply nested code can be valid
        return set(sys.modules["__main__"].__dict__)


def values_for_main_only(known: Set[str]) -> dict[str, bytes]:
    """Pickled values that the script's classes and functions use but only the guard defines."""
    names = sys.modules["__main__"].__dict__
    values = {}
    for name in sorted(_used(names) & names.keys() - known):
        try:
            values[name] = by_value(names[name], known)
        except Exception:
            continue  # fails in the task only if it is really used
    return values


def by_value(value: object, known: Set[str]) -> bytes:
    """Pickle by value with cloudpickle, except names that the script defines.

    A copied class would differ from the original class for `isinstance`.
    """
    import cloudpickle  # type: ignore[import-untyped]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: object) -> Any:
            if isinstance(obj, (type, FunctionType)) and _is_found(obj, known):
                return NotImplemented  # by reference
            return super().reducer_override(obj)

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def _is_found(obj: type | FunctionType, known: Set[str]) -> bool:
    first, *others = obj.__qualname__.split(".")
    if obj.__module__ != "__main__" or first not in known:
        return False
    found = sys.modules["__main__"].__dict__.get(first)
    for name in others:
        found = getattr(found, name, None)
    return found is obj


def _used(names: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    values = [value for value in names.values() if getattr(value, "__module__", "") == "__main__"]
    while values:
        value = values.pop()
        if isinstance(value, type):
            values += [member for member in vars(value).values() if not isinstance(member, type)]
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
    """The names that the script defines outside of its `__main__` guard."""
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
