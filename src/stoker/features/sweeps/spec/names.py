"""Names of sweeps: two generated words such as `brave-otter`, or a name given by the user."""

from __future__ import annotations

import random
import re

from stoker.errors import UsageError

_FIRST = """
    able amber ample azure bold brave brief bright brisk calm clear clever cosy crisp deep early
    eager easy fair fast fine firm fond fresh gentle glad golden grand green happy hardy honest
    keen kind large light lively loyal lucky mellow merry mild neat noble plain polite proud quick
    quiet rapid ready rosy round sharp silent silver smart smooth snowy solid sunny swift vivid warm
"""
_SECOND = """
    acorn aspen badger beacon beech birch bison brook cedar comet coral crane creek dune eagle
    elm ember falcon fern finch fjord forest fox garnet glacier goose harbor hawk hazel heron
    island ivy juniper lagoon lark linden lotus lynx maple marten meadow meteor moose moss oak
    orchid otter owl panda pebble pine puffin raven reef river robin salmon sparrow spruce
    summit swan tulip walnut willow
"""
FIRST = tuple(_FIRST.split())
SECOND = tuple(_SECOND.split())
_RESERVED = ("ls", "show", "extend", "stop", "resume", "rerun", "rm")  # subcommands of sweep
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def suggest(rng: random.Random) -> str:
    """Return a random name such as `brave-otter`."""
    return f"{rng.choice(FIRST)}-{rng.choice(SECOND)}"


def check(name: str) -> str:
    """Return `name`; raises UsageError if it looks like a number, an option or a subcommand."""
    hint = "use letters, digits, dots, dashes and underscores, such as lr-search"
    if not _NAME.fullmatch(name):
        raise UsageError(f"`{name}` cannot be the name of a sweep", hint)
    if name.replace(".", "").replace("-", "").isdigit():
        raise UsageError(f"`{name}` is a number, not the name of a sweep", hint)
    if name.lower() in _RESERVED:
        raise UsageError(f"`{name}` is a subcommand of `stoker sweep`", "choose another name")
    return name
