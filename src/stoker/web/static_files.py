"""What is served beside the API: the page's bundle, a plain page where it is missing, /docs.

The bundle is small and read once; a request can only name what was found then, so there is no path
to get wrong.
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

from stoker.core.record import Record

_FOLDER = os.path.join(os.path.dirname(__file__), "static")
_KINDS = {
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
_HASHED = re.compile(r"[.-][0-9A-Za-z_]{8,}\.\w+$")  # app-4XK2B7QD.js never changes

_MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Stoker</title>
<link rel="stylesheet" href="/plain.css"></head><body>
<h1>Stoker</h1>
<p>The server runs, but this copy of Stoker was installed without its page.</p>
<p>In a checkout of the source: <code>cd frontend &amp;&amp; npm ci &amp;&amp; npm run build</code>,
then <code>stoker web stop</code> and <code>stoker web</code>.</p>
<p>The interface for programs works: <a href="/docs">what it can do</a>.</p>
</body></html>
"""
_CSS = """:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, dt { font-family: ui-monospace, monospace; }
dt { margin-top: 1rem; font-weight: 600; }
dd { margin-left: 1rem; }
small { opacity: .75; }
"""


class File(Record):
    data: bytes
    packed: bytes
    kind: str
    mark: str
    is_fixed: bool


class Pages:
    def __init__(self, folder: str = _FOLDER) -> None:
        self._files = dict(_found(folder))
        self._files.setdefault("index.html", _file("index.html", _MISSING.encode()))
        self._files.setdefault("plain.css", _file("plain.css", _CSS.encode()))

    def get(self, request: Request, name: str) -> Response | None:
        file = self._files.get(name)
        if file is None:
            return None
        fixed = "public, max-age=31536000, immutable"
        headers = {
            "Cache-Control": fixed if file.is_fixed else "no-cache",
            "ETag": file.mark,
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("if-none-match") == file.mark:
            return Response(status_code=304, headers=headers)
        data = file.data
        if "gzip" in request.headers.get("accept-encoding", "") and len(file.packed) < len(data):
            data = file.packed
            headers["Content-Encoding"] = "gzip"
        return Response(data, 200, headers, file.kind)


def _found(folder: str) -> list[tuple[str, File]]:
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(place, name)
            if os.path.splitext(name)[1] in _KINDS and os.path.isfile(path):
                with open(path, "rb") as file:
                    files.append((os.path.relpath(path, folder), _file(name, file.read())))
    return files


def _file(name: str, data: bytes) -> File:
    mark = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
    kind = _KINDS[os.path.splitext(name)[1]]
    is_fixed = bool(_HASHED.search(name)) and not name.endswith(".html")
    return File(data, gzip.compress(data, 9, mtime=0), kind, mark, is_fixed)


def docs_page(description: dict[str, Any]) -> str:
    """What the server answers, from its own description. Plain HTML, nothing from elsewhere."""
    parts = []
    for path, methods in sorted(description["paths"].items()):
        for method, operation in methods.items():
            parts.append(f"<dt>{method.upper()} {html.escape(path)}</dt>")
            text = html.escape(operation.get("description") or operation.get("summary") or "")
            parts.append(f"<dd>{text}{_details(description, operation)}</dd>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Stoker: HTTP</title>'
        '<link rel="stylesheet" href="/plain.css"></head><body><h1>Stoker over HTTP</h1>'
        '<p>In full: <a href="/openapi.json">openapi.json</a>. Requests under <code>/api</code>'
        " need the cookie or <code>Authorization: Bearer TOKEN</code>; changes come as JSON.</p>"
        f"<dl>{''.join(parts)}</dl></body></html>\n"
    )


def _details(description: dict[str, Any], operation: dict[str, Any]) -> str:
    names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    lines = [f"query: {', '.join(names)}"] if names else []
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    reference = body.get("schema", {}).get("$ref", "")
    if reference:
        form = description["components"]["schemas"][reference.rpartition("/")[2]]
        lines.append(f"body: {', '.join(form.get('properties', ()))}")
    return "".join(f"<br><small>{html.escape(line)}</small>" for line in lines)
