"""Routes for notes, stars and tags of jobs and sweeps."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from stoker.client.queue import Queue
from stoker.client.submit.option_values import check_tags
from stoker.engine.store import job_queries
from stoker.errors import UsageError
from stoker.features.notes import store as notes
from stoker.features.notes.client import Targets, full_note_json, set_note, star, tag
from stoker.web import models
from stoker.web.context import web_of
from stoker.web.models import Answer, Name
from stoker.web.option_forms import Form
from stoker.web.responses import json_response
from stoker.web.routes_read import ERRORS, JobId, SweepName
from stoker.web.routes_write import CHANGE_ERRORS, done

Tag = Annotated[str, Field(min_length=1, max_length=200)]


class NoteForm(Form):
    text: str = Field(max_length=100_000, description="the whole note; empty removes it")
    continued: bool = Field(
        False, description="this change continues the last one, as saving while typing does"
    )


class NoteAnswer(Answer):
    note: str
    note_revision: int
    note_changed_at: str | None
    previous_note: str = Field(description="the note before the last edit")


class AnnotateForm(Form):
    jobs: list[models.JobId] = Field(default=[], max_length=10_000)
    sweeps: list[Name] = Field(default=[], max_length=1000)
    star: bool | None = Field(None, description="add the star or remove it; null: unchanged")
    add_tags: list[Tag] = Field(default=[], max_length=100)
    remove_tags: list[Tag] = Field(default=[], max_length=100)


class KnownTag(BaseModel):
    tag: str
    count: int = Field(description="jobs and sweeps that have it, among the newest")


class TagsAnswer(Answer):
    tags: list[KnownTag]


router = APIRouter(prefix="/api", responses={**ERRORS, **CHANGE_ERRORS}, tags=["notes"])
_MOST_TAGS = 200


@router.put("/jobs/{id}/note", response_model=NoteAnswer)
async def write_job_note(request: Request, id: JobId, form: NoteForm) -> Response:
    """Replace the note of a job. The last writer wins."""
    return await _write(request, id, form)


@router.put("/sweeps/{name}/note", response_model=NoteAnswer)
async def write_sweep_note(request: Request, name: SweepName, form: NoteForm) -> Response:
    """Replace the note of a sweep. The last writer wins."""
    return await _write(request, name, form)


async def _write(request: Request, target: int | str, form: NoteForm) -> Response:
    def work(queue: Queue) -> dict[str, object]:
        return full_note_json(set_note(queue, target, form.text, is_continued=form.continued))

    return await done(request, await web_of(request).threads.write(work))


@router.post("/annotate", response_model=models.Changed)
async def annotate(request: Request, form: AnnotateForm) -> Response:
    """Add or remove stars and tags of jobs and sweeps."""

    def work(queue: Queue) -> dict[str, object]:
        if not form.jobs and not form.sweeps:
            raise UsageError("no jobs or sweeps given", '{"jobs": [7], "star": true}')
        add, remove = check_tags(form.add_tags), check_tags(form.remove_tags)
        if form.star is None and not add and not remove:
            raise UsageError("no change given", 'give "star", "add_tags" or "remove_tags"')
        ids = [row.id for row in job_queries.jobs(queue.db, sorted(set(form.jobs)))]
        targets = Targets(ids, form.sweeps)
        if add or remove:
            tag(queue, targets, add, remove)
        if form.star is not None:
            star(queue, targets, form.star)
        return {"changed": len(ids) + len(set(form.sweeps))}

    return await done(request, await web_of(request).threads.write(work))


@router.get("/tags", response_model=TagsAnswer)
async def tags(request: Request) -> Response:
    """The most frequent tags, to complete a tag that a user types."""
    found = await web_of(request).threads.read(lambda queue: notes.known_tags(queue.db, _MOST_TAGS))
    return json_response(request, {"tags": [{"tag": tag, "count": n} for tag, n in found]})
