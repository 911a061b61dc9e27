"""The examples in the docstrings about devices are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["nvml", "probe", "samples"])
def test_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(import_module(f"stoker.devices.{name}")).failed == 0
