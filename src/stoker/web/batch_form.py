"""Many jobs in one text: one per line, or in the format of GPUPeasy.

    # comments, a backslash continues the line
    python train.py --lr 0.1   #stoker --gpus 2
    python train.py --lr 0.01

    baseline ;; baseline.out ;; python train.py --lr 0.1 ;;;
    smaller  ;; smaller.out  ;; python train.py --lr 0.01

In the second format, line breaks and repeated spaces count as one space, the command is split into
words as a shell would (without expansions), and the output file must not exist.
"""

from __future__ import annotations

import os
from typing import Any

from stoker.client.job_options import as_keyword, check_values, check_words
from stoker.client.job_specs import JobSpecs
from stoker.client.queue import Queue
from stoker.core.formats import job_file
from stoker.core.formats.gpupeasy_text import TextJob, error_in, jobs_in, looks_like_gpupeasy
from stoker.core.formats.output_patterns import literal_path
from stoker.core.model import JobSpec
from stoker.errors import UsageError
from stoker.web import job_form
from stoker.web.models import NewBatch

__all__ = ["MAX_JOBS", "jobs_of", "looks_like_gpupeasy"]

MAX_JOBS = 100_000


def jobs_of(queue: Queue, form: NewBatch) -> list[JobSpec]:
    """The jobs of a form; raises UsageError when one of them is invalid or there is none."""
    options = job_form.options_of(form)
    if "\0" in form.text:
        raise UsageError("the text contains a NUL byte")
    if form.format == "gpupeasy" or (form.format == "auto" and looks_like_gpupeasy(form.text)):
        found = _gpupeasy(queue, form.text, options)
    else:
        found = _lines(queue, form.text, options)
    if not found:
        raise UsageError("the text contains no job", "write one command per line")
    return found


def _check_count(count: int) -> None:
    if count > MAX_JOBS:
        raise UsageError(
            f"the text has more than {MAX_JOBS} jobs", "`stoker submit --file` has no such limit"
        )


# -- one job per line -----------------------------------------------------------------------------


def _lines(queue: Queue, text: str, options: dict[str, Any]) -> list[JobSpec]:
    def check_line(own: dict[str, Any]) -> dict[str, Any]:
        if "env_file" in own:
            raise UsageError("`--env-file` cannot be used here")
        if "cwd" in own:
            own["cwd"] = os.path.join(options["cwd"], os.path.expanduser(own["cwd"]))
        for key in ("stdout", "stderr"):
            if key in own:
                job_form.check_relative(own[key])
        return own

    specs = JobSpecs(
        queue.settings,
        queue.devices(),
        check_values(options),
        named=as_keyword,
        check_line=check_line,
    )
    found: list[JobSpec] = []
    for line in job_file.parse(text.split("\n")):
        _check_count(len(found) + 1)
        spec = specs.line(line)
        check_words(spec.argv)
        found.append(spec)
    return found


# -- name ;; outfile ;; command ;;; ---------------------------------------------------------------


def _gpupeasy(queue: Queue, text: str, options: dict[str, Any]) -> list[JobSpec]:
    base = job_form.base_of(queue, options)
    found: list[JobSpec] = []
    errors: list[str] = []
    output_paths: set[str] = set()
    for job in jobs_in(text):
        _check_count(len(found) + 1)
        try:
            found.append(_spec_of(base, job, output_paths))
        except UsageError as error:
            errors.append(error.message)
    if errors:  # submit all jobs or none
        raise UsageError(f"There were {len(errors)} errors. {' '.join(errors[:20])}")
    return found


def _spec_of(base: JobSpec, job: TextJob, output_paths: set[str]) -> JobSpec:
    if job.error is not None:
        raise UsageError(job.error)
    out = job.out
    path = os.path.join(base.context.cwd, os.path.expanduser(out))
    problem = None
    if not _is_allowed_output(path, base.context.cwd):
        problem = f"Output file is neither in the job's folder nor in your home: {out}"
    elif os.path.lexists(path) or path in output_paths:
        problem = f"Output file already exists: {out}"
    elif not os.path.isdir(os.path.dirname(path)):
        problem = f"Could not open output file: {out}"
    if problem is None:
        try:
            spec = job_form.with_argv(base, job.argv)
            output_paths.add(path)
            return spec._replace(name=job.name, stdout=literal_path(path))
        except UsageError as error:
            problem = error.message
    raise UsageError(error_in(job.name, problem))


def _is_allowed_output(path: str, cwd: str) -> bool:
    real = os.path.realpath(path)
    places = (os.path.realpath(cwd), os.path.realpath(os.path.expanduser("~")))
    return any(os.path.commonpath((real, place)) == place for place in places)
