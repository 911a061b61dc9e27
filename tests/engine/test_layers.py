"""Contracts that import-linter cannot check."""

from __future__ import annotations

import re
from pathlib import Path

import stoker

SOURCE = Path(stoker.__file__).parent
SQL = re.compile(
    r"\.(execute|executemany|executescript|value)\(\s*f?[\"']"
    r"|[\"'](SELECT|INSERT|UPDATE|DELETE|PRAGMA|BEGIN|COMMIT|ROLLBACK) "
)


def _is_store(file: Path) -> bool:
    """Whether it is part of the store, or of that of a feature."""
    names = file.relative_to(SOURCE).parts
    in_feature = names[0] == "features" and file.stem.partition("_")[0] == "store"
    return names[:2] == ("engine", "store") or in_feature


def test_only_the_store_has_sql() -> None:
    others = (file for file in SOURCE.rglob("*.py") if not _is_store(file))
    found = {str(file.relative_to(SOURCE)) for file in others if SQL.search(file.read_text())}
    assert found == set()


def test_only_packages_and_what_all_layers_use_are_at_the_top() -> None:
    modules = {file.name for file in SOURCE.glob("*.py")}
    assert modules == {
        *("__init__.py", "__main__.py", "boot.py", "errors.py", "settings.py"),
        *("fields.py", "record.py", "states.py"),
    }
