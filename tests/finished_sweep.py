"""A finished sweep with curves, written to a queue as if its trials had run; no daemon is needed.

    make_sweep(lab.state_dir, "big", trials=2000, steps=1000)

or, from the root of the repository, for a browser or a benchmark:

    python -m tests.finished_sweep STATE_DIR --name big --trials 2000 --steps 1000

Its parameters are `lr` (the best is in the middle), `dataset` (a, b) and `seed`; its metrics are
`val_loss` (that of the sweep) and `acc`. The same arguments give the same numbers. With `--unread`,
the summaries of their reports are not stored, as if no report reader had run.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
from pathlib import Path

from stoker.engine.store.database import Database, open_database
from stoker.engine.store.machines import Machine, machine_id
from stoker.engine.supervisor.logs import job_folder, metrics_path
from stoker.features.results.reports.reader import store_reports
from stoker.features.results.reports.reports import JobFiles
from stoker.features.sweeps import store as sweeps

_START = 1_790_000_000.0
_SECONDS_PER_STEP = 0.5


def make_sweep(
    state_dir: str | Path,
    name: str = "big",
    trials: int = 2000,
    steps: int = 1000,
    seeds: int = 10,
    *,
    is_read: bool = True,
) -> None:
    """Add a sweep whose trials are done. Every trial reports `steps` times."""
    if trials % (2 * seeds):
        raise ValueError(f"{trials} trials are not a multiple of 2 datasets x {seeds} seeds")
    rates = trials // (2 * seeds)
    _submit(str(state_dir), name, rates, seeds)
    db = open_database(str(state_dir))
    try:
        sweep = sweeps.get(db, name)
        with db.transaction():
            rows = sweeps.trials(db, sweep.id)
            for place, row in enumerate(rows):
                assert row.job is not None
                _finish(db, row.job, _START + place, steps * _SECONDS_PER_STEP)
        for place, row in enumerate(rows):
            assert row.job is not None
            quality = abs(place // (2 * seeds) - rates / 2) / rates
            path = metrics_path(job_folder(str(state_dir), row.job))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            lines = _lines(random.Random(place), steps, quality, _START + place)
            Path(path).write_text("".join(lines), encoding="ascii")
        if is_read:
            ids = [row.job for row in rows if row.job is not None]
            store_reports(db, JobFiles(str(state_dir)), ids)
    finally:
        db.close()


def _submit(state_dir: str, name: str, rates: int, seeds: int) -> None:
    values = ",".join(f"{10 ** (-5 + 4 * n / max(1, rates - 1)):.3g}" for n in range(rates))
    numbers = ",".join(map(str, range(seeds)))
    command = "python train.py --lr {lr} --data {dataset} --seed {seed}"
    subprocess.run(
        [sys.executable, "-m", "stoker", "sweep", "-q", "-y", "--hold", "--name", name, "--metric",
         "val_loss", command, f"lr={values}", "dataset=a,b", f"seed={numbers}"],
        check=True, cwd=state_dir, stdout=subprocess.DEVNULL,
        env={**os.environ, "STOKER_STATE_DIR": state_dir},
    )  # fmt: skip


def _finish(db: Database, job: int, start: float, seconds: float) -> None:
    machine = machine_id(db, Machine("box", "0.1.0", "3.11.9", "550.54", "NVIDIA H200"))
    attempt = db.execute(
        "INSERT INTO attempts (job, number, devices, claimed_at, started_at, ended_at, boot,"
        " status, machine) VALUES (?, 1, '0', ?, ?, ?, '', 0, ?)",
        (job, start, start, start + seconds, machine),
    ).lastrowid
    db.execute(
        "UPDATE jobs SET state = 'done', ready = 0, attempts = 1, attempt = ?, ended_at = ?"
        " WHERE id = ?",
        (attempt, start + seconds, job),
    )


def _lines(rng: random.Random, steps: int, quality: float, start: float) -> list[str]:
    """The lines that `stoker.log` would write."""
    floor, noise = 0.2 + quality + 0.1 * rng.random(), rng.random
    scale = steps / 5
    lines = []
    for step in range(steps):
        loss = floor + 2 * math.exp(-step / scale) + 0.05 * noise()
        lines.append(
            f'{{"at": {start + (step + 1) * _SECONDS_PER_STEP:.2f}, "attempt": 1, "step": {step},'
            f' "val_loss": {loss:.6f}, "acc": {1 / (1 + loss):.6f}}}\n'
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("state_dir")
    parser.add_argument("--name", default="big")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--unread", action="store_true")
    given = parser.parse_args()
    os.makedirs(given.state_dir, 0o700, exist_ok=True)
    make_sweep(
        given.state_dir, given.name, given.trials, given.steps, given.seeds,
        is_read=not given.unread,
    )  # fmt: skip


if __name__ == "__main__":
    main()
