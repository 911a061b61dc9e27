"""Keys, cursor, filter and log of the dashboard, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.top.dashboard import (
    Act,
    Dashboard,
    OpenFilter,
    Quit,
    Redraw,
    Search,
    Suspend,
)
from stoker.top.display import changed_columns
from stoker.top.log_tail import LogTail
from stoker.top.row_list import Heading, RowList
from stoker.top.spans import plain
from tests.top.queue_rows import drawn, make_board, make_queue


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Dashboard]:
    queue = make_queue(tmp_path, 30)
    yield make_board(queue)
    queue.close()


def press(board: Dashboard, *keys: str) -> object:
    """Press keys, draw the screen after each, and return the last effect."""
    effect: object = None
    for key in keys:
        effect = board.key(key)
        drawn(board, 80, 24)
    return effect


def test_cursor_starts_on_the_first_running_job_and_skips_headings(board: Dashboard) -> None:
    assert board.job_id == 6
    press(board, "down", "j")
    assert board.job_id == 8  # the first waiting one, below its heading
    press(board, "up", "k", "up")
    assert board.job_id == 6
    press(board, "end")
    assert board.job_id == 1
    press(board, "home")
    assert board.job_id == 6
    press(board, "pagedown")
    assert board.job_id not in (6, 1)


def test_cursor_follows_its_job_into_another_state(board: Dashboard) -> None:
    state = board.state
    assert state is not None
    press(board, "down")
    assert board.job_id == 7
    board.take_state(state._replace(running=(6,), recent=(7, *state.recent)), [])
    assert board.job_id == 7
    board.take_state(state._replace(running=(6,)), [])  # it was removed
    assert board.job_id is not None


def test_cancel_asks_and_any_key_but_y_means_no(board: Dashboard) -> None:
    assert press(board, "c") is None
    assert "cancel job 6 (resnet50, running)?" in drawn(board, 80, 24)
    assert press(board, "n") is None
    assert "nothing was changed" in drawn(board, 80, 24)
    assert press(board, "c", "q") is None  # q answers the question, too
    assert press(board, "c", "y") == Act("cancel", 6)


def test_cancel_of_a_finished_job_is_refused_without_a_question(board: Dashboard) -> None:
    press(board, "end", "c")
    assert board.question is None
    assert "job 1 has already finished: done" in drawn(board, 80, 24)


@pytest.mark.parametrize(
    ("key", "action"), [("h", "hold"), ("r", "rerun"), ("plus", "raise"), ("minus", "lower")]
)
def test_key_changes_the_selected_job(board: Dashboard, key: str, action: str) -> None:
    assert press(board, key) == Act(action, 6)


def test_keys_of_the_program_have_effects(board: Dashboard) -> None:
    effects = {"q": Quit, "ctrl+c": Quit, "ctrl+l": Redraw, "ctrl+z": Suspend, "slash": OpenFilter}
    for key, effect in effects.items():
        assert isinstance(press(board, key), effect)


def test_tabs_help_and_details_are_left_with_escape(board: Dashboard) -> None:
    press(board, "2")
    assert "STATE" in drawn(board, 80, 24)
    press(board, "question_mark")
    assert "Keys" in drawn(board, 80, 24)
    press(board, "end")
    assert "jobs run without it" in drawn(board, 80, 24)
    press(board, "escape")
    assert board.tab == "gpus"
    press(board, "3")
    assert "no sweeps yet" in drawn(board, 80, 24)
    press(board, "1", "enter")
    assert "folder    /home/ada/project" in drawn(board, 80, 24)
    press(board, "escape")
    assert "RUNNING 2" in drawn(board, 80, 24)


def test_changes_need_a_selected_job(board: Dashboard) -> None:
    assert press(board, "2", "c") is None
    assert "select a job first" in drawn(board, 80, 24)


def test_filter_lists_matching_jobs_until_escape(board: Dashboard) -> None:
    assert board.search(" failed ") == Search("failed")
    assert "Jobs that match failed: searching" in drawn(board, 80, 24)
    board.take_matches("other", [1])  # of an earlier filter
    assert board.job_id is None
    board.take_matches("failed", [4, 3])
    assert "Jobs that match failed: 2 jobs" in drawn(board, 80, 24)
    press(board, "down")
    assert board.job_id == 3
    assert press(board, "escape") == Search("")
    assert board.job_id == 3  # the cursor stays on its job
    board.search("nothing")
    board.take_matches("nothing", [])
    assert "no job matches nothing" in drawn(board, 80, 24)


def test_list_of_a_million_rows_is_a_window() -> None:
    rows = RowList()
    rows.set_rows(range(1_000_000, 0, -1))
    rows.last()
    assert rows.selected == 1
    assert list(rows.window(10)) == list(range(999_990, 1_000_000))
    rows.move(-20)
    assert rows.window(10)[0] == rows.index
    rows.set_rows([Heading("only")])
    assert rows.selected is None
    rows.set_rows([])
    assert (rows.selected, list(rows.window(5))) == (None, [])


# -- logs -----------------------------------------------------------------------------------------


def answer(lines: list[tuple[int, str]], **fields: Any) -> dict[str, Any]:
    """A part of a log as client/log_view.py returns it."""
    shown = [{"at": at, "spans": [{"text": text}]} for at, text in lines]
    rest = {"attempt": 1, "size": 100, "start": 0, "from": 0, "to": 100, "is_over": False}
    return {**rest, "lines": shown, **fields}


def test_progress_bar_replaces_its_line() -> None:
    log = LogTail(7)
    assert not log.take(answer([(0, "start"), (10, " 10%")], size=20, to=20))
    assert (log.wanted().begin, log.wanted().start) == (20, 0)
    log.take(answer([(10, "100%"), (40, "end")], **{"from": 10}))
    assert plain(log.view(80, 10)) == "start\n100%\nend"


def test_scrolled_log_stays_where_it_is_while_it_grows() -> None:
    log = LogTail(7)
    log.take(answer([(i, f"line {i}") for i in range(50)]))
    log.scroll(-10)
    before = plain(log.view(80, 5))
    assert before.endswith("line 39")
    log.take(answer([(200, "new"), (210, "newer")], **{"from": 200, "to": 300, "size": 300}))
    assert plain(log.view(80, 5)) == before
    assert log.below == 12
    log.to_start()
    assert plain(log.view(80, 5)) == "\n".join(f"line {i}" for i in range(5))
    log.to_end()
    assert log.is_following
    assert plain(log.view(80, 2)) == "new\nnewer"


def test_new_attempt_replaces_the_log() -> None:
    log = LogTail(7)
    log.take(answer([(0, "first")]))
    assert log.take(answer([], attempt=2, size=0, to=0))  # to be read from its end
    assert log.wanted().begin is None
    log.take(answer([(0, "second")], attempt=2))
    assert plain(log.view(80, 5)) == "second"


def test_earlier_part_is_read_when_the_top_is_near() -> None:
    log = LogTail(7)
    log.take(answer([(500 + i, f"line {i}") for i in range(30)]))
    assert not log.is_near_start
    log.scroll(-5)
    assert log.is_near_start
    wanted = log.earlier()
    assert wanted is not None and wanted.end == 500
    log.take_earlier(answer([(0, "the first line")]))
    assert log.earlier() is None
    log.to_start()
    assert plain(log.view(80, 1)) == "the first line"


def test_long_line_is_wrapped_and_not_cut() -> None:
    log = LogTail(7)
    log.take(answer([(0, "x" * 25 + "日本")]))
    assert plain(log.view(10, 5)) == f"{'x' * 10}\n{'x' * 10}\nxxxxx日本"
    assert plain(log.view(10, 1)) == "xxxxx日本"


def test_only_changed_columns_are_drawn_again() -> None:
    old = (("  7  ", "bold"), ("running", "green"), ("  12s", ""))
    assert changed_columns(old, (("  7  ", "bold"), ("running", "green"), ("  13s", "")), 17) == (
        15, 16,
    )  # fmt: skip
    assert changed_columns(old, (("  7  ", "bold"), ("running", "red"), ("  12s", "")), 17) == (
        5, 12,
    )  # fmt: skip
    assert changed_columns((("日本", ""),), (("日x ", ""),), 4) == (0, 4)
