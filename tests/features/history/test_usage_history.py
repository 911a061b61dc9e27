"""The file of usage readings: complete, bounded, and replaced when damaged. Times are passed in."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.features.history.store_usage import FILE_NAME, TraceWriter, TrackRow, read
from stoker.features.history.time_series import TICKS_PER_SECOND, Reading, encode
from stoker.features.history.usage_charts import gpu_trace, job_trace
from tests.features.history.simulated_host import DAY, SimulatedHost, run, size

TAG = 77
T0 = 1_750_000_000.0
EMPTY_HOST = SimulatedHost(0)

NewWriter = Callable[..., TraceWriter]


def keep(writer: TraceWriter, at: float, value: int, key: str = "GPU-1") -> None:
    writer.append(at, [TrackRow("gpu", key, (value, None, 2 * value, 30))], lambda job: False)


def kept(folder: Path, key: str = "GPU-1", kind: str = "gpu") -> list[Reading]:
    return sorted((reading for _, reading in read(str(folder), kind, key)), key=lambda r: r[0])


def uses(folder: Path, key: str = "GPU-1") -> list[int | None]:
    return [values[0] for _, values in kept(folder, key)]


@pytest.fixture
def new_writer(tmp_path: Path) -> Iterator[NewWriter]:
    made: list[TraceWriter] = []

    def make(folder: Path = tmp_path, tag: int = TAG, **options: int) -> TraceWriter:
        made.append(TraceWriter(str(folder), tag, **options))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


@pytest.fixture
def writer(new_writer: NewWriter) -> TraceWriter:
    return new_writer()


# -- contents --------------------------------------------------------------------------------------


@given(ticks=st.integers(1, 700), stops=st.lists(st.integers(0, 700), max_size=3))
@settings(max_examples=15, deadline=None)
def test_restarted_writer_loses_no_reading_of_a_day(
    tmp_path_factory: pytest.TempPathFactory, ticks: int, stops: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    writer = TraceWriter(str(folder), TAG)
    for tick in range(ticks):
        if tick in stops:
            writer.close()
            writer = TraceWriter(str(folder), TAG)
        keep(writer, T0 + 5 * tick, tick)
    writer.close()
    assert kept(folder) == [
        (round((T0 + 5 * tick) * TICKS_PER_SECOND), (tick, None, 2 * tick, 30))
        for tick in range(ticks)
    ]


def test_only_the_requested_readings_are_loaded(tmp_path: Path, writer: TraceWriter) -> None:
    for tick in range(600):
        keep(writer, T0 + tick, tick)
        keep(writer, T0 + tick, 0, key="GPU-2")
    late = [values[0] for _, (_, values) in read(str(tmp_path), "gpu", "GPU-1", T0 + 590)]
    assert sorted(v for v in late if v is not None) == list(range(590, 600))
    assert kept(tmp_path, "GPU-3") == kept(tmp_path, "GPU-1", kind="job_processes") == []


def test_file_is_not_readable_by_other_users(tmp_path: Path, writer: TraceWriter) -> None:
    keep(writer, T0, 1)
    for name in os.listdir(tmp_path):
        assert os.stat(tmp_path / name).st_mode & 0o077 == 0, name


def test_missing_file_has_no_readings(tmp_path: Path) -> None:
    assert gpu_trace(str(tmp_path), "GPU-1", 0, 100) == {}
    assert job_trace(str(tmp_path), 1, 100) == {}
    assert os.listdir(tmp_path) == []


# -- files of earlier versions ---------------------------------------------------------------------

VERSION_1 = """
CREATE TABLE tracks (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, UNIQUE (kind, key)
);
CREATE TABLE recent (id INTEGER PRIMARY KEY, track INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY, track INTEGER NOT NULL, level INTEGER NOT NULL, last INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX blocks_by_track ON blocks (track, last);
CREATE INDEX blocks_by_age ON blocks (level, last);
INSERT INTO tracks VALUES (1, 'card', 'GPU-1'), (2, 'share', '7'), (3, 'tree', '7');
"""


def _fill_version_1(folder: Path) -> None:
    """Write a file as version 1 did: one block and one recent reading of each kind of track."""
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(VERSION_1)
    start = round(T0 * TICKS_PER_SECOND)
    for track, width in ((1, 4), (2, 4), (3, 2)):
        block = encode(
            [(start + i * TICKS_PER_SECOND, (10 * track + i,) * width) for i in range(3)]
        )
        recent = encode([(start + 3 * TICKS_PER_SECOND, (10 * track + 3,) * width)])
        last = start + 2 * TICKS_PER_SECOND
        connection.execute(
            "INSERT INTO blocks (track, level, last, data) VALUES (?, 0, ?, ?)",
            (track, last, block),
        )
        connection.execute("INSERT INTO recent (track, data) VALUES (?, ?)", (track, recent))
    connection.execute(f"PRAGMA application_id={TAG}")
    connection.execute("PRAGMA user_version=1")
    connection.close()


def _first_values(folder: Path) -> dict[str, list[int | None]]:
    tracks = (("gpu", "GPU-1"), ("job_gpus", "7"), ("job_processes", "7"))
    return {kind: [values[0] for _, values in kept(folder, key, kind)] for kind, key in tracks}


def test_file_of_version_1_is_read_before_and_after_it_is_migrated(
    tmp_path: Path, writer: TraceWriter
) -> None:
    _fill_version_1(tmp_path)
    old: dict[str, list[int | None]] = {
        "gpu": [10, 11, 12, 13], "job_gpus": [20, 21, 22, 23], "job_processes": [30, 31, 32, 33],
    }  # fmt: skip
    assert _first_values(tmp_path) == old
    keep(writer, T0 + 4, 14)
    assert writer.error is None
    assert _first_values(tmp_path) == {**old, "gpu": [10, 11, 12, 13, 14]}
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    kinds = connection.execute("SELECT kind FROM tracks ORDER BY id").fetchall()
    assert kinds == [("gpu",), ("job_gpus",), ("job_processes",)]
    connection.close()


def test_migrated_file_keeps_its_readings_in_a_restarted_writer(
    tmp_path: Path, new_writer: NewWriter
) -> None:
    _fill_version_1(tmp_path)
    for tick in (4, 5):
        writer = new_writer()
        keep(writer, T0 + tick, 10 + tick)
        writer.close()
    assert uses(tmp_path) == list(range(10, 16))


# -- clocks ---------------------------------------------------------------------------------------


def test_clock_jump_loses_and_corrupts_nothing(tmp_path: Path, writer: TraceWriter) -> None:
    jumps = [0.0, -3600.0, 7200.0, -100_000.0, 30.0]
    at, moments = T0, []
    for jump in jumps:
        at += jump
        for _ in range(200):
            at += 5
            moments.append(round(at * TICKS_PER_SECOND))
            keep(writer, at, len(moments))
    assert writer.error is None
    found = kept(tmp_path)
    assert sorted(moments) == [at for at, _ in found]
    assert {values[0] for _, values in found} == set(range(1, 1001))


def test_readings_from_the_future_are_not_shown(tmp_path: Path, writer: TraceWriter) -> None:
    now = time.time()
    keep(writer, now + 10 * 365 * DAY, 99)
    keep(writer, now - 5, 10)
    ((at, value),) = gpu_trace(str(tmp_path), "GPU-1", 0, 100)["gpu_use"].points
    assert (round(at - now), value) == (-5, 10)


def test_pause_is_a_gap_in_the_chart(tmp_path: Path, writer: TraceWriter) -> None:
    start = float(int(time.time()) - 10_000)
    for tick in [*range(5), *range(500, 505)]:
        keep(writer, start + 10 * tick, 50)
    points = gpu_trace(str(tmp_path), "GPU-1", 0, 100)["gpu_use"].points
    assert [value for _, value in points] == [50] * 5 + [None] + [50] * 5
    assert points[5][0] == start + (40 + 5000) / 2


# -- bounded --------------------------------------------------------------------------------------


def test_readings_are_fine_for_a_day_coarse_for_a_month_then_removed(
    tmp_path: Path, writer: TraceWriter
) -> None:
    for tick in range(2880):
        keep(writer, T0 + 30 * tick, 100 if tick % 10 == 5 else tick % 7)
    assert len(kept(tmp_path)) == 2880
    before = _extremes(tmp_path)
    run(writer, EMPTY_HOST, T0 + 2 * DAY, 7200, pace=600)
    assert _extremes(tmp_path) == before
    assert {level for level, _ in read(str(tmp_path), "gpu", "GPU-1")} == {1}
    assert len(kept(tmp_path)) < 2 * 288 + 2 * 12  # a few more at block boundaries
    run(writer, EMPTY_HOST, T0 + 29.9 * DAY, 60)
    assert _extremes(tmp_path) == before
    run(writer, EMPTY_HOST, T0 + 31 * DAY, 60)
    assert kept(tmp_path) == []


def _extremes(folder: Path) -> dict[int, tuple[int, int]]:
    """The minimum and maximum utilization of every five minutes."""
    found: dict[int, list[int]] = {}
    for at, values in kept(folder):
        found.setdefault(at // (300 * TICKS_PER_SECOND), []).append(values[0] or 0)
    return {stretch: (min(values), max(values)) for stretch, values in found.items()}


def test_coarsening_frees_space(tmp_path: Path, writer: TraceWriter) -> None:
    run(writer, SimulatedHost(8), T0, DAY / 4)
    fine = os.stat(tmp_path / FILE_NAME).st_size
    run(writer, EMPTY_HOST, T0 + 2 * DAY, 600)
    assert len(kept(tmp_path, SimulatedHost.uuid(7))) < 2160 / 10
    assert _used(tmp_path) < fine / 3


def _used(folder: Path) -> int:
    """Bytes of the file in use."""
    connection = sqlite3.connect(folder / FILE_NAME)
    pages, spare, page = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    connection.close()
    return int((pages - spare) * page)


def test_six_hours_of_eight_gpus_with_jobs_take_less_than_5_mb(
    tmp_path: Path, writer: TraceWriter
) -> None:
    run(writer, SimulatedHost(8, jobs=8), T0, DAY / 4)
    assert size(tmp_path) < 5 << 20


def test_forty_days_of_eight_gpus_stay_small(tmp_path: Path, writer: TraceWriter) -> None:
    host, sizes = SimulatedHost(8), []
    for day in range(40):
        run(writer, host, T0 + day * DAY, DAY, pace=120)
        sizes.append(size(tmp_path))
    assert sizes[39] < sizes[31] * 1.1
    assert sizes[39] < 20 << 20
    assert kept(tmp_path, SimulatedHost.uuid(0))[0][0] > (T0 + 9 * DAY) * TICKS_PER_SECOND


def test_file_stays_below_its_limit_and_keeps_the_newest_readings(
    tmp_path: Path, new_writer: NewWriter
) -> None:
    limit, spare = 512 << 10, 512 << 10  # recent readings, and free pages
    writer = new_writer(max_bytes=limit)
    run(writer, SimulatedHost(8, jobs=16), T0, DAY / 4)
    assert os.stat(tmp_path / FILE_NAME).st_size < limit + spare
    found = kept(tmp_path, SimulatedHost.uuid(3))
    assert found[-1][0] == round((T0 + DAY / 4 - 5) * TICKS_PER_SECOND)
    assert len(found) > 100


def test_cost_of_a_tick_does_not_grow_with_history(writer: TraceWriter) -> None:
    """Counts instructions of SQLite's virtual machine in ticks that pack and expire nothing."""
    host, costs = SimulatedHost(40), []
    for day in range(1, 11):
        run(writer, host, T0 + day * DAY, DAY, pace=240)
        run(writer, host, T0 + (day + 1) * DAY, 60, pace=1)  # let it expire old readings
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        assert writer._db is not None
        writer._db.set_progress_handler(step, 10)
        run(writer, host, T0 + (day + 1) * DAY + 60, 20, pace=5)
        writer._db.set_progress_handler(None, 0)
        costs.append(count)
    assert max(costs[5:]) < 1.5 * max(costs[1:4]), costs


def test_only_a_removed_job_loses_its_readings(tmp_path: Path, writer: TraceWriter) -> None:
    for tick in range(300):
        rows = [TrackRow("job_processes", str(job), (tick, tick)) for job in range(1, 101)]
        writer.append(T0 + tick, rows, lambda job: False)
    for tick in range(300):
        writer.append(
            T0 + 300 + tick, [TrackRow("job_processes", "7", (1, 1))], lambda job: job % 2 == 0
        )
    left = [job for job in range(1, 101) if kept(tmp_path, str(job), "job_processes")]
    assert left == list(range(1, 101, 2))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    assert connection.execute("SELECT count(*) FROM tracks").fetchone() == (50,)
    connection.close()


# -- damage ---------------------------------------------------------------------------------------


def _fill(folder: Path, tag: int = TAG) -> None:
    writer = TraceWriter(str(folder), tag)
    for tick in range(600):
        keep(writer, T0 + tick, 1)
    writer.close()


@pytest.mark.parametrize("damage", ["garbage", "empty", "short", "another schema", "header only"])
def test_damaged_file_is_replaced(tmp_path: Path, new_writer: NewWriter, damage: str) -> None:
    _fill(tmp_path)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    if damage == "another schema":
        path.unlink()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE blocks (a)")
        connection.close()
    else:
        path.write_bytes({
            "garbage": b"\xa5" * 20_000,
            "empty": b"",
            "short": whole[: len(whole) // 2],
            "header only": whole[:100] + b"\0" * (len(whole) - 100),
        }[damage])  # fmt: skip
    kept(tmp_path)  # reading damaged data must not raise
    writer = new_writer()
    for tick in range(3):
        keep(writer, T0 + 1000 + tick, 5 + tick)
    assert uses(tmp_path)[-2:] == [6, 7]  # the tick that found the damage may be lost
    assert writer.error is None


@given(st.integers(0, 1 << 30), st.integers(1, 400))
@settings(max_examples=15, deadline=None)
def test_flipped_bytes_never_stop_the_writer_or_the_reader(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    _fill(folder)
    chance, path = random.Random(seed), folder / FILE_NAME
    data = bytearray(path.read_bytes())
    for _ in range(count):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    gpu_trace(str(folder), "GPU-1", 0, 100)
    writer = TraceWriter(str(folder), TAG)
    for tick in range(300):  # enough to pack a block
        keep(writer, T0 + 1000 + tick, 5)
    keep(writer, T0 + 2000, 9)
    writer.close()
    gpu_trace(str(folder), "GPU-1", 0, 100)
    assert 9 in uses(folder)


def test_deleted_file_is_created_again(tmp_path: Path, writer: TraceWriter) -> None:
    keep(writer, T0, 1)
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    keep(writer, T0 + 1, 2)
    keep(writer, T0 + 2, 3)
    assert uses(tmp_path) == [2, 3]


def test_readings_of_another_queue_are_discarded(tmp_path: Path, new_writer: NewWriter) -> None:
    _fill(tmp_path, tag=1)
    keep(new_writer(tag=2), T0, 42)
    assert uses(tmp_path) == [42]


def test_long_lived_reader_does_not_block_the_writer(tmp_path: Path, writer: TraceWriter) -> None:
    keep(writer, T0, 1)
    reader = sqlite3.connect(f"file:{tmp_path / FILE_NAME}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM recent").fetchall()
    for tick in range(600):
        keep(writer, T0 + tick, tick)
        assert writer.error is None
    reader.close()
    assert len(uses(tmp_path)) == 601


def test_full_disk_loses_only_the_ticks_that_do_not_fit(
    tmp_path: Path, writer: TraceWriter
) -> None:
    keep(writer, T0, 1)
    assert writer._db is not None
    writer._db.execute("PRAGMA max_page_count=1")
    tick = 0
    while writer.error is None:
        tick += 1
        keep(writer, T0 + tick, 1)
    assert "full" in writer.error
    keep(writer, T0 + 1000, 2)  # a new connection, without that limit
    assert writer.error is None
    assert uses(tmp_path) == [1] * tick + [2]


def test_unwritable_folder_is_reported_and_retried(tmp_path: Path, new_writer: NewWriter) -> None:
    folder = tmp_path / "state"
    writer = new_writer(folder)
    keep(writer, T0, 1)
    assert writer.error is not None and "No such file" in writer.error
    folder.mkdir()
    keep(writer, T0 + 1, 2)
    assert writer.error is None
    assert uses(folder) == [2]
