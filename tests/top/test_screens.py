"""Screens of `stoker top` as text, for two sizes of a terminal.

A missing snapshot is written and the test fails once; check the new file before committing it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.client.queue import Queue
from stoker.results.figure import TrialCurve, learning_curves
from stoker.top.dashboard import Dashboard
from stoker.top.job_lines import Reported
from stoker.top.spans import ASCII
from tests.top.queue_rows import SIZES, drawn, gpu, make_board, make_queue

SCREENS = Path(__file__).parent / "screens"
_LINES = [f"epoch {i}: loss {1 / (i + 1):.3f}" for i in range(40)]


def check(name: str, text: str) -> None:
    path = SCREENS / f"{name}.txt"
    if not path.exists():
        path.write_text(text + "\n", "utf-8")
        pytest.fail(f"{path} was not there; it is now")
    assert text + "\n" == path.read_text("utf-8")


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Queue]]:
    """Queues with 0, 30 and 10,000 jobs, which tests only read."""
    folder = tmp_path_factory.mktemp("queues")
    queues = {}
    for count in (0, 30, 10_000):
        (folder / str(count)).mkdir()
        queues[count] = make_queue(folder / str(count), count)
    yield queues
    for queue in queues.values():
        queue.close()


def a_board(queue: Queue) -> Dashboard:
    """A dashboard with GPUs, reports, a log and a curve."""
    board = make_board(queue)
    state = board.state
    assert state is not None
    others = [{"pid": 4121, "user": "bob", "memory_bytes": 88 << 30, "compute": True}]
    used = {"memory_used_bytes": 98 << 30, "utilisation_percent": 97, "state": "busy",
            "temperature_celsius": 62, "power_watts": 451.3}  # fmt: skip
    jobs = [{"id": id, "claim_bytes": 20 << 30, "memory_bytes": 97 << 30} for id in state.running]
    gpus = [
        gpu(0, jobs=jobs[:1], **used),
        gpu(1, jobs=jobs[1:], other_processes=others, **used),
        gpu(2, state="taken", other_processes=others, memory_used_bytes=88 << 30),
        gpu(3, state="drained"),
    ]
    board.take_state(state._replace(gpus=gpus), [])
    metrics = (("val_loss", 0.2134), ("accuracy", 0.91))
    words = "epoch 4/10 (40%), val_loss 0.2134, ETA 18m50s"
    board.reported = {id: Reported(words, metrics) for id in state.running}
    a_log(board)
    points = [(float(x), 1 / (x + 1)) for x in range(50)]
    board.figure = learning_curves([TrialCurve(6, points, "job 6")], "val_loss", None)
    board.figure_of = board.job_id
    return board


def a_log(board: Dashboard) -> None:
    log = board.log
    log.job, log.attempt = board.job_id, 1
    log.take({
        "attempt": 1, "size": 400, "start": 0, "from": 0, "to": 400, "is_over": False,
        "lines": [{"at": 10 * i, "spans": [{"text": line}]} for i, line in enumerate(_LINES)],
    })  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 30, 10_000])
def test_jobs_tab_shows_gpus_jobs_and_the_log(
    boards: dict[int, Queue], count: int, size: tuple[int, int]
) -> None:
    board = a_board(boards[count]) if count else make_board(boards[count])
    check(f"jobs_{count}_{size[0]}x{size[1]}", drawn(board, *size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", ["gpus", "job", "help", "question", "filter", "problem"])
def test_other_views_fit_both_sizes(
    boards: dict[int, Queue], view: str, size: tuple[int, int]
) -> None:
    board = a_board(boards[30])
    if view == "gpus":
        board.key("2")
    elif view == "job":
        board.key("enter")
    elif view == "help":
        board.key("question_mark")
    elif view == "question":
        board.key("c")
    elif view == "filter":
        board.search("failed nothing")
        board.take_matches("failed nothing", [4, 3])
        board.rows = {}
    else:
        board.problems = ["no daemon is running; start it with `stoker daemon start`"]
    check(f"{view}_{size[0]}x{size[1]}", drawn(board, *size))


@pytest.mark.parametrize("size", SIZES)
def test_sweeps_tab_shows_progress_and_curves(
    boards: dict[int, Queue], size: tuple[int, int]
) -> None:
    board = make_board(boards[30])
    assert board.state is not None
    sweep = {
        "name": "brave-otter", "state": "active", "total": 40, "method": "tpe",
        "trials": {"done": 12, "failed": 1, "running": 2, "queued": 5},
        "metric": {"name": "val_loss", "goal": "min"}, "command": "python train.py --lr {lr}",
        "best": {"trial": 7, "value": 0.2134, "params": {"lr": 0.1}}, "stopped": None,
    }  # fmt: skip
    other = {**sweep, "name": "old-moose", "state": "finished", "best": None}
    board.take_state(board.state._replace(sweeps={"brave-otter": sweep, "old-moose": other}), [])
    board.key("3")
    curves = [
        TrialCurve(
            t,
            [(float(x), 1 / (1 + x * t / 20)) for x in range(50)],
            f"lr=0.{t}",
            1 / (1 + 49 * t / 20),
        )
        for t in range(1, 6)
    ]
    board.figure, board.figure_of = learning_curves(curves, "val_loss"), "brave-otter"
    check(f"sweeps_{size[0]}x{size[1]}", drawn(board, *size))
    board.key("down")
    assert "reading" in drawn(board, *size)


def test_many_gpus_share_lines_in_a_small_terminal(boards: dict[int, Queue]) -> None:
    board = a_board(boards[30])
    assert board.state is not None
    gpus = [{**one, "visible": str(i)} for i, one in enumerate(board.state.gpus * 2)]
    board.take_state(board.state._replace(gpus=gpus), [])
    check("gpus_8_80x24", drawn(board, 80, 24))
    board.take_state(board.state._replace(gpus=gpus * 3), [])
    assert "16 more GPUs (press 2)" in drawn(board, 80, 24)


def test_waiting_job_shows_all_reasons_in_place_of_its_log(boards: dict[int, Queue]) -> None:
    board = a_board(boards[30])
    board.key("down")
    board.key("down")
    assert board.job_id == 8
    board.log.job, board.log.attempt = 8, 0
    check("waiting_80x24", drawn(board, 80, 24))


def test_terminal_without_unicode_gets_ascii(boards: dict[int, Queue]) -> None:
    board = a_board(boards[30])
    board.glyphs = ASCII
    text = drawn(board, 200, 50)
    assert text.isascii()
    assert "#####" in text


@pytest.mark.parametrize("size", [(20, 5), (49, 24), (80, 11)])
def test_small_terminal_gets_a_sentence(boards: dict[int, Queue], size: tuple[int, int]) -> None:
    text = " ".join(drawn(make_board(boards[30]), *size).split())
    assert text == (
        f"the terminal is too small ({size[0]}x{size[1]}): stoker top needs 50x12; q quits"
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 220), st.integers(1, 70), st.sampled_from("123?/c"))
def test_every_size_is_filled_exactly(columns: int, rows: int, key: str) -> None:
    board = _hostile()
    board.key("escape")
    board.key({"?": "question_mark", "/": "1"}.get(key, key))
    drawn(board, columns, rows)  # checks the width of each line


@cache
def _hostile() -> Dashboard:
    """A dashboard whose job names are markup, escape sequences and wide characters."""
    with tempfile.TemporaryDirectory() as folder:
        queue = make_queue(Path(folder), 30)
        board = a_board(queue)
        queue.close()
    assert board.state is not None
    for job in board.state.jobs.values():
        job["name"] = "[red]日本\x1b[2J\x07\n\u202e[/]" * 3
    return board


def test_text_of_jobs_is_neither_markup_nor_an_escape_sequence() -> None:
    board = _hostile()
    for key in ("escape", "escape", "1"):  # leave what another test has opened
        board.key(key)
    board.log.lines[-1] = (("[blink]not markup[/blink]", ""),)
    board.reported = {6: Reported("\x1b]0;title\x07", (("[b]\x1b[31m", "\x9b2J"),))}
    text = drawn(board, 200, 50)
    assert "[red]日本\\x1b[2J\\x07\\n\\u202e" in text
    assert "[blink]not markup[/blink]" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_cut_text_ends_with_an_ellipsis(boards: dict[int, Queue]) -> None:
    board = a_board(boards[30])
    assert board.state is not None
    for job in board.state.jobs.values():
        job["name"] = "n" * 300
    for line in drawn(board, 80, 24).split("\n"):
        assert "n" * 10 not in line or "…" in line
    assert board.key("enter") is None
    assert "…" in drawn(board, 80, 24).split("\n")[1]
