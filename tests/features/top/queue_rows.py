"""A queue with running, waiting and finished jobs at fixed times, without processes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from stoker.boot import boot_id
from stoker.client.live.live_state import LiveState, LiveStateReader
from stoker.client.queue import Queue
from stoker.engine.model import Context, JobSpec, Outcome, Request
from stoker.engine.outcome.retry import judge
from stoker.engine.store import attempts, ready_jobs
from stoker.engine.store.submit import Submission
from stoker.features.results.reports.metric_cache import Reports
from stoker.features.sweeps.sweeps_view import SweepCache
from stoker.features.top.app import TopApp
from stoker.features.top.glyphs import UNICODE, Glyphs
from stoker.settings import Settings
from tests.lab import HANG_SECONDS

NOW = 1_700_000_000.0
_CONTEXT = Context("/home/ada/project", (), 0o022, "/bin/sh")
SIZES = ((80, 24), (200, 50))


def spec(number: int, **fields: Any) -> JobSpec:
    words = ("python", "train.py", "--lr", f"0.{number:03}")
    return JobSpec(words, _CONTEXT, request=Request(1), shell=False, **fields)


def make_queue(folder: Path, count: int) -> Queue:
    """A queue of `count` jobs for two simulated GPUs: with 30 jobs, 2 run and 5 have finished."""
    settings = Settings(str(folder / "state"), devices="2", cores=8, memory=64 << 30)
    queue = Queue(settings)
    names = {1: "prepare", 3: "baseline", 6: "resnet50"}
    specs = [spec(i, name=names.get(i)) for i in range(1, count + 1)]
    if specs:
        Submission(queue.db).add(specs, NOW - 3600)
        Player(queue).play()
    return queue


class Player:
    """Claims, starts and finishes jobs, like a daemon at fixed times."""

    def __init__(self, queue: Queue) -> None:
        self.db = queue.db
        self._attempt = 0

    def play(self) -> None:
        # The state of each of the first jobs, and how many seconds ago it ended.
        ends = ((0, 1800.0), (0, 1500.0), (256, 1200.0), (9, 600.0), (0, 30.0))
        for status, ago in ends:
            self.finish(self.start(ago + 400.0), status, ago)
        self.start(754.0, (0,))
        self.start(20.0, (1,))
        with self.db.transaction():
            self.db.execute("UPDATE jobs SET state = 'held' WHERE id = 12")
            self.db.execute("UPDATE jobs SET ready = 0 WHERE id = 12")

    def start(self, ago: float, devices: tuple[int, ...] = (0,)) -> int:
        group = ready_jobs.load_group(self.db, ready_jobs.ready_groups(self.db)[0])
        with self.db.transaction():
            (job,) = ready_jobs.first(self.db, group, 1, 0.0)
            self._attempt += 1
            claim = attempts.Claim(self._attempt, job.id, 1, devices, None, 1.0, boot_id())
            assert attempts.claim(self.db, claim)
            attempts.record_start(self.db, self._attempt, 7, NOW - ago, 1.0)
        return self._attempt

    def finish(self, attempt: int, status: int, ago: float) -> None:
        with self.db.transaction():
            facts = attempts.load_job_to_judge(self.db, attempt)
            assert facts is not None
            outcome = Outcome(attempt, status, NOW - ago, None, 0.1, 0.2, 3)
            verdict = judge(
                outcome, attempts=facts.attempts, retries=facts.settings.retries, restartable=False,
                stop_requested=False,
            )  # fmt: skip
            attempts.finish(self.db, facts, outcome, verdict, NOW - ago, 0.5)


def read_state(queue: Queue) -> LiveState:
    """The live state, as if a daemon was running."""
    state = LiveStateReader(SweepCache(Reports(queue.settings.state_dir))).read(queue, None)
    waits = {
        id: wait._replace(
            why="; ".join(one for one in wait.why.split("; ") if "daemon" not in one),
            short=" · ".join(one for one in wait.short.split(" · ") if "daemon" not in one),
        )
        for id, wait in state.waits.items()
    }
    return state._replace(waits=waits, at=NOW)


class StillApp(TopApp):
    """Shows a given state at a fixed time, and only notes the changes that keys ask for."""

    def __init__(self, queue: Queue, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(queue.settings, glyphs=glyphs)
        self.host = "box"
        self.changes: list[tuple[str, int]] = []

    def watch_queue(self) -> None:
        pass

    def request_all(self) -> None:
        pass

    def now(self) -> float:
        return NOW

    async def change(self, action: str, id: int) -> None:
        self.changes.append((action, id))


class Screen:
    """The running program and what it shows."""

    def __init__(self, app: TopApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        """The screen as text. Every line has exactly the width of the terminal."""
        lines = self.app.screen._compositor.render_strips()
        assert [line.cell_length for line in lines] == [self.app.size.width] * self.app.size.height
        return "\n".join(line.text.rstrip() for line in lines)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*("space" if char == " " else char for char in text))

    async def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + HANG_SECONDS
        while not condition():
            assert time.monotonic() < end, self.text
            await self.pilot.pause(0.02)

    async def shows(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def show(self, state: LiveState, problems: Sequence[str] = ()) -> None:
        self.app.take_state(state, list(problems))
        await self.pilot.pause()


@asynccontextmanager
async def still(
    queue: Queue, size: tuple[int, int] = (80, 24), glyphs: Glyphs = UNICODE
) -> AsyncIterator[Screen]:
    app = StillApp(queue, glyphs)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.show(read_state(queue))
        await pilot.pause()
        yield screen


def gpu(number: int, **fields: Any) -> dict[str, Any]:
    """A real GPU as in `stoker gpus --json`."""
    one: dict[str, Any] = {
        "index": number, "uuid": f"GPU-{number}", "visible": str(number),
        "model": "NVIDIA H200", "state": "free", "memory_bytes": 141 << 30,
        "memory_used_bytes": 0, "utilisation_percent": 0, "jobs": [], "other_processes": [],
        "holders": [],
    }  # fmt: skip
    return {**one, **fields}
