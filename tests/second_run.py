"""Repeats the tests that failed in a parallel run, one after the other on a quiet machine.

    pytest -n 4 || python -m tests.second_run

Four processes share two cores with real daemons, clusters and browsers, and now and then one
misses a time limit. A few such failures are repeated, and listed as unstable if they pass: each of
them is a defect of a test, or of Stoker, to be fixed. The run has failed in any case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

MOST = 5
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    try:
        failed = sorted(json.loads(_FAILED.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        failed = []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed and are not repeated; the limit is {MOST}")
        return 1
    status = pytest.main(["-n0", "--last-failed", "--last-failed-no-failures", "none"])
    word = "unstable: failed in the parallel run, passed alone" if not status else "failed twice"
    print(f"{word}:", *failed, sep="\n  ")
    return 1


if __name__ == "__main__":
    sys.exit(main())
