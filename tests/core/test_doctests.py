"""The examples in the docstrings of the core are true."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import stoker.core

MODULES = sorted(module.name for module in pkgutil.iter_modules(stoker.core.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(import_module(f"stoker.core.{name}")).failed == 0
