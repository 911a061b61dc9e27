"""The JSON routes: first those of the original GPUPeasy, then the additional ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from starlette.responses import Response

from stoker.compat.gpupeasy.app import Entry, Request, as_json
from stoker.compat.gpupeasy.event_log import EventLog
from stoker.compat.gpupeasy.jobs import InvalidSubmission
from stoker.compat.gpupeasy.service import JobNotFound, Service
from stoker.errors import Error
from stoker.settings import Settings
from stoker.states import FINAL

_NO_LIMIT = 10**9
_FAILED = tuple(state for state in FINAL if state != "done")


class Server:
    def __init__(self, settings: Settings, log: EventLog, limit: int) -> None:
        self._settings = settings
        self._log = log
        self._limit = limit
        self._local = threading.local()
        # The handlers get the service of their thread, the request, and the ID in the path.
        handlers: list[tuple[str, str, Callable[..., object]]] = [
            ("GET", "/availabledevices", lambda service, _: service.devices()),
            ("GET", "/deviceutilization", lambda service, _: service.running()),
            ("GET", "/scheduledjobs", lambda service, req: service.scheduled(_limit(req))),
            ("GET", "/successfuljobs", lambda service, req: service.finished(_limit(req), "done")),
            ("GET", "/failedjobs", lambda service, req: service.finished(_limit(req), *_FAILED)),
            ("GET", "/jobinfo/{id}", lambda service, _, id: service.info(id)),
            ("POST", "/addnewjob", lambda service, req: service.add(req.json())),
            # -- not in the original --
            ("POST", "/addnewjobs", lambda service, req: service.add_all(req.json())),
            ("GET", "/jobdetails/{id}", lambda service, _, id: service.details(id)),
            ("GET", "/joblog/{id}", lambda service, req, id: service.log(id, "", _last(req))),
            ("GET", "/joblog",
             lambda service, req: service.log(None, req.query.get("outFile", ""), _last(req))),
            ("POST", "/canceljob/{id}", lambda service, _, id: service.cancel(id)),
            ("POST", "/rerunjob/{id}", lambda service, _, id: service.rerun(id)),
            ("POST", "/setpriority/{id}",
             lambda service, req, id: service.prioritize(id, _field(req, "priority"))),
            ("POST", "/adddevice", lambda service, req: service.add_device(_field(req, "device"))),
            ("POST", "/removedevice",
             lambda service, req: service.remove_device(_field(req, "device"))),
            ("POST", "/pausescheduler", lambda service, _: service.pause(True)),
            ("POST", "/resumescheduler", lambda service, _: service.pause(False)),
            ("GET", "/serverinfo", lambda service, _: service.about()),
        ]  # fmt: skip
        self.routes: list[Entry] = [
            (method, path, partial(self._handle, handler)) for method, path, handler in handlers
        ]

    def _handle(self, handler: Callable[..., object], request: Request, id: str = "") -> Response:
        try:
            return as_json(handler(self.service, request, *([id] if id else [])))
        except JobNotFound:
            missing = {"value": {}, "message": f"Job (jobid :{id[:40]}) not found"}
            return as_json({"status": "failed", **missing})
        except InvalidSubmission as refused:
            return as_json({"status": "failed", "message": str(refused)})

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
