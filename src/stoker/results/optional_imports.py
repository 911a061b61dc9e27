"""Packages that Stoker does without until they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stoker.errors import Unavailable


def load(module: str, extra: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        missing = getattr(error, "name", None)
        why = "is not installed" if missing == package else f"cannot be loaded ({error})"
        raise Unavailable(f"{package} {why}", f"pip install 'stoker[{extra}]'") from None
