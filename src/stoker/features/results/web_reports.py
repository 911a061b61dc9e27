"""The report of a sweep as a file to download; `stoker report` writes the same."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from stoker.client.queue import Queue
from stoker.features.results.report_html import html
from stoker.features.results.report_markdown import markdown
from stoker.features.results.sweep_report import ReportRequest, sweep_report
from stoker.features.results.web_curves import run_selector
from stoker.web.context import web_of
from stoker.web.routes_read import ERRORS, Short, SweepName

router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])
_TYPES = {"md": "text/markdown", "html": "text/html"}
_FILES: dict[int | str, dict[str, object]] = {
    200: {"content": {kind: {} for kind in _TYPES.values()}, "description": "a file"}
}
# Instead of the policy for pages: a report that is opened in the browser runs nothing either.
_HARMLESS = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
)


@router.get("/sweeps/{name}/report", response_class=Response, responses={**ERRORS, **_FILES})
async def report(
    request: Request,
    name: SweepName,
    format: Literal["md", "html"] = "html",
    metric: Short = None,
    group: Short = None,
    smooth: Annotated[float, Query(ge=0, le=0.999)] = 0.0,
) -> Response:
    """A report of a sweep: its note, failures, best trials, groups over seeds, curves, parameter
    importance, provenance, and the commands to repeat it."""
    web = web_of(request)
    wanted = ReportRequest(
        metric=metric or None,
        group=tuple(part.strip() for part in (group or "").split(",") if part.strip()),
        smooth=smooth,
    )

    def read(queue: Queue) -> str:
        selector = run_selector(web, queue)
        found = sweep_report(queue, name, wanted, selector=selector, cache=web.curves)
        return html(found) if format == "html" else markdown(found)

    text = await web.threads.read(read)
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-") or "sweep"
    headers = {
        "Content-Disposition": f'attachment; filename="{stem}-report.{format}"',
        "Content-Security-Policy": _HARMLESS,
    }
    return Response(text.encode("utf-8", "replace"), 200, headers, _TYPES[format])
