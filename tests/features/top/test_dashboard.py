"""Keys, cursor, filter and log of the dashboard, with fixed states and without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Input

from stoker.client.queue import Queue
from stoker.features.top.glyphs import UNICODE
from stoker.features.top.log_pane import LogPane
from stoker.features.top.row_table import Column, RowTable
from tests.features.top.queue_rows import Screen, StillApp, make_queue, read_state, still


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    queue = make_queue(tmp_path, 30)
    yield queue
    queue.close()


def drive(queue: Queue, steps: Callable[[Screen], Awaitable[None]]) -> None:
    """Run steps on the screen with 30 jobs."""

    async def run() -> None:
        async with still(queue) as screen:
            await steps(screen)

    asyncio.run(run())


def changes(screen: Screen) -> list[tuple[str, int]]:
    assert isinstance(screen.app, StillApp)
    return screen.app.changes


def test_cursor_starts_on_the_first_running_job(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        app = screen.app
        assert app.job_id == 6
        await screen.press("down", "j")
        assert app.job_id == 8  # the first waiting one
        await screen.press("up", "k", "up")
        assert app.job_id == 6
        await screen.press("end")
        assert app.job_id == 1
        await screen.press("home")
        assert app.job_id == 6
        await screen.press("pagedown")
        assert app.job_id not in (6, 1)

    drive(queue, steps)


def test_cursor_follows_its_job_into_another_state(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        state = read_state(queue)
        await screen.press("down")
        assert screen.app.job_id == 7
        await screen.show(state._replace(running=(6,), recent=(7, *state.recent)))
        assert screen.app.job_id == 7
        await screen.show(state._replace(running=(6,)))  # it was removed
        assert screen.app.job_id is not None

    drive(queue, steps)


def test_refresh_keeps_the_visible_part_of_the_list(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("end", "up", "up")
        before = screen.text
        await screen.show(read_state(queue))
        assert screen.text == before

    drive(queue, steps)


def test_cancel_asks_and_any_key_but_y_means_no(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("c")
        assert "cancel job 6 (resnet50, running)?" in screen.text
        await screen.press("n")
        assert "nothing was changed" in screen.text
        await screen.press("c", "q")  # q answers the question, too
        assert screen.app.is_running and not changes(screen)
        await screen.press("c", "y")
        assert changes(screen) == [("cancel", 6)]

    drive(queue, steps)


def test_cancel_of_a_finished_job_is_refused_without_a_question(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("end", "c")
        assert "job 1 has already finished: done" in screen.text
        assert len(screen.app.screen_stack) == 1

    drive(queue, steps)


def test_keys_change_the_selected_job_in_any_state(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        keys = {"h": "hold", "r": "rerun", "plus": "raise", "minus": "lower"}
        for job in (6, 8, 12, 1):  # running, waiting, held, finished
            screen.app.job_table.select(job)
            for key, action in keys.items():
                await screen.press(key)
                assert changes(screen).pop() == (action, job)

    drive(queue, steps)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_key_ends_the_program(queue: Queue, key: str) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press(key)
        assert screen.app.return_code == 0

    drive(queue, steps)


def test_tabs_help_and_details_are_left_with_escape(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("2")
        assert "STATE" in screen.text
        await screen.press("question_mark")
        assert "Keys" in screen.text
        await screen.press("end")
        assert "jobs run without it" in screen.text
        await screen.press("escape")
        assert screen.app.page == "gpus"
        await screen.press("3")
        assert "no sweeps yet" in screen.text
        await screen.press("1", "enter")
        assert "folder    /home/ada/project" in screen.text
        await screen.press("escape")
        assert "PROGRESS, REASON" in screen.text

    drive(queue, steps)


def test_changes_need_a_selected_job(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("2", "c")
        assert "select a job first" in screen.text
        assert not changes(screen)

    drive(queue, steps)


def test_filter_lists_matching_jobs_until_escape(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        app = screen.app
        app.action_search(" failed ")
        assert (app.filter, app.matches, app.job_id) == ("failed", None, None)
        app.take_matches("other", [1])  # of an earlier filter
        assert app.matches is None
        await screen.shows("Jobs that match failed: 2 jobs")
        await screen.press("down")
        assert app.job_id == 3
        await screen.press("escape")
        assert app.filter == ""
        assert app.job_id == 3  # the cursor stays on its job
        app.action_search("nothing")
        await screen.shows("no job matches nothing")

    drive(queue, steps)


def test_keys_typed_quickly_go_to_the_filter(queue: Queue) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("slash", "q", "a", "2")  # without a pause
        await screen.pilot.pause()
        assert screen.app.query_one(Input).value == "qa2"
        assert screen.app.is_running

    drive(queue, steps)


# -- lists ----------------------------------------------------------------------------------------


class OneWidget(App[None]):
    """A program with one widget."""

    CSS = "* { scrollbar-size: 0 0; } RowTable { overflow: hidden hidden; }"

    def __init__(self, build: Callable[[], LogPane | RowTable]) -> None:
        super().__init__()
        self._build = build

    def compose(self) -> ComposeResult:
        yield self._build()


def test_list_of_a_million_rows_is_a_window() -> None:
    drawn: list[int] = []

    def cells(row: int | str) -> list[tuple[str, str]]:
        drawn.append(int(row))
        return [(str(row), "")]

    async def steps() -> None:
        app = OneWidget(lambda: RowTable([Column("N")], cells, UNICODE, "table"))
        async with app.run_test(size=(20, 11)) as pilot:
            table = app.query_one(RowTable)
            table.set_rows(range(1_000_000, 0, -1))
            await pilot.pause()
            assert list(table.visible_rows) == list(range(1_000_000, 999_990, -1))
            await pilot.press("end")
            await pilot.pause()
            assert table.selected == 1
            assert list(table.visible_rows) == list(range(10, 0, -1))
            for _ in range(300):
                await pilot.press("up")
            await pilot.pause()
            assert table.selected == 301 == table.visible_rows[0]
            table.set_rows(range(2_000_000, 0, -1))
            await pilot.pause()
            assert table.selected == 301 == table.visible_rows[0]
            assert len(set(drawn)) < 1000
            table.set_rows(())
            assert table.selected is None
            assert not table.visible_rows

    asyncio.run(steps())


# -- logs -----------------------------------------------------------------------------------------


def answer(lines: list[tuple[int, str]], **fields: Any) -> dict[str, Any]:
    """A part of a log as client/live/log_view.py returns it."""
    shown = [{"at": at, "spans": [{"text": text}]} for at, text in lines]
    rest = {"attempt": 1, "size": 100, "start": 0, "from": 0, "to": 100, "is_over": False}
    return {**rest, "lines": shown, **fields}


@asynccontextmanager
async def log_pane(size: tuple[int, int] = (80, 5)) -> AsyncIterator[tuple[LogPane, Pilot[None]]]:
    app = OneWidget(lambda: LogPane(UNICODE, "log"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        log = app.query_one(LogPane)
        log.begin(7)
        yield log, pilot


async def shown(pilot: Pilot[None]) -> str:
    await pilot.pause()
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join(line.text.rstrip() for line in lines).rstrip()


def test_progress_bar_replaces_its_line() -> None:
    async def steps() -> None:
        async with log_pane() as (log, pilot):
            assert not log.take(answer([(0, "start"), (10, " 10%")], size=20, to=20))
            assert (log.wanted().begin, log.wanted().start) == (20, 0)
            log.take(answer([(10, "100%"), (40, "end")], **{"from": 10}))
            assert await shown(pilot) == "start\n100%\nend"

    asyncio.run(steps())


def test_scrolled_log_stays_where_it_is_while_it_grows() -> None:
    async def steps() -> None:
        async with log_pane() as (log, pilot):
            log.take(answer([(i, f"line {i}") for i in range(50)]))
            for _ in range(10):
                await pilot.press("up")
            before = await shown(pilot)
            assert before.endswith("line 39")
            new = [(200, "new"), (210, "newer")]
            log.take(answer(new, **{"from": 200, "to": 300, "size": 300}))
            assert await shown(pilot) == before
            assert log.below == 12
            await pilot.press("home")
            assert await shown(pilot) == "\n".join(f"line {i}" for i in range(5))
            await pilot.press("end")
            assert log.is_following
            assert (await shown(pilot)).endswith("line 49\nnew\nnewer")

    asyncio.run(steps())


def test_new_attempt_replaces_the_log() -> None:
    async def steps() -> None:
        async with log_pane() as (log, pilot):
            log.take(answer([(0, "first")]))
            assert log.take(answer([], attempt=2, size=0, to=0))  # to be read from its end
            assert log.wanted().begin is None
            log.take(answer([(0, "second")], attempt=2))
            assert await shown(pilot) == "second"

    asyncio.run(steps())


def test_earlier_part_is_read_when_the_top_is_near() -> None:
    async def steps() -> None:
        async with log_pane() as (log, pilot):
            log.take(answer([(500 + i, f"line {i}") for i in range(30)]))
            assert log.earlier() is None
            await pilot.press("up", "up")
            before = await shown(pilot)
            wanted = log.earlier()
            assert wanted is not None and wanted.end == 500
            log.take_earlier(answer([(0, "the first line")]))
            assert await shown(pilot) == before
            assert log.earlier() is None
            await pilot.press("home")
            assert (await shown(pilot)).startswith("the first line\nline 0")

    asyncio.run(steps())


def test_long_line_is_wrapped_and_not_cut() -> None:
    async def steps() -> None:
        async with log_pane((10, 5)) as (log, pilot):
            log.take(answer([(0, "x" * 25 + "日本")]))
            assert await shown(pilot) == f"{'x' * 10}\n{'x' * 10}\nxxxxx日本"
            await pilot.resize_terminal(15, 5)
            assert await shown(pilot) == f"{'x' * 15}\n{'x' * 10}日本"

    asyncio.run(steps())
