"""All that the routes work with, made once."""

from __future__ import annotations

from starlette.requests import Request

from stoker.http.guard_request import Asked
from stoker.settings import Settings
from stoker.web.auth import Guard
from stoker.web.database_threads import Desk
from stoker.web.event_hub import Hub
from stoker.web.metric_cache import Reports
from stoker.web.page_state import Looker
from stoker.web.sweeps_view import SweepBook


class Web:
    def __init__(self, settings: Settings, guard: Guard) -> None:
        self.settings = settings
        self.guard = guard
        self.desk = Desk(settings)
        self.reports = Reports(settings.state_dir)
        self.book = SweepBook(self.reports)
        self.hub = Hub(settings, Looker(self.book), guard.read_only)

    def close(self) -> None:
        self.hub.close()
        self.desk.close()


def web_of(request: Request) -> Web:
    web: Web = request.app.state.web
    return web


def asked_of(request: Request) -> Asked:
    """What the guard was asked about this request."""
    asked: Asked = request.scope["stoker.asked"]
    return asked
