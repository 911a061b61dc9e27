"""The JSON routes: first those of the original GPUPeasy, then the additional ones."""

from __future__ import annotations

import threading
from collections.abc import Callable

from starlette.responses import Response

from stoker.compat.gpupeasy.app import Entry, Request, as_json
from stoker.compat.gpupeasy.event_log import EventLog
from stoker.compat.gpupeasy.service import Service
from stoker.errors import Error
from stoker.settings import Settings

_NO_LIMIT = 10**9


class Server:
    def __init__(self, settings: Settings, log: EventLog, limit: int) -> None:
        self._settings = settings
        self._log = log
        self._limit = limit
        self._local = threading.local()
        self.routes: list[Entry] = [
            ("GET", "/availabledevices", lambda _: as_json(self.service.devices())),
            ("GET", "/deviceutilization", lambda _: as_json(self.service.running())),
            ("GET", "/scheduledjobs", lambda req: as_json(self.service.scheduled(_limit(req)))),
            ("GET", "/successfuljobs", lambda req: as_json(self.service.succeeded(_limit(req)))),
            ("GET", "/failedjobs", lambda req: as_json(self.service.failed(_limit(req)))),
            ("GET", "/jobinfo/{id}", lambda _, id: as_json(self.service.info(id))),
            ("POST", "/addnewjob", lambda req: as_json(self.service.add(req.json()))),
            # -- not in the original --
            ("POST", "/addnewjobs", lambda req: as_json(self.service.add_all(req.json()))),
            ("GET", "/jobdetails/{id}", lambda _, id: as_json(self.service.details(id))),
            ("GET", "/joblog/{id}",
             lambda req, id: as_json(self.service.log(id, None, _last(req)))),
            ("GET", "/joblog",
             lambda req: as_json(self.service.log(None, req.query.get("outFile"), _last(req)))),
            ("POST", "/canceljob/{id}", lambda _, id: as_json(self.service.cancel(id))),
            ("POST", "/rerunjob/{id}", lambda _, id: as_json(self.service.rerun(id))),
            ("POST", "/setpriority/{id}",
             lambda req, id: as_json(self.service.prioritize(id, _field(req, "priority")))),
            ("POST", "/adddevice",
             lambda req: as_json(self.service.add_device(_field(req, "device")))),
            ("POST", "/removedevice",
             lambda req: as_json(self.service.remove_device(_field(req, "device")))),
            ("POST", "/pausescheduler", lambda _: as_json(self.service.pause(True))),
            ("POST", "/resumescheduler", lambda _: as_json(self.service.pause(False))),
            ("GET", "/serverinfo", lambda _: as_json(self.service.about())),
        ]  # fmt: skip

    @property
    def service(self) -> Service:
        """The service of this thread: a database connection belongs to one thread."""
        if not hasattr(self._local, "service"):
            self._local.service = Service(self._settings, self._log, self._limit)
        service: Service = self._local.service
        return service

    def answer(self, request: Request, work: Callable[[], Response]) -> Response:
        try:
            return work()
        except Error as error:  # e.g. a full disk or a busy database: nothing was changed
            self._log.write("Error", error.message)
            return as_json({"status": "failed", "message": error.message})
        except Exception as error:
            self._log.write("Critical", f"{type(error).__name__}: {error}")
            return as_json({"status": "failed", "message": "Internal error"}, 500)


def _field(request: Request, name: str) -> object:
    """A field of the JSON body or of a form, e.g. `curl -d device=3`."""
    data = request.json()
    return data.get(name) if isinstance(data, dict) else request.form().get(name)


def _limit(request: Request) -> int:
    text = request.query.get("limit", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else _NO_LIMIT


def _last(request: Request) -> str:
    return request.query.get("lastN", "20")
