from __future__ import annotations

from tests.python.conftest import here
from tests.web.conftest import site

__all__ = ["here", "site"]
