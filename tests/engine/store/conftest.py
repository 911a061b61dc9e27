"""Close every database that a test opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoker.engine.store import upgrades
from tests.engine.store.builders import close_stores
from tests.engine.store.older_schema import OLDER, STEP


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    yield
    close_stores()


@pytest.fixture
def older_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process upgrade databases of the older schema."""
    monkeypatch.setitem(upgrades.STEPS, OLDER, STEP)
