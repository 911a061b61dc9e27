"""The objects that all routes share, created once per server."""

from __future__ import annotations

from starlette.requests import Request

from stoker.http.guard_request import GuardRequest
from stoker.settings import Settings
from stoker.web.auth import Guard
from stoker.web.database_threads import DatabaseThreads
from stoker.web.event_hub import EventHub
from stoker.web.log_view import Renderings
from stoker.web.metric_cache import Reports
from stoker.web.page_state import PageStateReader
from stoker.web.sweeps_view import SweepCache


class WebContext:
    def __init__(self, settings: Settings, guard: Guard) -> None:
        self.settings = settings
        self.guard = guard
        self.threads = DatabaseThreads(settings)
        self.reports = Reports(settings.state_dir)
        self.renderings = Renderings()
        self.sweeps = SweepCache(self.reports)
        self.hub = EventHub(settings, PageStateReader(self.sweeps), guard.read_only)

    def close(self) -> None:
        self.hub.close()
        self.threads.close()


def web_of(request: Request) -> WebContext:
    web: WebContext = request.app.state.web
    return web


def guard_request_of(request: Request) -> GuardRequest:
    """The request as the guard saw it."""
    checked: GuardRequest = request.scope["stoker.request"]
    return checked
