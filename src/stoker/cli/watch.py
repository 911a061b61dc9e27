"""`--watch`: show it again when something changed, and each second for the clocks."""

from __future__ import annotations

import sys
from collections.abc import Callable

from stoker.api import Queue
from stoker.news import News


def watch(queue: Queue, render: Callable[[], str]) -> int:
    news = News(queue.settings.state_dir)
    on_terminal = sys.stdout.isatty()
    try:
        while True:
            text = render()
            if on_terminal:
                text = "\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\n\x1b[J"
            print(text, flush=True)
            news.wait(1.0)
    except KeyboardInterrupt:
        return 0
