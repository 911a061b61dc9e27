"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import stoker

_SOURCE = Path(stoker.__file__).parents[1]
_MODULES = sorted(
    ".".join(file.relative_to(_SOURCE).with_suffix("").parts)
    for file in _SOURCE.rglob("*.py")
    if ">>> " in file.read_text()
)


@pytest.mark.parametrize("module", _MODULES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0
