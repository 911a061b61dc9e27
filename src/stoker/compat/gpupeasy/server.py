"""The JSON routes. Those of GPUPeasy first, answer for answer; below them, what it never had."""

from __future__ import annotations

import threading
from collections.abc import Callable

from starlette.responses import Response

from stoker.compat.gpupeasy.app import Entry, Request, as_json
from stoker.compat.gpupeasy.event_log import EventLog
from stoker.compat.gpupeasy.service import Service
from stoker.errors import Error
from stoker.settings import Settings

_MANY = 10**9


class Server:
    def __init__(self, settings: Settings, book: EventLog, limit: int) -> None:
        self._settings = settings
        self._book = book
        self._limit = limit
        self._local = threading.local()
        self.routes: list[Entry] = [
            ("GET", "/availabledevices", lambda _: as_json(self.desk.devices())),
            ("GET", "/deviceutilization", lambda _: as_json(self.desk.running())),
            ("GET", "/scheduledjobs", lambda ask: as_json(self.desk.scheduled(_limit(ask)))),
            ("GET", "/successfuljobs", lambda ask: as_json(self.desk.succeeded(_limit(ask)))),
            ("GET", "/failedjobs", lambda ask: as_json(self.desk.failed(_limit(ask)))),
            ("GET", "/jobinfo/{id}", lambda _, id: as_json(self.desk.info(id))),
            ("POST", "/addnewjob", lambda ask: as_json(self.desk.add(ask.json()))),
            # -- new --
            ("POST", "/addnewjobs", lambda ask: as_json(self.desk.add_all(ask.json()))),
            ("GET", "/jobdetails/{id}", lambda _, id: as_json(self.desk.details(id))),
            ("GET", "/joblog/{id}", lambda ask, id: as_json(self.desk.log(id, None, _last(ask)))),
            ("GET", "/joblog", lambda ask: as_json(self.desk.log(None, ask.query.get("outFile"),
                                                                 _last(ask)))),
            ("POST", "/canceljob/{id}", lambda _, id: as_json(self.desk.cancel(id))),
            ("POST", "/rerunjob/{id}", lambda _, id: as_json(self.desk.rerun(id))),
            ("POST", "/setpriority/{id}",
             lambda ask, id: as_json(self.desk.prioritize(id, _field(ask, "priority")))),
            ("POST", "/adddevice",
             lambda ask: as_json(self.desk.add_device(_field(ask, "device")))),
            ("POST", "/removedevice",
             lambda ask: as_json(self.desk.remove_device(_field(ask, "device")))),
            ("POST", "/pausescheduler", lambda _: as_json(self.desk.pause(True))),
            ("POST", "/resumescheduler", lambda _: as_json(self.desk.pause(False))),
            ("GET", "/serverinfo", lambda _: as_json(self.desk.about())),
        ]  # fmt: skip

    @property
    def desk(self) -> Service:
        """That of this thread: a database connection belongs to the thread that made it."""
        if not hasattr(self._local, "desk"):
            self._local.desk = Service(self._settings, self._book, self._limit)
        desk: Service = self._local.desk
        return desk

    def answer(self, request: Request, work: Callable[[], Response]) -> Response:
        try:
            return work()
        except Error as error:  # a full disk, a busy database: nothing was changed
            self._book.write("Error", error.message)
            return as_json({"status": "failed", "message": error.message})
        except Exception as error:
            self._book.write("Critical", f"{type(error).__name__}: {error}")
            return as_json({"status": "failed", "message": "Internal error"}, 500)


def _field(request: Request, name: str) -> object:
    """From JSON, or from a form: `curl -d device=3` is enough."""
    data = request.json()
    return data.get(name) if isinstance(data, dict) else request.form().get(name)


def _limit(request: Request) -> int:
    text = request.query.get("limit", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else _MANY


def _last(request: Request) -> str:
    return request.query.get("lastN", "20")
