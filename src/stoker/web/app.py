"""The ASGI application: routes, error handlers and static files, wrapped in the middleware."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from stoker import __version__
from stoker.errors import Error
from stoker.features import ROUTES, load
from stoker.web import routes_read, routes_tables, routes_write
from stoker.web.context import WebContext
from stoker.web.http.guard_request import Refusal
from stoker.web.http.middleware import Middleware, MiddlewareConfig
from stoker.web.models import Health
from stoker.web.responses import error_response, refusal_response
from stoker.web.static_files import StaticFiles, docs_page

ROUTERS = (
    routes_write.router,
    routes_read.router,
    routes_tables.router,
    *map(load, ROUTES),
)  # all routes but those of static files
_BODY_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)


def _refuse(why: Refusal) -> Response:
    return refusal_response(*why)


_CONFIG = MiddlewareConfig(
    {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"},
    lambda path: _BATCH_BYTES if path == "/api/batch" else _BODY_BYTES,
    _refuse,
    error_response,
)


def make_app(web: WebContext) -> ASGIApp:
    app = FastAPI(
        title="Stoker",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.state.web = web
    for router in ROUTERS:
        app.include_router(router)
    _add_static_files(app, StaticFiles())
    app.add_exception_handler(Error, _stoker_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    return Middleware(app, web.guard, _CONFIG)


def _add_static_files(app: FastAPI, files: StaticFiles) -> None:
    @app.get("/healthz", response_model=Health)
    async def healthz() -> Response:
        return Response(b'{"ok":true}', media_type="application/json")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return files.get(request, "index.html") or _no_such_page()

    @app.api_route("/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        found = None if name.startswith("api/") else files.get(request, name)
        return found or _no_such_page()


def _no_such_page() -> Response:
    return refusal_response(404, "not_found", "there is no such page")


async def _stoker_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, Error)
    return error_response(error)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    message = f"`{path}`: {first['msg'].lower()}"
    field = next((str(part) for part in first["loc"][1:] if part != "options"), None)
    return refusal_response(400, "usage", message, "see /docs for the fields", field)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "usage"}.get(error.status_code, "usage")
    return refusal_response(error.status_code, code, str(error.detail).lower())
