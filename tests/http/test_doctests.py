"""The examples in the docstrings about servers are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["addresses", "peers"])
def test_examples_in_docstrings_are_true(name: str) -> None:
    done = doctest.testmod(import_module(f"stoker.http.{name}"))
    assert done.failed == 0 and done.attempted
