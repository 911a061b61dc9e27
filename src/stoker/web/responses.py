"""JSON responses; errors have the same fields as with `--json`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from stoker.errors import (
    Broken,
    Conflict,
    Error,
    Impossible,
    NoPermission,
    NotFound,
    TimedOut,
    TryLater,
    Unavailable,
    UsageError,
)
from stoker.text.filters.expressions import InvalidExpression
from stoker.text.json_schema import JSON_SCHEMA

_STATUS: tuple[tuple[type[Error], int], ...] = (
    (UsageError, 400),
    (NotFound, 404),
    (Conflict, 409),
    (Impossible, 422),
    (NoPermission, 403),
    (Unavailable, 503),
    (TryLater, 503),
    (TimedOut, 504),
    (Broken, 500),
)
_MIN_GZIP_BYTES = 16 << 10


def encode(content: Mapping[str, object]) -> bytes:
    """Encode as ASCII JSON: text that is not valid UTF-8 is kept as escapes."""
    document = {"schema": JSON_SCHEMA, **content}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def json_response(request: Request, content: Mapping[str, object], status: int = 200) -> Response:
    body = encode(content)
    headers = {}
    # Compressing is faster than sending large responses through a tunnel.
    if len(body) > _MIN_GZIP_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 1)
        headers["Content-Encoding"] = "gzip"
    return Response(body, status, headers, "application/json")


def refusal_response(
    status: int,
    code: str,
    message: str,
    hint: str | None = None,
    field: str | None = None,
    at: tuple[int, int] | None = None,
) -> Response:
    error: dict[str, object] = {"code": code, "message": message, "hint": hint}
    if field is not None:
        error["field"] = field
    if at is not None:
        error["at"] = at
    headers = {"Retry-After": "60"} if status == 429 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(encode({"error": error}), status, headers, "application/json")


def error_response(error: Error, field: str | None = None) -> Response:
    """The response for an error; `field` is the form field that it is about.

    An error in a filter has its place in the text.
    """
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    at = error.at if isinstance(error, InvalidExpression) else None
    return refusal_response(status, error.code, error.message, error.hint, field, at)
