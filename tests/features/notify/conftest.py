"""Receivers that are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.features.notify.receivers import MailServer, WebServer


@pytest.fixture
def new_web() -> Iterator[Callable[..., WebServer]]:
    servers: list[WebServer] = []

    def make(*args: Any) -> WebServer:
        servers.append(WebServer(*args))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def web(new_web: Callable[..., WebServer]) -> WebServer:
    """A web server that accepts every message."""
    return new_web()


@pytest.fixture
def new_mail() -> Iterator[Callable[..., MailServer]]:
    servers: list[MailServer] = []

    def make(*args: Any) -> MailServer:
        servers.append(MailServer(*args))
        return servers[-1]

    yield make
    for server in servers:
        server.close()
