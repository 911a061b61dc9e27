"""Screens of `stoker top` as text, for two sizes of a terminal.

A missing snapshot is written and the test fails once; check the new file before committing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from stoker.client.live.live_state import LiveState
from stoker.client.queue import Queue
from stoker.features.results.figure import TrialCurve, learning_curves
from stoker.features.top.glyphs import ASCII, UNICODE, Glyphs
from stoker.features.top.job_text import Reported
from stoker.features.top.readings import Details
from tests.features.top.queue_rows import SIZES, Screen, gpu, make_queue, read_state, still

SCREENS = Path(__file__).parent / "screens"
_LINES = [f"epoch {i}: loss {1 / (i + 1):.3f}" for i in range(40)]


async def check(screen: Screen, name: str) -> None:
    """Compare the screen with a file, once the footer has followed."""
    path = SCREENS / f"{name}.txt"
    if not path.exists():
        path.write_text(screen.text + "\n", "utf-8")
        pytest.fail(f"{path} was not there; it is now")
    await screen.until(lambda: screen.text + "\n" == path.read_text("utf-8"))


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Queue]]:
    """Queues with 0, 30 and 10,000 jobs, which tests only read."""
    folder = tmp_path_factory.mktemp("queues")
    queues = {}
    for count in (0, 30, 10_000):
        (folder / str(count)).mkdir()
        queues[count] = make_queue(folder / str(count), count)
    yield queues
    for queue in queues.values():
        queue.close()


def with_gpus(state: LiveState) -> LiveState:
    """The state of a host with four GPUs."""
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
    return state._replace(gpus=gpus)


@asynccontextmanager
async def full(
    queue: Queue, size: tuple[int, int], glyphs: Glyphs = UNICODE
) -> AsyncIterator[Screen]:
    """A dashboard with GPUs, reports, a log and a curve."""
    async with still(queue, size, glyphs) as screen:
        app, state = screen.app, read_state(queue)
        metrics = (("val_loss", 0.2134), ("accuracy", 0.91))
        words = "epoch 4/10 (40%), val_loss 0.2134, ETA 18m50s"
        points = [(float(x), 1 / (x + 1)) for x in range(50)]
        app.details = Details(
            reported={id: Reported(words, metrics) for id in state.running},
            figure_of=app.job_id,
            figure=learning_curves([TrialCurve(6, points, "job 6")], "val_loss", None),
        )
        read_log(screen, _LINES)
        await screen.show(with_gpus(state))
        await screen.pilot.pause()
        yield screen


def read_log(screen: Screen, lines: list[str], attempt: int = 1) -> None:
    screen.app.log_pane.begin(screen.app.job_id)
    screen.app.log_pane.take({
        "attempt": attempt, "size": 400, "start": 0, "from": 0, "to": 400, "is_over": False,
        "lines": [{"at": 10 * i, "spans": [{"text": line}]} for i, line in enumerate(lines)],
    })  # fmt: skip


Steps = Callable[[Screen], Awaitable[None]]


def look(queue: Queue, size: tuple[int, int], steps: Steps, glyphs: Glyphs = UNICODE) -> None:
    async def run() -> None:
        async with full(queue, size, glyphs) as screen:
            await steps(screen)

    asyncio.run(run())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 30, 10_000])
def test_jobs_tab_shows_gpus_jobs_and_the_log(
    queues: dict[int, Queue], count: int, size: tuple[int, int]
) -> None:
    async def steps(screen: Screen) -> None:
        if not count:
            await screen.show(read_state(queues[0]))
        await check(screen, f"jobs_{count}_{size[0]}x{size[1]}")

    look(queues[count], size, steps)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", ["gpus", "job", "help", "question", "filter", "problem"])
def test_other_views_fit_both_sizes(
    queues: dict[int, Queue], view: str, size: tuple[int, int]
) -> None:
    async def steps(screen: Screen) -> None:
        if view == "filter":
            screen.app.action_search("failed nothing")
            screen.app.take_matches("failed nothing", [4, 3])
        elif view == "problem":
            state = with_gpus(read_state(queues[30]))
            await screen.show(state, ["no daemon is running; start it with `stoker daemon start`"])
        else:
            keys = {"gpus": "2", "job": "enter", "help": "question_mark", "question": "c"}
            await screen.press(keys[view])
        await screen.pilot.pause()
        await check(screen, f"{view}_{size[0]}x{size[1]}")

    look(queues[30], size, steps)


@pytest.mark.parametrize("size", SIZES)
def test_sweeps_tab_shows_progress_and_curves(
    queues: dict[int, Queue], size: tuple[int, int]
) -> None:
    sweep = {
        "name": "brave-otter", "state": "active", "total": 40, "method": "tpe",
        "trials": {"done": 12, "failed": 1, "running": 2, "queued": 5},
        "metric": {"name": "val_loss", "goal": "min"}, "command": "python train.py --lr {lr}",
        "best": {"trial": 7, "value": 0.2134, "params": {"lr": 0.1}}, "stopped": None,
    }  # fmt: skip
    other = {**sweep, "name": "old-moose", "state": "finished", "best": None}
    curves = [
        TrialCurve(
            t,
            [(float(x), 1 / (1 + x * t / 20)) for x in range(50)],
            f"lr=0.{t}",
            1 / (1 + 49 * t / 20),
        )
        for t in range(1, 6)
    ]

    async def steps(screen: Screen) -> None:
        state = read_state(queues[30])
        await screen.show(state._replace(sweeps={"brave-otter": sweep, "old-moose": other}))
        figure = learning_curves(curves, "val_loss")
        screen.app.details = Details(figure_of="brave-otter", figure=figure)
        await screen.press("3")
        await check(screen, f"sweeps_{size[0]}x{size[1]}")
        await screen.press("down")
        assert "reading" in screen.text

    look(queues[30], size, steps)


def test_many_gpus_share_lines_in_a_small_terminal(queues: dict[int, Queue]) -> None:
    async def steps(screen: Screen) -> None:
        state = with_gpus(read_state(queues[30]))
        gpus = [{**one, "visible": str(i)} for i, one in enumerate(state.gpus * 2)]
        await screen.show(state._replace(gpus=gpus))
        await check(screen, "gpus_8_80x24")
        await screen.show(state._replace(gpus=gpus * 3))
        assert "16 more GPUs (press 2)" in screen.text

    look(queues[30], (80, 24), steps)


def test_waiting_job_shows_all_reasons_in_place_of_its_log(queues: dict[int, Queue]) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("down", "down")
        assert screen.app.job_id == 8
        read_log(screen, [], attempt=0)
        screen.app.show()
        await screen.pilot.pause()
        await check(screen, "waiting_80x24")

    look(queues[30], (80, 24), steps)


def test_terminal_without_unicode_gets_ascii(queues: dict[int, Queue]) -> None:
    async def steps(screen: Screen) -> None:
        assert screen.text.isascii()
        assert "#####" in screen.text
        assert "python train.py" in screen.text
        await screen.press("enter")
        assert screen.text.isascii()

    look(queues[30], (200, 50), steps, ASCII)


@pytest.mark.parametrize("size", [(20, 5), (49, 24), (80, 11)])
def test_small_terminal_gets_a_sentence(queues: dict[int, Queue], size: tuple[int, int]) -> None:
    async def steps(screen: Screen) -> None:
        assert " ".join(screen.text.split()) == (
            f"the terminal is too small ({size[0]}x{size[1]}): stoker top needs 50x12; q quits"
        )

    look(queues[30], size, steps)


def hostile(state: LiveState) -> LiveState:
    """Jobs whose names are markup, escape sequences and wide characters."""
    for job in state.jobs.values():
        job["name"] = "[red]日本\x1b[2J\x07\n\u202e[/]" * 3
    return state


def test_every_size_is_filled_exactly(queues: dict[int, Queue]) -> None:
    random = Random(7)

    async def steps(screen: Screen) -> None:
        await screen.show(hostile(with_gpus(read_state(queues[30]))))
        for _ in range(40):
            await screen.pilot.resize_terminal(random.randint(1, 220), random.randint(1, 70))
            await screen.press("escape", random.choice(("1", "2", "3", "question_mark", "enter")))
            assert screen.text  # checks the width of each line

    look(queues[30], (80, 24), steps)


def test_text_of_jobs_is_neither_markup_nor_an_escape_sequence(queues: dict[int, Queue]) -> None:
    async def steps(screen: Screen) -> None:
        reported = Reported("\x1b]0;title\x07", (("[b]\x1b[31m", "\x9b2J"),))
        screen.app.details = Details(reported={6: reported})
        read_log(screen, ["[blink]not markup[/blink]"])
        await screen.show(hostile(with_gpus(read_state(queues[30]))))
        assert "[red]日本\\x1b[2J\\x07\\n\\u202e" in screen.text
        assert "[blink]not markup[/blink]" in screen.text
        assert all(line.isprintable() for line in screen.text.split("\n"))
        await screen.press("c")
        assert "cancel job 6 ([red]日本\\x1b[2J" in screen.text

    look(queues[30], (200, 50), steps)


def test_cut_text_ends_with_an_ellipsis(queues: dict[int, Queue]) -> None:
    async def steps(screen: Screen) -> None:
        state = with_gpus(read_state(queues[30]))
        for job in state.jobs.values():
            job["name"] = "n" * 300
        await screen.show(state)
        for line in screen.text.split("\n"):
            assert "n" * 10 not in line or "…" in line
        await screen.press("enter")
        assert "…" in screen.text.split("\n")[1]

    look(queues[30], (80, 24), steps)
