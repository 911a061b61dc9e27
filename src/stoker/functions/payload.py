"""Serialize a call of a Python function as three consecutive pickles.

    header      sys.path, and the name of the function if it can be imported
    function    the function by value, or None
    arguments   (args, kwargs)

A function that a new process can import is sent by module and name, so the job runs the file as it
is at that time. Functions of scripts and notebooks, lambdas and closures are sent by value with
cloudpickle. The calls of one batch share the first two parts.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType

from stoker.engine.snapshot_context import SNAPSHOT_DIR, SNAPSHOT_OF, moved
from stoker.errors import UsageError
from stoker.fields import from_fields
from stoker.record import Record

_MAX_CALL_TEXT = 100

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any, TypeAlias

    AnyCallable: TypeAlias = Callable[..., Any]

# Attribute of a decorator's wrapper that holds the original function.
WRAPPED = "__stoker_function__"
_REASON_CHARS = 200


def unwrapped(function: AnyCallable) -> AnyCallable:
    """The function behind `@stoker.job`."""
    inner: AnyCallable = getattr(function, WRAPPED, function)
    return inner


def label(function: AnyCallable) -> str:
    """The name for display: `train.fit`, or `fit` for a function of a script."""
    function = unwrapped(function)
    while not hasattr(function, "__qualname__") and callable(getattr(function, "func", None)):
        function = function.func  # type: ignore[attr-defined]  # functools.partial
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    return str(name) if module in (None, "__main__", "builtins") else f"{module}.{name}"


def call_text(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """A call for display: `train(0.1, seed=3)`.

    It is in the command line of the job, which other users can see, so only numbers are shown.
    """
    shown = [_number_text(value) for value in args]
    shown += [f"{key}={_number_text(value)}" for key, value in kwargs.items()]
    text = ", ".join(shown)
    return f"{name}({text if len(text) <= _MAX_CALL_TEXT else '...'})"


def _number_text(value: object) -> str:
    return repr(value) if value is None or type(value) in (bool, int, float) else "..."


# -- packing -----------------------------------------------------------------------------------


def pack(function: AnyCallable, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """Serialize one call; raises UsageError that names what cannot be pickled."""
    packer = Packer(function)
    return packer.shared + packer.call(args, kwargs)


class Packer:
    """Serializes calls of one function; `shared` is their common part."""

    def __init__(self, function: AnyCallable) -> None:
        self._function = unwrapped(function)
        self.label = label(function)
        name = importable_name(self._function)
        # Identifies the function across submissions.
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
                f"the function `{self.label}` cannot be pickled for the job: {_reason(error)}",
                "it refers to objects outside the function; pass them as arguments, or create "
                "them inside the function",
            ) from error

    def call(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        try:
            return dumps((tuple(args), dict(kwargs)))
        except Exception as error:
            raise self._argument_error(args, kwargs, error) from error

    def _argument_error(
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
            f"the argument{which}{kind} of `{self.label}` cannot be pickled for the job: "
            f"{_reason(error)}",
            "pass values that can be pickled (numbers, strings, arrays, paths) and create the "
            "rest inside the function",
        )


def dumps(value: object) -> bytes:
    """Pickle a value so that a new process can load it; with cloudpickle if necessary."""
    buffer = io.BytesIO()
    try:
        _PlainPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
        return buffer.getvalue()
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        # Plain pickle stores only the name, even if another process cannot import it.
        if isinstance(value, (type, FunctionType)) and importable_name(value) is None:
            raise pickle.PicklingError(f"{value!r} cannot be imported elsewhere")
        return NotImplemented


def importable_name(value: object) -> tuple[str, str] | None:
    """Return (module, qualified name) if a new process would find the same object, else None."""
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
    """Whether a new process with this sys.path would import the same module."""
    if _findable_on != sys.path:
        _findable.clear()
        _findable_on[:] = sys.path
    known = _findable.get(name)
    if known is None:
        known = _findable[name] = name != "__main__" and _search(name)
    return known


def _digest(function: AnyCallable) -> str:
    """A hash of a function that cannot be imported: its code, defaults and closure."""
    import hashlib

    digest = hashlib.sha256()

    def add(value: object, depth: int = 0) -> None:
        if isinstance(value, CodeType):
            digest.update(value.co_code + repr(value.co_names).encode())
            for constant in value.co_consts:
                add(constant, depth + 1)
        elif isinstance(value, FunctionType) and depth < 5:
            add(value.__code__, depth + 1)
            add(value.__defaults__, depth + 1)
            for cell in value.__closure__ or ():
                try:
                    add(cell.cell_contents, depth + 1)
                except ValueError:
                    pass  # an empty cell
        elif isinstance(value, (tuple, list)) and depth < 5:
            for part in value:
                add(part, depth + 1)
        elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            digest.update(repr(value).encode() + b";")
        else:
            digest.update(type(value).__qualname__.encode())

    inner = unwrapped(function)
    while not isinstance(inner, FunctionType) and callable(getattr(inner, "func", None)):
        add(getattr(inner, "args", ()))  # functools.partial
        inner = inner.func  # type: ignore[attr-defined]
    add(inner)
    return digest.hexdigest()[:8]


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
    """Return (function, args, kwargs) and extend sys.path as the call needs it.

    Raises ImportError if a module is missing, and RuntimeError for another Python version.
    """
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
                f"the function was pickled by Python {made_by[0]}.{made_by[1]}, but "
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
                f"the module `{module}` has no `{name}` any more ({place})\n"
                f"hint: the job runs the current file; was the function renamed after the submit?"
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
        f"hint: `{sys.executable} -c 'import {module}'` must work in `{_cwd()}`; install the "
        "module, or set PYTHONPATH before the submit"
    )


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "the working directory of the job"


# -- results -----------------------------------------------------------------------------------


class CallResult(Record):
    """How an attempt of a call ended. Objects of the user are still pickled."""

    attempt: int
    value: bytes | None = None
    error: bytes | None = None  # the exception, if it can be pickled
    traceback: str | None = None  # set if it failed
    summary: str = ""  # `ValueError: no data`


def encode_value(attempt: int, value: object, of: str) -> bytes:
    try:
        data = dumps(value)
    except KeyboardInterrupt:
        raise  # SIGINT
    except BaseException as error:  # also a `__reduce__` that calls sys.exit
        raise TypeError(
            f"the result of `{of}` has type `{type(value).__qualname__}` and cannot be pickled: "
            f"{_reason(error)}\n"
            "hint: return numbers, strings, arrays or paths, and save the rest to a file"
        ) from None
    return pickle.dumps(CallResult(attempt, value=data)._asdict())


def encode_error(attempt: int, error: BaseException, traceback: str) -> bytes:
    data = None
    if isinstance(error, Exception):
        try:
            data = dumps(error)
            if not isinstance(pickle.loads(data), Exception):  # many exceptions fail only here
                data = None
        except BaseException:  # also SystemExit: the traceback must still be saved
            data = None
    return pickle.dumps(CallResult(attempt, None, data, traceback, _reason(error))._asdict())


def read_call_result(body: bytes) -> CallResult:
    return from_fields(CallResult, pickle.loads(body))


# Pass sys.path of the submitter to the job, so that it imports the same modules.


def own_path() -> list[str]:
    """sys.path of this process with absolute paths."""
    path = []
    for entry in sys.path:
        try:
            path.append(os.path.abspath(entry))  # "" is the current folder
        except (FileNotFoundError, TypeError):
            continue  # the current folder was deleted, or the entry is not a path
    return path


def extend_path(sent: list[str]) -> None:
    """Add the submitter's entries to sys.path: those before the first common entry go to the front,
    the others to the end. In a snapshot, folders of the work tree are replaced by their copies."""
    tree, root = os.environ.get(SNAPSHOT_DIR), os.environ.get(SNAPSHOT_OF)
    if tree and root:
        sent = [moved(entry, root, tree) for entry in sent]
    own = set(sys.path)
    common = next((i for i, entry in enumerate(sent) if entry in own), len(sent))
    sys.path[:] = [
        *sent[:common],
        *sys.path,
        *(entry for entry in sent[common:] if entry not in own),
    ]
