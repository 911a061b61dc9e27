"""Help in the web UI: suggested commands are commands of Stoker, and all keys are listed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from stoker.cli.main import load
from stoker.text.command_line import Verb, parse

FRONTEND = Path(__file__).resolve().parents[2] / "frontend" / "src"
SOURCE = FRONTEND / "parts" / "first-use.tsx"


def commands() -> list[list[str]]:
    texts = re.findall(
        r"""\[\s*('(?:[^'\\]|\\.)*'|"[^"]*"),\s*'[^']*',?\s*\]""", SOURCE.read_text()
    )
    return [shlex.split(text[1:-1]) for text in texts]


def test_suggested_commands_are_understood() -> None:
    found = commands()
    assert len(found) >= 10
    for words in found:
        while "=" in words[0]:  # a variable before the command
            words = words[1:]
        assert words[0] == "stoker"
        verb: Verb = load(words[1]).VERB
        parse(verb, words[2:])


def test_dialog_of_keys_lists_every_key_of_lists_jobs_and_places() -> None:
    listed = re.findall(r"^ +\['([^']+)', '", (FRONTEND / "parts" / "help.tsx").read_text(), re.M)
    shown = {one.removeprefix("⇧") for text in listed for one in text.split()}
    used = set(re.findall(r"event\.key === '(\w)'", (FRONTEND / "parts/job-table.tsx").read_text()))
    for file in FRONTEND.glob("screens/*.tsx"):
        for block in re.findall(r"useKeys\(\{(.*?)^  \}\)", file.read_text(), re.S | re.M):
            used |= set(re.findall(r"^    '?([a-zA-Z/])'?: ", block, re.M))
    places = re.search(r"PLACES.*?\{(.*?)\}", (FRONTEND / "keys.ts").read_text(), re.S)
    assert places is not None
    used |= set(re.findall(r"^  (\w): '#/", places[1], re.M))
    assert {"c", "w", "T", "o"} <= used
    assert used <= shown
