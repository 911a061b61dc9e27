"""The job options as fields of forms, made from the table of job options.

The types only reject wrong JSON; the values are checked as for all interfaces.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from stoker.client.submit import option_values as kinds
from stoker.client.submit.job_options import DEDUPE, JOB_OPTIONS, JobOption

Whole = Annotated[int, Field(ge=-(10**9), le=10**9)]
Count = Annotated[int, Field(ge=0, le=10**9)]

_NOT_OFFERED = ("env_file",)  # a file in the submitter's folder, which a browser does not have
_TYPES: dict[kinds.Kind, Any] = {
    kinds.WHOLE: Whole,
    kinds.COUNT: Count,
    kinds.GPU_COUNT: Count,
    kinds.NODE_COUNT: Count,
    kinds.CORE_COUNT: Count,
    kinds.NEEDS: list[str] | str | dict[str, int],
    kinds.ENGINE_OPTIONS: list[str] | str,
    kinds.SWITCH: bool,
    kinds.NAME: str,
    kinds.JOB_NAME: str,
    kinds.TEXTS: list[str] | str,
    kinds.PATH: str,
    kinds.SIZE: str | int,
    kinds.MEMORY: str | int,
    kinds.MINUTES: str | float,
    kinds.SECONDS: str | float,
    kinds.BEGIN: str | float,
    kinds.SIGNAL: str,
    kinds.WAY: str,
    kinds.SHARE: str,
    kinds.GPU_NAMES: list[str | int] | str,
    kinds.TAGS: list[str] | str,
    kinds.ENV: dict[str, str | int | float | bool],
    kinds.MODULES: bool | list[str] | str,
    kinds.ARRAY: str | list[int],
    kinds.NOTIFY: list[str] | str | bool,
    kinds.AFTER: list[str | int] | str | int,
}
_DESCRIPTIONS = {  # where a form differs from the command line
    "cwd": "working directory; default: your home folder",
    "env": "environment variables by name",
    "time_limit": "seconds, or text such as 90m or 2h; 0: no limit",
    "grace": "seconds between SIGTERM and SIGKILL, or text such as 2m",
    "after": "jobs to wait for: ids, 7:any, names, tags, ranges, or @ for the last job",
    "array": "queue one job for each index: 0-99, 1,3,5-7, 0-15:4; 0-99%8 runs at most 8 at once",
    "begin": "earliest start: +2h, 2026-12-24T18:00, or seconds since the epoch",
    "on": "backend on which the job runs; `local` is this host",
    "nodes": "number of nodes of the backend, with `gpus` GPUs on each",
    "option": "options for the engine of the backend, each as K=V, e.g. partition=gpu",
    "tags": "tags to select jobs by",
    "warm": "true or auto: fork the Python program from a process that has imported what earlier"
    " runs imported; or the modules to import",
    "notify": "when to send notifications, and where: failure, end:phone; none or false: never",
    "stdout": "relative to cwd",
    "stderr": "relative to cwd",
    "dedupe": "a key; a job that has it already is not submitted again",
}


class Form(BaseModel):
    """The body of a request; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _fields(options: Iterable[JobOption]) -> dict[str, Any]:
    return {
        option.key: (
            _TYPES[option.kind] | None,
            Field(None, description=_DESCRIPTIONS.get(option.key, option.help)),
        )
        for option in options
        if option.key not in _NOT_OFFERED
    }


if TYPE_CHECKING:

    class JobOptions(Form): ...

    class SingleOptions(JobOptions): ...

else:
    JobOptions = create_model(
        "JobOptions",
        __base__=Form,
        __doc__="The options of a job, as in the Python API.",
        __module__=__name__,
        **_fields(option for option in JOB_OPTIONS if not option.is_single),
    )
    SingleOptions = create_model(
        "SingleOptions",
        __base__=JobOptions,
        __doc__="Also the options that trials of a sweep cannot have.",
        __module__=__name__,
        **_fields(option for option in (*JOB_OPTIONS, DEDUPE) if option.is_single),
    )
