"""Fields of requests and responses about notes, stars and tags."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from stoker.web.models import Answer, JobId, Name
from stoker.web.option_forms import Form

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
    jobs: list[JobId] = Field(default=[], max_length=10_000)
    sweeps: list[Name] = Field(default=[], max_length=1000)
    star: bool | None = Field(None, description="add the star or remove it; null: unchanged")
    add_tags: list[Tag] = Field(default=[], max_length=100)
    remove_tags: list[Tag] = Field(default=[], max_length=100)


class KnownTag(BaseModel):
    tag: str
    count: int = Field(description="jobs and sweeps that have it, among the newest")


class TagsAnswer(Answer):
    tags: list[KnownTag]
