"""python -m tests.simulation SEED [JOBS [SHARE OF PREEMPTIBLE ONES]]: print the history of a seed.

python -m tests.simulation FIRST-LAST [JOBS]: search for seeds that fail.
"""

from __future__ import annotations

import sys
import tempfile
import time

from tests.simulation.simulator import Simulator, run
from tests.simulation.world import Violation


def main(args: list[str]) -> int:
    if not args:
        print(__doc__)
        return 2
    first, _, last = args[0].partition("-")
    jobs = int(args[1]) if len(args) > 1 else 80
    preemptible = float(args[2]) if len(args) > 2 else 0.0
    if last:
        return _search(int(first), int(last), jobs, preemptible)
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(int(first), folder, jobs, preemptible)
        try:
            result = simulator.run()
        except Violation as violation:
            print("\n".join(simulator.world.trace))
            print(f"VIOLATION at step {simulator.steps}: {violation}")
            return 1
        print("\n".join(simulator.world.trace))
        print(f"{result.jobs} jobs, {result.steps} steps, {dict(result.counts)}")
    return 0


def _search(first: int, last: int, jobs: int, preemptible: float) -> int:
    started, failed, steps = time.monotonic(), 0, 0
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                steps += run(seed, folder, jobs, preemptible).steps
            except Violation as violation:
                failed += 1
                print(str(violation).partition("\n")[0])
    seconds = time.monotonic() - started
    print(f"{last - first + 1} seeds, {failed} failed, {steps} steps, {seconds:.1f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
