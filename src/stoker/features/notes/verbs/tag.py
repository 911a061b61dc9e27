"""`stoker tag`: add tags to jobs and sweeps and remove them."""

from __future__ import annotations

from stoker.cli.open_queue import open_queue
from stoker.cli.output import print_change
from stoker.client.submit.option_values import parse_tags
from stoker.errors import NotFound, UsageError
from stoker.features.notes.client import tag
from stoker.features.notes.targets import SWEEP, chosen, counted
from stoker.text.command_line import Parsed, Verb
from stoker.text.commands.shell_words import quote

VERB = Verb(
    "tag",
    "tag JOB|SWEEP... +TAG... -TAG...",
    "Add tags to jobs and sweeps (+TAG) and remove them (-TAG).",
    (SWEEP,),
    (
        ("stoker tag 3-9 +baseline", ""),
        ("stoker tag 7 -baseline", ""),
        ("stoker tag brave-otter +paper", "the sweep, not its jobs"),
        ("stoker tag sweep:brave-otter +paper", "all jobs of the sweep"),
        ("stoker ls --tag baseline", ""),
    ),
    words="jobs",
    minus_words=True,
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    add = [one for word in parsed.words if word[:1] == "+" for one in parse_tags(word[1:])]
    remove = [one for word in parsed.words if word[:1] == "-" for one in parse_tags(word[1:])]
    words = [word for word in parsed.words if word[:1] not in "+-"]
    try:
        targets = chosen(queue, parsed, words)
    except NotFound as error:
        # `tag 1 baseline`: the last word is most likely a tag without its plus sign.
        if add or remove or len(words) < 2:
            raise
        first = " ".join(map(quote, words[:-1]))
        hint = f"to add a tag: stoker tag {first} +{quote(words[-1])}"
        raise NotFound(error.message, hint) from None
    if not add and not remove:
        raise UsageError("no tags given", "example: stoker tag 7 +baseline")
    changed = tag(queue, targets, add, remove)
    text = f"{counted(targets)} tagged"
    if not add:
        tags = "tag" if len(remove) == 1 else "tags"
        text = f"{tags} removed from {counted(targets)}"
        if not changed:
            text = f"unchanged: {counted(targets)} had no such {tags}"
    return print_change(parsed, text, tagged=len(targets))
