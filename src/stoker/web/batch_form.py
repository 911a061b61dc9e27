"""Many jobs in one text, one per line.

# comments, a backslash continues the line
python train.py --lr 0.1   #stoker --gpus 2
python train.py --lr 0.01
"""

from __future__ import annotations

import os
from typing import Any

from stoker.client.queue import Queue
from stoker.client.submit.job_options import as_keyword, check_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.parsed_options import check_words
from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.text.commands import job_file
from stoker.web import job_form
from stoker.web.models import NewBatch

_MAX_JOBS = 100_000


def jobs_of(queue: Queue, form: NewBatch) -> list[JobSpec]:
    """The jobs of a form; raises UsageError when one of them is invalid or there is none."""
    options = job_form.options_of(form)
    if "\0" in form.text:
        raise UsageError("the text contains a NUL byte")

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
    for line in job_file.parse(form.text.split("\n")):
        if len(found) == _MAX_JOBS:
            raise UsageError(
                f"the text has more than {_MAX_JOBS} jobs",
                "`stoker submit --file` has no such limit",
            )
        spec = specs.line(line)
        check_words(spec.argv)
        found.append(spec)
    if not found:
        raise UsageError("the text contains no job", "write one command per line")
    return found
