"""The route that Prometheus reads."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from stoker.features.metrics_export.operator_metrics import CONTENT_TYPE, metrics_text
from stoker.web.context import web_of
from stoker.web.routes_read import ERRORS

router = APIRouter(responses=ERRORS, tags=["read"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Jobs, GPUs, host and daemon in the text format of Prometheus."""
    text = await web_of(request).threads.read(lambda queue: metrics_text(queue.db, queue.settings))
    return Response(text, media_type=CONTENT_TYPE)
