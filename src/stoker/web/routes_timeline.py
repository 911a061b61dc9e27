"""Routes of the timeline: what every GPU did and likely does, and the heat map of its use."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from stoker.client.heat_map import heat_map_json
from stoker.client.queue import Queue
from stoker.client.timeline import timeline_json
from stoker.web import timeline_models
from stoker.web.context import web_of
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS

router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])

_HOUR = 3600.0
From = Annotated[float | None, Query(alias="from", ge=0, le=1e11)]
To = Annotated[float | None, Query(ge=0, le=1e11)]


@router.get("/timeline", response_model=timeline_models.TimelineAnswer)
async def timeline(request: Request, from_: From = None, to: To = None) -> Response:
    """What every GPU did from `from` to `to`, in seconds since 1970, and the forecast after now.

    Without them, the last 24 hours and the next 6. The sums of the past are those of
    `stoker gpus --history`; the number of blocks is limited by merging short ones.
    """
    since, until = _range(from_, to, ahead=6 * _HOUR)
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        return timeline_json(queue.db, queue.settings, since, until)

    # Ranges that end now move with every request; a few seconds make no difference.
    key = (round(since / 5), round(until / 5))
    found = await web.threads.read(lambda queue: web.timelines.get(key, lambda: read(queue)))
    return json_response(request, found)


@router.get("/timeline/heat", response_model=timeline_models.HeatAnswer)
async def heat(
    request: Request,
    from_: From = None,
    to: To = None,
    measure: Literal["use", "memory", "power"] = "use",
    columns: Annotated[int, Query(ge=1, le=400)] = 96,
) -> Response:
    """Mean utilization, memory or power of every GPU in equal parts of a time."""
    since, until = _range(from_, to, ahead=0.0)
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        return heat_map_json(queue.db, queue.settings, since, until, measure, columns)

    # Ranges that end now move with every request; a minute makes no difference to a reader.
    key = (round(since / 60), round(until / 60), measure, columns)
    found = await web.threads.read(lambda queue: web.heat_maps.get(key, lambda: read(queue)))
    return json_response(request, found)


def _range(since: float | None, until: float | None, ahead: float) -> tuple[float, float]:
    now = time.time()
    end = now + ahead if until is None else until
    return (min(now, end) - 24 * _HOUR if since is None else since), end
