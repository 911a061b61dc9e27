"""The files of the web UI, a plain page that replaces them where they are missing, and /docs.

All files are read into memory once. A request can only name one of these, so no path from a request
is ever opened.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import os
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stoker.record import Record

_FOLDER = os.path.join(os.path.dirname(__file__), "static")
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
}
_HASHED = re.compile(r"[.-][0-9A-Za-z_]{8,}\.\w+$")  # app-4XK2B7QD.js: content never changes

_PLAIN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Stoker</title>
<link rel="stylesheet" href="/plain.css"></head><body>
<h1>Stoker</h1>
<p>The server is running, but this copy of Stoker was installed without the web UI.</p>
<p>In a checkout of the source: <code>cd frontend &amp;&amp; npm ci &amp;&amp; npm run build</code>,
then <code>stoker web stop</code> and <code>stoker web</code>.</p>
<p>The HTTP API is available: <a href="/docs">documentation</a>.</p>
</body></html>
"""
_CSS = """:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, dt { font-family: ui-monospace, monospace; }
dt { margin-top: 1rem; font-weight: 600; }
dd { margin-left: 1rem; }
small { opacity: .75; }
"""


class _File(Record):
    data: bytes
    gzipped: bytes
    content_type: str
    etag: str
    is_immutable: bool


class StaticFiles:
    def __init__(self, folder: str = _FOLDER) -> None:
        self._files = dict(_load(folder))
        self._files.setdefault("index.html", _file("index.html", _PLAIN_PAGE.encode()))
        self._files.setdefault("plain.css", _file("plain.css", _CSS.encode()))

    def get(self, request: Request, name: str) -> Response | None:
        file = self._files.get(name)
        if file is None:
            return None
        immutable = "public, max-age=31536000, immutable"
        headers = {
            "Cache-Control": immutable if file.is_immutable else "no-cache",
            "ETag": file.etag,
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        data = file.data
        if "gzip" in request.headers.get("accept-encoding", "") and len(file.gzipped) < len(data):
            data = file.gzipped
            headers["Content-Encoding"] = "gzip"
        return Response(data, 200, headers, file.content_type)


def _load(folder: str) -> list[tuple[str, _File]]:
    files = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(root, name)
            if os.path.splitext(name)[1] in _CONTENT_TYPES and os.path.isfile(path):
                with open(path, "rb") as file:
                    files.append((os.path.relpath(path, folder), _file(name, file.read())))
    return files


def _file(name: str, data: bytes) -> _File:
    etag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
    content_type = _CONTENT_TYPES[os.path.splitext(name)[1]]
    is_immutable = bool(_HASHED.search(name)) and not name.endswith(".html")
    return _File(data, gzip.compress(data, 9, mtime=0), content_type, etag, is_immutable)


def docs_page(description: dict[str, Any]) -> str:
    """Documentation of the API as plain HTML, from its OpenAPI description."""
    parts = []
    for path, methods in sorted(description["paths"].items()):
        for method, operation in methods.items():
            parts.append(f"<dt>{method.upper()} {html.escape(path)}</dt>")
            text = html.escape(operation.get("description") or operation.get("summary") or "")
            parts.append(f"<dd>{text}{_details(description, operation)}</dd>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<title>Stoker HTTP API</title><link rel="stylesheet" href="/plain.css"></head>'
        "<body><h1>Stoker HTTP API</h1>"
        '<p>Full schema: <a href="/openapi.json">openapi.json</a>. Requests under <code>/api</code>'
        " need the cookie or <code>Authorization: Bearer TOKEN</code>; request bodies are JSON.</p>"
        f"<dl>{''.join(parts)}</dl></body></html>\n"
    )


def _details(description: dict[str, Any], operation: dict[str, Any]) -> str:
    names = [
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]
    lines = [f"query: {', '.join(names)}"] if names else []
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    reference = body.get("schema", {}).get("$ref", "")
    if reference:
        form = description["components"]["schemas"][reference.rpartition("/")[2]]
        lines.append(f"body: {', '.join(form.get('properties', ()))}")
    return "".join(f"<br><small>{html.escape(line)}</small>" for line in lines)
