"""Routes for the files that a job left in its output folder: list, preview, content, download.

Files are untrusted. Only images and sounds are sent with their own type, after a check of their
first bytes; everything else is a download. No response may run scripts or be framed, and browsers
must not guess types.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from io import FileIO
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from stoker.client.queue import Queue
from stoker.client.views.job import iso
from stoker.engine.store import job_queries
from stoker.errors import UsageError
from stoker.features.artifacts.artifact_previews import media_preview, preview
from stoker.features.artifacts.artifacts import key_of, list_artifacts, open_artifact
from stoker.features.artifacts.file_kinds import AUDIO, HEAD_BYTES, IMAGE, kind_by_name
from stoker.web.context import web_of
from stoker.web.models import Answer
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS, JobId


class ArtifactFile(BaseModel):
    path: str
    key: str = Field(description="the path for the parameter `file`, percent-encoded")
    size: int
    modified_at: str
    kind: Literal["image", "audio", "table", "text", "events", "checkpoint", "file"] = Field(
        description="by its name"
    )


class ArtifactStep(BaseModel):
    step: int
    key: str


class ArtifactSeries(BaseModel):
    name: str
    steps: list[ArtifactStep]


class FilesAnswer(Answer):
    folder: str = Field(description="$STOKER_OUTPUT_DIR of the job")
    files: list[ArtifactFile]
    series: list[ArtifactSeries] = Field(description="images that differ only in a number")
    total_bytes: int
    is_cut: bool = Field(description="there are more files than are listed")
    skipped: int = Field(description="links and special files, which are not listed")


class PreviewAnswer(Answer):
    kind: Literal["image", "audio", "table", "text", "none"] = Field(description="by its content")
    note: str | None
    text: str | None
    columns: list[str]
    rows: list[list[str]]
    content_type: str | None
    width: int | None
    height: int | None


router = APIRouter(prefix="/api/jobs/{id}/files", responses=ERRORS, tags=["files"])

FileKey = Annotated[
    str, Query(min_length=1, max_length=8000, description="`key` of a file in the list")
]
_BLOCK = 256 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
# Instead of the policy for pages; all other headers, such as nosniff, stay.
_HARMLESS = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox"}


def _content(text: str) -> dict[int | str, dict[str, object]]:
    return {
        200: {"content": {"application/octet-stream": {}}, "description": text},
        206: {"content": {"application/octet-stream": {}}, "description": "a part of it"},
        416: {"content": {"application/octet-stream": {}}, "description": "no such part"},
    }


@router.get("", response_model=FilesAnswer)
async def files(request: Request, id: JobId) -> Response:
    """The files in $STOKER_OUTPUT_DIR of a job, and the series of images among them."""
    found = await web_of(request).threads.read(lambda queue: _listed(queue, id))
    return json_response(request, found)


def _listed(queue: Queue, id: int) -> dict[str, object]:
    row = job_queries.job(queue.db, id)
    found = list_artifacts(queue.settings, row)
    return {
        "folder": found.folder,
        "files": [
            {
                "path": one.path,
                "key": key_of(one.path),
                "size": one.size,
                "modified_at": iso(one.mtime_ns / 1e9),
                "kind": kind_by_name(one.path),
            }
            for one in found.files
        ],
        "series": [
            {
                "name": one.name,
                "steps": [{"step": step, "key": key_of(path)} for step, path in one.steps],
            }
            for one in found.series
        ],
        "total_bytes": sum(one.size for one in found.files),
        "is_cut": found.is_cut,
        "skipped": found.skipped,
    }


@router.get("/preview", response_model=PreviewAnswer)
async def file_preview(request: Request, id: JobId, file: FileKey) -> Response:
    """What to show of a file: text, the first rows of a table, or that it is an image or sound."""

    def read(queue: Queue) -> dict[str, object]:
        descriptor, path = open_artifact(queue.settings, job_queries.job(queue.db, id), file)
        try:
            return preview(descriptor, path)._asdict()
        finally:
            os.close(descriptor)

    return json_response(request, await web_of(request).threads.read(read))


@router.get(
    "/content", response_class=Response, responses=_content("an image or a sound, to be shown")
)
async def file_content(
    request: Request,
    id: JobId,
    file: FileKey,
    range: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """An image or a sound with its own content type; other files can only be downloaded."""

    def check(queue: Queue) -> tuple[int, str, str]:
        descriptor, path = open_artifact(queue.settings, job_queries.job(queue.db, id), file)
        try:
            head = os.pread(descriptor, HEAD_BYTES, 0)
            media = media_preview(head, os.fstat(descriptor).st_size)
            if media is None or media.kind not in (IMAGE, AUDIO) or media.content_type is None:
                why = "it is neither an image nor a sound" if media is None else media.note
                raise UsageError(f"`{path[:200]}` cannot be shown: {why}", "download it instead")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, path, media.content_type

    descriptor, _, kind = await web_of(request).threads.read(check)
    return _stream(request, descriptor, kind, {}, range)


@router.get("/download", response_class=Response, responses=_content("the file"))
async def file_download(
    request: Request,
    id: JobId,
    file: FileKey,
    range: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """A file as a download; `Range` continues one that was interrupted."""

    def open_file(queue: Queue) -> tuple[int, str]:
        return open_artifact(queue.settings, job_queries.job(queue.db, id), file)

    descriptor, path = await web_of(request).threads.read(open_file)
    name = path.rpartition("/")[2]
    headers = {"Content-Disposition": disposition(name)}
    return _stream(request, descriptor, "application/octet-stream", headers, range)


def disposition(name: str) -> str:
    """A header that makes a browser save a file under its name, whatever characters it has."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)[:200] or "file"
    encoded = quote(name.encode("utf-8", "surrogateescape"), safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"


def _stream(
    request: Request, descriptor: int, kind: str, headers: dict[str, str], wanted: str | None
) -> Response:
    """The response for an open file, which is closed at the end.

    Its length is that at the start: what a job appends meanwhile is not sent. If the file shrinks,
    the connection closes early, and the client sees that the download is not complete.
    """
    file = os.fdopen(descriptor, "rb", buffering=0)  # closed also if no block is ever requested
    size = os.fstat(descriptor).st_size
    headers |= {**_HARMLESS, "Accept-Ranges": "bytes"}
    first, end = 0, size
    status = 200
    if wanted is not None:
        part = _part(wanted, size)
        if part is None:
            file.close()
            return Response(b"", 416, {**headers, "Content-Range": f"bytes */{size}"}, kind)
        if part != (0, size):
            status, (first, end) = 206, part
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - first)
    return StreamingResponse(_blocks(request, file, first, end), status, headers, kind)


def _part(wanted: str, size: int) -> tuple[int, int] | None:
    """(start, end) of a range; the whole file unless it is a single range; None if it is empty."""
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return 0, size
    if not found[1]:
        count = min(int(found[2]), size)
        return (size - count, size) if count else None
    first = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if last < first and found[2]:
        return 0, size
    return (first, min(last + 1, size)) if first < size else None


async def _blocks(request: Request, file: FileIO, at: int, end: int) -> AsyncIterator[bytes]:
    threads = web_of(request).threads

    def read(queue: Queue) -> bytes:
        return os.pread(file.fileno(), min(_BLOCK, end - at), at)

    try:
        while at < end:
            block = await threads.read(read)
            if not block:
                return
            yield block
            at += len(block)
    finally:
        file.close()
