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


def test_only_the_store_has_sql() -> None:
    others = (file for file in SOURCE.rglob("*.py") if file.parent.name != "store")
    found = {str(file.relative_to(SOURCE)) for file in others if SQL.search(file.read_text())}
    assert found == set()


def test_only_packages_and_four_modules_are_at_the_top() -> None:
    modules = {file.name for file in SOURCE.glob("*.py")}
    assert modules == {"__init__.py", "__main__.py", "boot.py", "errors.py", "settings.py"}
