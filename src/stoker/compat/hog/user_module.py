"""Inspect and load Python files of users."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator


def load_module(path: str) -> object:
    """Load a module from its path, even if another module has the same name."""
    from importlib.util import module_from_spec, spec_from_file_location

    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def may_define(source: bytes, name: str) -> bool:
    """Whether the source of a module may define `name`. Raises SyntaxError.

    The module is not loaded, because that could take long or allocate GPU memory.

    >>> may_define(b"def job(): ...", "job"), may_define(b"def job(): ...", "nope")
    (True, False)
    >>> may_define(b"from mine import job as other", "other"), may_define(b"x, (y, z) = 1", "z")
    (True, True)
    >>> may_define(b"if True:\\n job = print", "job"), may_define(b"from mine import *", "job")
    (True, True)
    """
    try:
        found = set(_names(ast.parse(source).body))
    except RecursionError:  # too deeply nested for `ast`, but valid Python
        return True
    return name in found or not found.isdisjoint(("*", "__getattr__"))


def _names(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind, including nested statements."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            yield from _names(ast.iter_child_nodes(node))
