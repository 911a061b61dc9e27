"""`stoker tag`: add tags to jobs and remove them."""

from __future__ import annotations

from stoker.cli.job_words import select_jobs
from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.client.option_values import parse_tags
from stoker.core.formats.command_line import Parsed, Verb
from stoker.core.formats.shell_words import quote
from stoker.errors import NotFound, UsageError

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
    jobs = [word for word in parsed.words if word[:1] not in "+-"]
    try:
        ids = select_jobs(queue, jobs)
    except NotFound as error:
        # `tag 1 baseline`: the last word is most likely a tag without its plus sign.
        if add or remove or len(jobs) < 2:
            raise
        first = " ".join(map(quote, jobs[:-1]))
        hint = f"to add a tag: stoker tag {first} +{quote(jobs[-1])}"
        raise NotFound(error.message, hint) from None
    if not add and not remove:
        raise UsageError("no tags given", "example: stoker tag 7 +baseline")
    queue.tag(ids, add, remove)
    return print_change(parsed, f"{plural(len(ids), 'job')} tagged", tagged=len(ids))
