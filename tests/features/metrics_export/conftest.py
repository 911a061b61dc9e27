from __future__ import annotations

from tests.web.conftest import host, site

__all__ = ["host", "site"]
