"""`stoker tag`: add tags to jobs and remove them."""

from __future__ import annotations

from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.client.option_values import parse_tags
from stoker.core.formats.command_line import Parsed, Verb
from stoker.errors import UsageError

VERB = Verb(
    "tag",
    "tag JOB... +TAG... -TAG...",
    "Add tags to jobs (+TAG) and remove them (-TAG).",
    (),
    (("stoker tag 3-9 +baseline", ""), ("stoker tag 7 -baseline", "")),
    words="jobs",
    minus_words=True,
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    add = [tag for word in parsed.words if word[:1] == "+" for tag in parse_tags(word[1:])]
    remove = [tag for word in parsed.words if word[:1] == "-" for tag in parse_tags(word[1:])]
    ids = select_jobs(queue, [word for word in parsed.words if word[:1] not in "+-"])
    if not add and not remove:
        raise UsageError("no tags given", "example: stoker tag 7 +baseline")
    queue.tag(ids, add, remove)
    return print_change(parsed, f"{plural(len(ids), 'job')} tagged", tagged=len(ids))
