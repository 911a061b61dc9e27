"""`--watch`: redraw after each change, and once a second for the durations.

With `--json`, print the document on one line whenever it differs from the last one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from stoker.cli.open_queue import at_end
from stoker.cli.output import plural, print_json
from stoker.client.live.change_feed import ChangeFeed
from stoker.client.queue import Queue

_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"  # a long line must not occupy two


def watch(
    queue: Queue,
    render: Callable[[int | None], str],
    as_json: Callable[[], dict[str, Any]] | None = None,
) -> int:
    """Show what `render` returns until Ctrl-C. Its argument is the number of lines on the terminal,
    or None if stdout is not a terminal."""
    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    on_terminal = as_json is None and sys.stdout.isatty()
    last: dict[str, Any] | None = None
    try:
        while True:
            if as_json is not None:
                document = as_json()
                if document != last:
                    print_json(**document)
                    sys.stdout.flush()
                last = document
            elif on_terminal:
                room = _room()
                text = clip(render(room), room).replace("\n", "\x1b[K\n")
                print(f"{_WRAP_OFF}\x1b[H{text}\x1b[K\n\x1b[J{_WRAP_ON}", end="", flush=True)
            else:
                print(render(None), flush=True)
            changes.wait(1.0)
    except KeyboardInterrupt:
        return 0


def _room() -> int:
    """Lines of the terminal, without the last one, where the cursor stays."""
    try:
        return max(2, os.get_terminal_size(sys.stdout.fileno()).lines - 1)
    except OSError:
        return 23


def clip(text: str, room: int) -> str:
    """The first lines that fit, and how many do not, so that nothing scrolls off the top.

    >>> clip("head\\na\\nb\\nc", 3), clip("a\\nb", 2)
    ('head\\na\\n2 more lines', 'a\\nb')
    """
    lines = text.split("\n")
    if len(lines) <= room:
        return text
    return "\n".join((*lines[: room - 1], f"{plural(len(lines) - room + 1, 'more line')}"))
