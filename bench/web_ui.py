"""How long the web UI takes from opening a screen until it is drawn, in a real browser.

python -m bench.web_ui [--trials N] [--steps N] [--jobs N] [--repeats N] [--unread]

A finished sweep (tests/finished_sweep.py) and a held queue; each repeat restarts the server, and
opens every screen twice. Needs Chromium, and the packages that `make test` installs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hatch_build import find_node
from tests.finished_sweep import make_sweep

_SCRIPT = Path(__file__).with_name("web_ui.mjs")


class Site:
    """A queue with a sweep and waiting jobs, and its web server."""

    def __init__(self, jobs: int, trials: int, steps: int, *, is_read: bool) -> None:
        self.state_dir = Path(tempfile.mkdtemp(prefix="sb-web-")) / "state"
        self.state_dir.mkdir(mode=0o700)
        self.env = {
            **os.environ,
            "STOKER_STATE_DIR": str(self.state_dir),
            "STOKER_DEVICES": "8",
        }
        os.environ |= self.env  # for the process that makes the sweep
        make_sweep(self.state_dir, "big", trials, steps, is_read=is_read)
        if jobs:
            self.stoker("submit", "-q", "--hold", "--file", "-", stdin="true\n" * jobs)

    def stoker(self, *words: str, stdin: str = "") -> str:
        argv = [sys.executable, "-m", "stoker", *words]
        done = subprocess.run(
            argv, env=self.env, check=True, input=stdin, capture_output=True, text=True
        )
        return done.stdout

    def measure(self, node: str, repeats: int) -> dict[str, list[int]]:
        """Start a server, open every screen `repeats` times, and stop the server."""
        found = re.search(r"http://\S+#token=\S+", self.stoker("web"))
        assert found is not None
        try:
            done = subprocess.run(
                [node, str(_SCRIPT), found[0], str(repeats)],
                env=self.env, check=True, capture_output=True, text=True,
            )  # fmt: skip
        finally:
            self.stoker("web", "stop")
        times: dict[str, list[int]] = json.loads(done.stdout)
        return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--unread", action="store_true", help="summaries are not stored yet")
    given = parser.parse_args()
    node = find_node()
    if node is None:
        raise SystemExit("error: node was not found\nhint: `make test` installs it")
    site = Site(given.jobs, given.trials, given.steps, is_read=not given.unread)
    rounds = [site.measure(node[0], 2) for _ in range(given.repeats)]
    site.stoker("daemon", "stop")
    print("| screen | new server, ms (range) | again, ms (range) |")
    print("| --- | ---: | ---: |")
    for screen in rounds[0]:
        cells = []
        for place in (0, 1):
            some = [one[screen][place] for one in rounds]
            cells.append(f"{statistics.median(some):.0f} ({min(some)}-{max(some)})")
        print(f"| {screen} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
