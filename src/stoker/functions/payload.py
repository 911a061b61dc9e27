"""What a call is as bytes: three pickles one behind the other.

    header      where the modules are found, and the function's name when that is enough
    function    by value, or None
    arguments   (args, kwargs)

A function goes by module and name where a fresh process can import it, so the job runs the file as
it is then, and nothing of the user's is imported here. What a fresh process cannot import (scripts,
notebooks, lambdas, closures) goes by value with cloudpickle. Calls of one batch share the first two
parts.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType

from stoker.core.fields import from_fields
from stoker.core.record import Record
from stoker.errors import UsageError
from stoker.functions.import_paths import extend_path, own_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any, TypeAlias

    AnyCallable: TypeAlias = Callable[..., Any]

# On a wrapper that is found under the function's name: the function itself.
WRAPPED = "__stoker_function__"
_REASON_CHARS = 200


def unwrapped(function: AnyCallable) -> AnyCallable:
    """The function behind `@stoker.job`."""
    inner: AnyCallable = getattr(function, WRAPPED, function)
    return inner


def label(function: AnyCallable) -> str:
    """What people call it: `train.fit`, or `fit` of a script."""
    function = unwrapped(function)
    while not hasattr(function, "__qualname__") and callable(getattr(function, "func", None)):
        function = function.func  # type: ignore[attr-defined]  # functools.partial
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    return str(name) if module in (None, "__main__", "builtins") else f"{module}.{name}"


# -- packing -----------------------------------------------------------------------------------


def pack(function: AnyCallable, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """One call as bytes; UsageError names what cannot be sent."""
    packer = Packer(function)
    return packer.shared + packer.call(args, kwargs)


class Packer:
    """Packs calls of one function; `shared` is what they have in common."""

    def __init__(self, function: AnyCallable) -> None:
        self._function = unwrapped(function)
        self.label = label(function)
        name = importable_name(self._function)
        # For those who want to know whether it is the same function as before.
        self.identity = (
            self.label if name is not None else f"{self.label}@{_digest(self._function)}"
        )
        header = {"python": sys.version_info[:2], "path": own_path(), "name": name}
        self.shared = pickle.dumps(header) + pickle.dumps(None)
        if name is None:
            self.shared = pickle.dumps(header) + self._by_value()

    def _by_value(self) -> bytes:
        module = sys.modules.get(getattr(self._function, "__module__", None) or "")
        must_register = module is not None and not _is_findable(module.__name__)
        try:
            if not must_register or module is None or module.__name__ == "__main__":
                return dumps(self._function)
            import cloudpickle  # type: ignore[import-untyped]

            cloudpickle.register_pickle_by_value(module)
            try:
                return bytes(cloudpickle.dumps(self._function, pickle.HIGHEST_PROTOCOL))
            finally:
                cloudpickle.unregister_pickle_by_value(module)
        except Exception as error:
            raise UsageError(
                f"the function `{self.label}` cannot be sent to a job: {_reason(error)}",
                "it takes along what it uses from around it; pass that as arguments, or make it "
                "inside the function",
            ) from error

    def call(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        try:
            return dumps((tuple(args), dict(kwargs)))
        except Exception as error:
            raise self._culprit(args, kwargs, error) from error

    def _culprit(
        self, args: Sequence[object], kwargs: Mapping[str, object], error: Exception
    ) -> UsageError:
        names = _positional_names(self._function)
        named = [
            (f"`{names[i]}`" if i < len(names) else f"number {i + 1}", value)
            for i, value in enumerate(args)
        ]
        named += [(f"`{name}`", value) for name, value in kwargs.items()]
        which, kind = "", ""
        for name, value in named:
            try:
                dumps(value)
            except Exception as own:
                which, kind, error = f" {name}", f" (a {type(value).__name__})", own
                break
        return UsageError(
            f"the argument{which}{kind} of `{self.label}` cannot be sent to a job: "
            f"{_reason(error)}",
            "pass what can be pickled (numbers, text, arrays, paths) and make the rest inside "
            "the function",
        )


def dumps(value: object) -> bytes:
    """Plain pickle where a fresh process can read it back, else cloudpickle."""
    buffer = io.BytesIO()
    try:
        _PlainPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
        return buffer.getvalue()
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        # By name, as plain pickle would; it does not care whether another process has that name.
        if isinstance(value, (type, FunctionType)) and importable_name(value) is None:
            raise pickle.PicklingError(f"{value!r} cannot be imported elsewhere")
        return NotImplemented


def importable_name(value: object) -> tuple[str, str] | None:
    """(module, qualified name) when a fresh process finds the same object there."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value and getattr(found, WRAPPED, None) is not value:
        return None
    return (module, name) if _is_findable(module) else None


_findable: dict[str, bool] = {}
_findable_on: list[str] = []


def _is_findable(name: str) -> bool:
    """Whether a fresh process with our sys.path would import this very module."""
    if _findable_on != sys.path:
        _findable.clear()
        _findable_on[:] = sys.path
    known = _findable.get(name)
    if known is None:
        known = _findable[name] = name != "__main__" and _search(name)
    return known


def _digest(function: AnyCallable) -> str:
    """What a function does that has no module to go by: its code, and the values it closes over."""
    import hashlib

    seen = hashlib.sha256()

    def take(value: object, depth: int = 0) -> None:
        if isinstance(value, CodeType):
            seen.update(value.co_code + repr(value.co_names).encode())
            for constant in value.co_consts:
                take(constant, depth + 1)
        elif isinstance(value, FunctionType) and depth < 5:
            take(value.__code__, depth + 1)
            take(value.__defaults__, depth + 1)
            for cell in value.__closure__ or ():
                try:
                    take(cell.cell_contents, depth + 1)
                except ValueError:
                    pass  # not filled yet
        elif isinstance(value, (tuple, list)) and depth < 5:
            for part in value:
                take(part, depth + 1)
        elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            seen.update(repr(value).encode() + b";")
        else:
            seen.update(type(value).__qualname__.encode())

    inner = unwrapped(function)
    while not isinstance(inner, FunctionType) and callable(getattr(inner, "func", None)):
        take(getattr(inner, "args", ()))  # functools.partial
        inner = inner.func  # type: ignore[attr-defined]
    take(inner)
    return seen.hexdigest()[:8]


def _search(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None:
        return False
    parent = name.rpartition(".")[0]
    path = None
    if parent:
        if not _is_findable(parent):
            return False
        path = getattr(sys.modules[parent], "__path__", None)
    found: ModuleSpec | None = None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            found = find(name, path, None) if find is not None else None
        except Exception:
            continue
        if found is not None:
            break
    return found is not None and found.origin == spec.origin


def _positional_names(function: AnyCallable) -> list[str]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in positional]


def _reason(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _REASON_CHARS else f"{text[:_REASON_CHARS]}..."


# -- unpacking, in the job ---------------------------------------------------------------------


def unpack(data: bytes) -> tuple[AnyCallable, tuple[Any, ...], dict[str, Any]]:
    """(function, args, kwargs); sys.path becomes what the call needs."""
    stream = io.BytesIO(data)
    header = pickle.load(stream)
    extend_path(header["path"])
    if header["name"] is not None:
        pickle.load(stream)
        function = _imported(*header["name"])
    else:
        made_by = tuple(header["python"])
        if made_by != sys.version_info[:2]:
            raise RuntimeError(
                f"the function was sent by value from Python {made_by[0]}.{made_by[1]}, and "
                f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]} now"
            )
        function = _loaded(stream)
    args, kwargs = _loaded(stream)
    return function, args, kwargs


def _imported(module: str, name: str) -> AnyCallable:
    import importlib

    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise _no_module(module, error) from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            place = getattr(sys.modules[module], "__file__", None) or module
            raise ImportError(
                f"there is no `{name}` in the module `{module}` any more ({place})\n"
                f"hint: the job runs the file as it is now; was it renamed since the submit?"
            ) from None
    return unwrapped(found)


def _loaded(stream: io.BytesIO) -> Any:
    try:
        return pickle.load(stream)
    except ImportError as error:
        raise _no_module(error.name or "a module", error) from error


def _no_module(module: str, error: BaseException) -> ImportError:
    path = "".join(f"\n  {entry}" for entry in sys.path)
    return ImportError(
        f"cannot import `{module}` in the job: {_reason(error)}\n"
        f"python: {sys.executable}\nsys.path:{path}\n"
        f"hint: `{sys.executable} -c 'import {module}'` has to work in `{_cwd()}`; install the "
        "module, or set PYTHONPATH before the submit"
    )


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "the job's folder"


# -- results -----------------------------------------------------------------------------------


class Outcome(Record):
    """How an attempt of a call ended. What a user made is still pickled."""

    attempt: int
    value: bytes | None = None
    error: bytes | None = None  # the exception, when it can travel
    traceback: str | None = None  # set when it failed
    summary: str = ""  # `ValueError: no data`


def value_outcome(attempt: int, value: object, of: str) -> bytes:
    try:
        data = dumps(value)
    except KeyboardInterrupt:
        raise  # the signal
    except BaseException as error:  # a `__reduce__` that calls sys.exit is no end of the job
        raise TypeError(
            f"the result of `{of}` is of type `{type(value).__qualname__}` and cannot be sent "
            f"back: {_reason(error)}\n"
            "hint: return numbers, text, arrays or paths, and save the rest to a file"
        ) from None
    return pickle.dumps(Outcome(attempt, value=data)._asdict())


def error_outcome(attempt: int, error: BaseException, traceback: str) -> bytes:
    data = None
    if isinstance(error, Exception):
        try:
            data = dumps(error)
            if not isinstance(pickle.loads(data), Exception):  # many exceptions fail only here
                data = None
        except BaseException:  # also a SystemExit: the traceback still has to be kept
            data = None
    return pickle.dumps(Outcome(attempt, None, data, traceback, _reason(error))._asdict())


def read_outcome(body: bytes) -> Outcome:
    return from_fields(Outcome, pickle.loads(body))
