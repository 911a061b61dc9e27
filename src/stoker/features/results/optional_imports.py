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


def missing_parquet() -> str | None:
    """Why Parquet files cannot be written, with what to install; None if they can be."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is not None or find_spec("polars") is not None:
        return None
    return "Parquet files need the package pyarrow, which is not installed: pip install pyarrow"
