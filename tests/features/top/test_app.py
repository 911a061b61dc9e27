"""`stoker top` with a real queue and a real daemon, driven by keys."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoker.features.top.app import TopApp
from stoker.settings import Settings
from tests.features.top.queue_rows import Screen
from tests.lab import Lab


@asynccontextmanager
async def top(
    lab: Lab,
    *,
    size: tuple[int, int] = (100, 30),
    text: str = "",
    settings: Settings | None = None,
) -> AsyncIterator[Screen]:
    app = TopApp(settings or Settings(str(lab.state_dir), devices="2", cores=64), text=text)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.until(lambda: app.state is not None)
        yield screen


@pytest.fixture
def jobs(lab: Lab) -> Lab:
    """A lab with a running job (1) that prints, and three waiting jobs (2 to 4)."""
    printing = "echo '\x1b[31mred\x1b[0m [b]text[/b]'; echo 'stoker: loss=0.5 step=3'"
    lab.submit("--gpus", "2", "--name", "first", f"{printing}; exec sleep 600")
    for name in ("second", "third", "fourth"):
        lab.submit("--gpus", "2", "--name", name, "true")
    lab.wait_until(lambda: lab.state(1) == "running")
    return lab


def test_keys_change_jobs_and_the_screen_shows_it(jobs: Lab) -> None:
    async def steps() -> None:
        async with top(jobs) as screen:
            await screen.shows("1 running", "3 waiting", "step 3, loss 0.5")
            await screen.press("down", "down", "h")  # the job `third`
            await screen.shows("job 3 held", "press h to release it")
            assert jobs.state(3) == "held"
            await screen.press("h")
            await screen.shows("job 3 released")
            await screen.press("plus", "plus")
            await screen.shows("job 3 has priority 2")
            await screen.press("minus")
            await screen.shows("job 3 has priority 1")
            assert jobs.job(3)["priority"] == 1
            await screen.press("r")
            await screen.shows("error: job 3 has not finished")
            await screen.press("home", "c")
            await screen.shows("cancel job 1 (first, running)?")
            await screen.press("y")
            await screen.shows("cancelled", "by the user", "3 done")
            assert jobs.state(1) == "cancelled"
            assert screen.app.job_id == 1  # the cursor has followed it
            await screen.press("r")
            await screen.shows("job 5 queued: a rerun of job 1")
            assert jobs.job(5)["rerun_of"] == 1

    asyncio.run(steps())


def test_log_of_the_selected_job_grows_without_a_key(jobs: Lab) -> None:
    log = jobs.folder / "out"
    job = jobs.submit("--gpus", "0", "--stdout", str(log), "echo begin; exec sleep 600")

    async def steps() -> None:
        async with top(jobs, text=str(job)) as screen:
            await screen.shows(f"Log of job {job}", "live", "begin")
            with log.open("a") as file:  # as the job would
                file.write("\x1b[2Jmore\n")
            await screen.shows("more")
            assert "\x1b" not in screen.text

    asyncio.run(steps())


def test_filter_takes_the_selectors_of_ls(jobs: Lab) -> None:
    async def steps() -> None:
        async with top(jobs, text="waiting") as screen:
            await screen.shows("Jobs that match waiting: 3 jobs")
            await screen.press("slash")
            await screen.press(*["backspace"] * len("waiting"))
            await screen.type("1 4")
            await screen.press("enter")
            await screen.shows("Jobs that match 1 4: 2 jobs", "fourth", "first")
            await screen.press("slash")
            await screen.type("x")
            await screen.press("escape")  # the filter stays as it was
            await screen.shows("Jobs that match 1 4: 2 jobs")
            await screen.press("escape")
            await screen.shows("3 waiting", "running")
            await screen.press("slash")
            await screen.type("sleep 600")  # a part of a command
            await screen.press("enter")
            await screen.shows("Jobs that match sleep 600: 1 job")
            await screen.press("slash", "enter")
            await screen.press("a")
            await screen.shows("Jobs that match all: 4 jobs")
            await screen.press("slash", *["backspace"] * len("all"))
            await screen.press("9", "minus", "3", "enter")
            await screen.shows("error: the range `9-3` is reversed")

    asyncio.run(steps())


def test_details_show_the_curve_of_a_metric(jobs: Lab) -> None:
    async def steps() -> None:
        async with top(jobs, size=(160, 50)) as screen:
            await screen.shows("loss of job 1", "red [b]text[/b]")
            await screen.press("enter")
            await screen.shows("metrics   loss 0.5", "submitted just now")

    asyncio.run(steps())


def test_missing_daemon_and_removed_queue_are_reported(jobs: Lab) -> None:
    async def steps() -> None:
        async with top(jobs) as screen:
            await screen.shows("1 running")
            jobs.ok("daemon", "stop")
            await screen.shows("no daemon is running; start it with `stoker daemon start`")
            jobs.close()
            shutil.rmtree(jobs.state_dir)
            await screen.shows("there is no queue in")
            await screen.until(lambda: "no daemon" not in screen.text)
            await screen.press("c", "y")
            await screen.shows("error: there is no queue in")
            assert not jobs.state_dir.exists()  # it is not made again

    asyncio.run(steps())
