"""The JSON routes. Those of GPUPeasy first, answer for answer; below them, what it never had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stoker.compat.gpupeasy.desk import Answer, Desk
from stoker.compat.gpupeasy.httpd import Request, Response, Routes, answer_with, as_json
from stoker.compat.gpupeasy.logbook import Logbook
from stoker.errors import Error
from stoker.settings import Settings

_MANY = 10**9


class Server:
    def __init__(self, settings: Settings, book: Logbook, limit: int) -> None:
        self._settings = settings
        self._book = book
        self._limit = limit

    def desk(self) -> Desk:
        return Desk(self._settings, self._book, self._limit)

    @contextmanager
    def connection(self) -> Iterator[Callable[[Request], Response]]:
        """Answers the requests of one connection, with one desk that is opened for the first."""
        desks: list[Desk] = []

        def answer(request: Request) -> Response:
            if not desks:
                desks.append(self.desk())
            try:
                return answer_with(_routes(desks[0]), request)
            except Error as error:  # a full disk, a busy database: nothing was changed
                self._book.write("Error", error.message)
                return as_json({"status": "failed", "message": error.message})
            except Exception as error:
                self._book.write("Critical", f"{type(error).__name__}: {error}")
                return as_json({"status": "failed", "message": "Internal error"}, 500)

        try:
            yield answer
        finally:
            for desk in desks:
                desk.close()


def _routes(desk: Desk) -> Routes:
    return Routes([
        ("GET", "/availabledevices", lambda _: as_json(desk.devices())),
        ("GET", "/deviceutilization", lambda _: as_json(desk.running())),
        ("GET", "/scheduledjobs", lambda ask: as_json(desk.scheduled(_limit(ask)))),
        ("GET", "/successfuljobs", lambda ask: as_json(desk.succeeded(_limit(ask)))),
        ("GET", "/failedjobs", lambda ask: as_json(desk.failed(_limit(ask)))),
        ("GET", "/jobinfo/<id>", lambda _, id: as_json(desk.info(id))),
        ("POST", "/addnewjob", lambda ask: as_json(desk.add(ask.json()))),
        # -- new --
        ("POST", "/addnewjobs", lambda ask: as_json(desk.add_all(ask.json()))),
        ("GET", "/jobdetails/<id>", lambda _, id: as_json(desk.details(id))),
        ("GET", "/joblog/<id>", lambda ask, id: as_json(desk.log(id, None, _last(ask)))),
        ("GET", "/joblog", lambda ask: as_json(desk.log(None, ask.query.get("outFile"),
                                                        _last(ask)))),
        ("POST", "/canceljob/<id>", lambda _, id: as_json(desk.cancel(id))),
        ("POST", "/rerunjob/<id>", lambda _, id: as_json(desk.rerun(id))),
        ("POST", "/setpriority/<id>", lambda ask, id: as_json(_prioritize(desk, ask, id))),
        ("POST", "/adddevice", lambda ask: as_json(desk.add_device(_field(ask, "device")))),
        ("POST", "/removedevice", lambda ask: as_json(desk.remove_device(_field(ask, "device")))),
        ("POST", "/pausescheduler", lambda _: as_json(desk.pause(True))),
        ("POST", "/resumescheduler", lambda _: as_json(desk.pause(False))),
        ("GET", "/serverinfo", lambda _: as_json(desk.about())),
    ])  # fmt: skip


def _prioritize(desk: Desk, request: Request, id: str) -> Answer:
    return desk.prioritize(id, _field(request, "priority"))


def _field(request: Request, name: str) -> object:
    """From JSON, or from a form: `curl -d device=3` is enough."""
    data = request.json()
    return data.get(name) if isinstance(data, dict) else request.form().get(name)


def _limit(request: Request) -> int:
    text = request.query.get("limit", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else _MANY


def _last(request: Request) -> str:
    return request.query.get("lastN", "20")
