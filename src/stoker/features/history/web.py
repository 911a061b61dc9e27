"""The route of the timeline: what every GPU did and likely does."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from stoker.client.queue import Queue
from stoker.features.history import web_models as timeline_models
from stoker.features.history.timeline import timeline_json
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
    now = time.time()
    until = now + 6 * _HOUR if to is None else to
    since = min(now, until) - 24 * _HOUR if from_ is None else from_
    web = web_of(request)

    def read(queue: Queue) -> dict[str, object]:
        return timeline_json(queue.db, queue.settings, since, until)

    # Ranges that end now move with every request; a few seconds make no difference.
    key = (round(since / 5), round(until / 5))
    found = await web.threads.read(lambda queue: web.timelines.get(key, lambda: read(queue)))
    return json_response(request, found)
