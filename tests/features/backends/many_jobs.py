"""Run many no-op jobs on a Slurm test cluster, and check that each ran exactly once.

    python -m tests.features.backends.many_jobs 100000

Prints how long it took, how many allocations were requested and how many listings the controller
answered. Not part of the test suite.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.engines.slurm_cluster import SlurmCluster
from tests.features.backends.slurm_lab import BACKEND, SlurmLab
from tests.lab import wait_until

_ACTIVE = "SELECT count(*) FROM jobs WHERE state NOT IN ('done', 'failed', 'cancelled', 'lost')"


def main(count: int) -> int:
    with tempfile.TemporaryDirectory(prefix="many-") as folder, SlurmCluster() as cluster:
        lab = SlurmLab(Path(folder), cluster)
        try:
            return _run(lab, count)
        finally:
            lab.close()


def _run(lab: SlurmLab, count: int) -> int:
    # Appends of one short line are atomic.
    path = lab.folder / "ran"
    lines = f'echo "$STOKER_JOB_ID $STOKER_ATTEMPT" >> {path}\n' * count
    lab.cluster.wait_for_state(lab.cluster.submit("true"), "COMPLETED")  # the first is slow
    before = lab.cluster.listings()
    began = time.monotonic()
    lab.ok("submit", "-q", "--on", BACKEND, "--file", "-", input=lines)
    submitted = time.monotonic()
    wait_until(lambda: _left(lab, began) == 0, "the end of all jobs", 3600)
    ended = time.monotonic()
    listings = lab.cluster.listings() - before
    ran = Counter(path.read_text().splitlines())
    states = dict(lab.rows("SELECT state, count(*) FROM jobs GROUP BY state"))
    ids = {row[0] for row in lab.rows("SELECT id FROM jobs")}
    missing = ids - {int(line.split()[0]) for line in ran}
    doubled = {line: times for line, times in ran.items() if times > 1}
    attempts = lab.rows("SELECT count(*) FROM attempts")[0][0]
    print(f"jobs            {count}: {states}")
    print(f"submit          {submitted - began:.1f} s")
    print(f"submit to end   {ended - began:.1f} s, {count / (ended - began):.0f} jobs/s")
    print(f"lines           {sum(ran.values())}, missing {len(missing)}, doubled {len(doubled)}")
    print(f"attempts        {attempts}")
    print(f"allocations     {len(lab.allocations())}")
    print(f"listings        {listings}: one per {(ended - began) / max(listings, 1):.1f} s")
    is_ok = states == {"done": count} and not missing and not doubled and attempts == count
    print("ok" if is_ok else "FAILED")
    return 0 if is_ok else 1


def _left(lab: SlurmLab, began: float) -> int:
    left = int(lab.rows(_ACTIVE)[0][0])
    print(f"\r{time.monotonic() - began:6.0f} s  {left} jobs left ", end="", file=sys.stderr)
    time.sleep(1)
    return left


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
