"""The route with suggestions for the working directory of a job."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.states import STATES
from stoker.web.context import web_of
from stoker.web.models import Answer
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS

router = APIRouter(prefix="/api", responses=ERRORS, tags=["read"])


class FoldersAnswer(Answer):
    folders: list[str] = Field(description="of the newest jobs, newest first, without duplicates")


@router.get("/folders", response_model=FoldersAnswer)
async def folders(request: Request) -> Response:
    """The working directories of the newest jobs."""
    found = await web_of(request).threads.read(lambda queue: recent_folders(queue.db))
    return json_response(request, {"folders": found})


_JOBS = 300  # that are examined
_FOLDERS = 15


def recent_folders(db: Database) -> list[str]:
    """Return the working directories of the newest jobs without duplicates, newest first.

    A job that runs in a snapshot has the folder from which it was submitted.
    """
    rows = job_queries.jobs_in_states(db, STATES, _JOBS, newest_first=True)
    return list(dict.fromkeys(row.cwd for row in rows))[:_FOLDERS]
