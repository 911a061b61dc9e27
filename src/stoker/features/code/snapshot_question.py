"""The setting `snapshot = "ask"`: ask on a terminal whether jobs run in a snapshot."""

from __future__ import annotations

import os
import sys
from typing import Any

from stoker.cli.output import notice
from stoker.settings import Settings


def with_answer(
    settings: Settings, values: dict[str, Any], *, is_dry: bool = False
) -> dict[str, Any]:
    """The job options with the user's answer, if the settings say that they are asked.

    They are asked if tracked files differ from their commit. Without a terminal, no snapshot is
    taken, and a notice says so.
    """
    if settings.snapshot != "ask" or is_dry or values.keys() & {"snapshot", "no_snapshot"}:
        return values
    from stoker.features.code.state_reader import read_state

    state = read_state(values.get("cwd") or os.getcwd())
    if state is None or not state.is_dirty:
        return values
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        notice(
            "no snapshot is taken, because there is no terminal to ask on; "
            "--snapshot and --no-snapshot decide without a question"
        )
        return values
    notice(
        f"the code in {state.root} has changes that are not committed; run in a snapshot of it?"
        " [Y/n] ",
        end="",
    )
    if sys.stdin.readline().strip().lower() in ("", "y", "yes"):
        return {**values, "snapshot": True}
    return values
