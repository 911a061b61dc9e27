"""Import optional packages on demand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stoker.errors import Unavailable


def load(module: str, extra: str) -> Any:
    """Import and return a module; raises Unavailable with the pip command for `extra`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        missing = getattr(error, "name", None)
        why = "is not installed" if missing == package else f"cannot be loaded ({error})"
        raise Unavailable(f"{package} {why}", f"pip install 'stoker[{extra}]'") from None
