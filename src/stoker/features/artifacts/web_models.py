"""The fields of responses about the files of a job."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from stoker.web.models import Answer


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
