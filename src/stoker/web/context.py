"""The objects that all routes share, created once per server."""

from __future__ import annotations

from starlette.requests import Request

from stoker.client.database_threads import DatabaseThreads
from stoker.client.live.live_state import LiveStateReader
from stoker.client.live.log_view import Renderings
from stoker.client.throttled_cache import ThrottledCache
from stoker.features.results.reports.metric_cache import Reports
from stoker.features.sweeps.sweeps_view import SweepCache
from stoker.settings import Settings
from stoker.web.auth import Guard
from stoker.web.event_hub import EventHub
from stoker.web.http.guard_request import GuardRequest
from stoker.web.job_table_view import JobTableView


class WebContext:
    def __init__(self, settings: Settings, guard: Guard) -> None:
        self.settings = settings
        self.guard = guard
        self.threads = DatabaseThreads(settings)
        self.reports = Reports(settings.state_dir)
        self.curves = self.reports.curves
        self.renderings = Renderings()
        self.sweeps = SweepCache(self.reports)
        self.job_tables = JobTableView(self.reports)
        # Timelines of many GPUs over days read up to 100,000 records and megabytes.
        self.timelines: ThrottledCache[dict[str, object]] = ThrottledCache(max_entries=16)
        self.hub = EventHub(settings, LiveStateReader(self.sweeps), guard.read_only)

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
