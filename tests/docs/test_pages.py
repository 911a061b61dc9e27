"""The commands in pages of the documentation work as typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.docs import pages
from tests.lab import Lab


@pytest.mark.parametrize(
    "page",
    ["README.md", "arrays.md", "artifacts.md", "curves.md", "environments.md", "monitoring.md",
     "notes.md", "notifications.md", "removing.md", "reports.md", "snapshots.md",
     "tables.md", "waiting.md", "why.md"],
)  # fmt: skip
def test_commands_of_the_page_work_as_typed(new_lab: Callable[..., Lab], page: str) -> None:
    pages.run(new_lab(devices=2), page)
