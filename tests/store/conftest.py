"""Close every database that a test opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.builders import close_stores


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    yield
    close_stores()
