"""The routes of the web page. It has no state: all data comes from the routes of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import Response

from stoker.compat.gpupeasy import html_pages, job_text
from stoker.compat.gpupeasy.app import Entry, Request, as_json, html, redirect
from stoker.compat.gpupeasy.client import Backend, Unreachable
from stoker.compat.gpupeasy.html_pages import Html
from stoker.compat.gpupeasy.job_text import TextJob, error_in

_MAX_SHOWN = 200
_DEFAULT_LINES = "20"
_EMPTY = {
    "successfuljobs": "No successful jobs",
    "failedjobs": "No jobs have failed",
    "scheduledjobs": "No jobs scheduled",
}
_TEST_MESSAGES = {
    "successMessage": "This is a success message",
    "errorMessage": "This\n\nis an error message",
    "infoMessage": "This\n\nis an info message",
}


class Gui:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.routes: list[Entry] = [
            ("GET", "/", self._index),
            ("GET", "/message", lambda _: redirect("/", _TEST_MESSAGES)),
            ("GET", "/batchaddjobs", lambda request: html(html_pages.add_jobs(_messages(request)))),
            ("POST", "/batchaddjobs", self._add_jobs),
            ("POST", "/testCommandParser", self._test_command),
            ("GET", "/successfuljobs", lambda _: html(self._list("successfuljobs"))),
            ("GET", "/failedjobs", lambda _: html(self._list("failedjobs"))),
            ("GET", "/scheduledjobs", lambda _: html(self._list("scheduledjobs"))),
            ("GET", "/deviceutilization", lambda _: html(self._devices())),
            ("GET", "/jobinfo/{id}", self._job),
            ("POST", "/loadlogfile", self._load_log),
            # -- not in the original --
            ("POST", "/canceljob/{id}", lambda _, id: self._change("canceljob", id)),
            ("POST", "/rerunjob/{id}", lambda _, id: self._change("rerunjob", id)),
            ("POST", "/setpriority/{id}", self._prioritize),
            *(
                ("POST", f"/{name}", partial(self._change_all, name))
                for name in ("adddevice", "removedevice", "pausescheduler", "resumescheduler")
            ),
            ("GET", "/static/style.css", lambda _: _file("style.css", "text/css")),
            ("GET", "/static/refresh.js", lambda _: _file("refresh.js", "text/javascript")),
        ]

    def answer(self, request: Request, work: Callable[[], Response]) -> Response:
        try:
            return work()
        except Unreachable as error:
            if request.method == "POST":
                return redirect("/", {"errorMessage": str(error)})
            return html(html_pages.error_box(str(error)))

    # -- pages and fragments -------------------------------------------------------------------

    def _index(self, request: Request) -> Response:
        parts = {name: self._list(name) for name in _EMPTY}
        parts["deviceutilization"] = self._devices()
        try:
            is_paused = bool(self._backend.get("serverinfo")["value"]["paused"])
        except (Unreachable, KeyError, TypeError):
            is_paused = False
        return html(html_pages.index(_messages(request), parts, is_paused))

    def _list(self, name: str) -> Html:
        try:
            found = self._backend.get(name, limit=_MAX_SHOWN)
        except Unreachable as error:
            return html_pages.error_box(str(error))
        if found["status"] != "successful":
            return html_pages.error_box("GPUPeasy scheduler server returned an error")
        return html_pages.job_list(found["value"], _EMPTY[name], found.get("hidden", 0))

    def _devices(self) -> Html:
        try:
            running = self._backend.get("deviceutilization")
            names = self._backend.get("availabledevices")
        except Unreachable as error:
            return html_pages.error_box(str(error))
        if running["status"] != "successful" or names["status"] != "successful":
            return html_pages.error_box("Could not fetch utilization info from core server")
        return html_pages.devices(names["value"], running["value"])

    def _job(self, request: Request, id: str) -> Response:
        last = request.query.get("lastN", _DEFAULT_LINES)
        try:
            found = self._backend.get("jobdetails", id)
            if found["status"] == "successful":
                log = self._backend.get("joblog", id, lastN=last)["value"]
                page = html_pages.job_page(_messages(request), found["value"], log, last)
                return html(page)
            error = f"Job ({id}) not found in backend"
        except Unreachable as unreachable:
            error = str(unreachable)
        return html(html_pages.job_page({"errorMessage": error}, None))

    def _load_log(self, request: Request) -> Response:
        fields = request.form()
        if "fileName" not in fields or "lastN" not in fields:
            return as_json({"status": "failed", "value": "fileName and lastN are required"}, 400)
        try:
            found = self._backend.get("joblog", outFile=fields["fileName"], lastN=fields["lastN"])
        except Unreachable as error:  # called by scripts, which expect JSON
            return as_json({"status": "failed", "value": str(error)})
        if found.get("missing"):
            return as_json(found["value"])  # a bare JSON string, as in the original
        return as_json({"status": found["status"], "value": found["value"]})

    # -- actions -------------------------------------------------------------------------------

    def _add_jobs(self, request: Request) -> Response:
        fields = request.form()
        if "jobList" not in fields:
            return as_json({"status": "failed", "message": "jobList is required"}, 400)
        lines = list(job_text.jobs_in(fields["jobList"]))
        if not lines:
            return _error("No jobs were submitted (or incorrect syntax)")
        errors = [line.error for line in lines]
        valid = [index for index, error in enumerate(errors) if error is None]
        jobs = [lines[index].as_json() for index in valid]
        data = {"jobs": jobs, "dryRun": len(valid) < len(lines)}
        response = self._backend.post("addnewjobs", data=data)
        for index, error in zip(valid, response.get("errors") or (), strict=False):
            if error is not None:
                # The message of the original's page for a batch.
                common = "Output file already exists or common to multiple jobs: "
                error = error.replace("Output file already exists: ", common, 1)
                errors[index] = error_in(lines[index].name, error)
        found = [error for error in errors if error]
        if found:
            text = "".join(f"{error}\n\n" for error in found)
            return _error(f"There were {len(found)} errors. \n\n{text}")
        if response["status"] != "successful":
            return _error(str(response["message"]))
        return redirect("/", {"infoMessage": "Jobs successfully passed onto scheduler.\n"})

    def _test_command(self, request: Request) -> Response:
        """Parse one command, or a job list as in later versions of the original."""
        text = request.form().get("jobCommand")
        if text is None:
            return as_json({"status": "failed", "message": "jobCommand is required"}, 400)
        result: dict[str, Any] = {"status": "failed", "commandList": []}
        if not job_text.one_line(text):
            result["errorMessage"] = "Command string cannot be emtpy"
        elif job_text.has_fields(text):
            result = _parsed_list(list(job_text.jobs_in(text)))
        else:
            try:
                words = job_text.split_command(job_text.one_line(text))
                result = {"status": "successful", "commandList": words}
            except ValueError as error:
                result["errorMessage"] = str(error)
        return redirect("/batchaddjobs", result)

    def _prioritize(self, request: Request, id: str) -> Response:
        data = {"priority": request.form().get("priority", "")}
        return _redirect_with_result(self._backend.post("setpriority", id, data=data), id)

    def _change(self, action: str, id: str) -> Response:
        result = self._backend.post(action, id)
        return _redirect_with_result(result, str(result.get("jobID", id)))

    def _change_all(self, action: str, request: Request) -> Response:
        data = {"device": request.form().get("device")}
        return _redirect_with_result(self._backend.post(action, data=data))


def _messages(request: Request) -> dict[str, Any]:
    """The messages in the query string, which are untrusted: any site can link to this page."""
    try:
        found = json.loads(request.query.get("messages", "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parsed_list(lines: list[TextJob]) -> dict[str, Any]:
    errors = [line.error for line in lines if line.error is not None]
    found = [
        {"Job Name": line.name, "Job File": line.out, "Job Command": line.argv}
        for line in lines
        if line.error is None
    ]
    result: dict[str, Any] = {"status": "successful", "jobList": found, "errorCount": len(errors)}
    if errors:
        result["errorMessage"] = "\n".join(f"{error}\n\n" for error in errors)
    return result


def _error(text: str) -> Response:
    return redirect("/", {"errorMessage": text})


def _redirect_with_result(result: dict[str, Any], id: str | None = None) -> Response:
    """To the page of the job, or to the main page."""
    path = "/" if id is None else f"/jobinfo/{id if id.isascii() and id.isdigit() else 0}"
    kind = "successMessage" if result.get("status") == "successful" else "errorMessage"
    return redirect(path, {kind: str(result.get("message", ""))})


def _file(name: str, kind: str) -> Response:
    return Response(html_pages.page_file(name), media_type=kind)
