"""Scalars of TensorBoard event files: the format, damaged files, and several files of one job."""

from __future__ import annotations

import math
import os
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.features.results.curve_reader import curve_of
from stoker.features.results.reports import event_files as format
from stoker.features.results.reports import event_search
from stoker.features.results.reports.event_files import EventReader, masked_crc
from stoker.features.results.reports.event_search import event_files, new_reports
from stoker.features.results.reports.reports import (
    JobFiles,
    Source,
    collect,
    report_error,
    report_sizes,
)
from stoker.features.results.reports.summary import Collector
from stoker.text.progress.report_line import Report
from tests.features.results.event_bytes import (
    HEADER_EVENT,
    block,
    event,
    record,
    scalars,
    simple,
    tensor,
    varint,
)


def read(data: bytes, prefix: str = "") -> list[Report]:
    return EventReader(prefix).feed(data)


def values(*parts: bytes) -> dict[str, object]:
    found = read(record(event(1, *parts)))
    return found[0].values if found else {}


def test_checksum_is_the_masked_crc32c_of_the_tfrecord_format() -> None:
    # CRC-32C of "123456789" is 0xE3069283 in RFC 3720; the mask is that of TFRecords.
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_are_read_with_step_and_time() -> None:
    data = scalars("loss/train", {0: 0.5, 10: 0.1})
    assert read(data) == [
        Report(0, {"loss/train": 0.5}, 100.0, 1), Report(10, {"loss/train": 0.1}, 110.0, 1),
    ]  # fmt: skip


def test_real_event_file_of_tensorboard_is_read(tmp_path: Path) -> None:
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    summary_pb2 = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
    scalar_pb = pytest.importorskip("tensorboard.plugins.scalar.summary_v2").scalar_pb
    files = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    writer = files.EventFileWriter(str(tmp_path))
    for step in range(50):
        old = summary_pb2.Summary.Value(tag="old", simple_value=step / 7)
        image = summary_pb2.Summary.Value(tag="image")
        image.image.encoded_image_string = b"x" * 5000
        new = scalar_pb("new", -step).value[0]
        summary = summary_pb2.Summary(value=[old, image, new])
        writer.add_event(event_pb2.Event(wall_time=5.5, step=step, summary=summary))
    writer.close()
    (name,) = event_files(str(tmp_path))
    found = read((tmp_path / name).read_bytes())
    assert [one.step for one in found] == list(range(50))
    assert found[3].at == 5.5
    assert found[3].values == {"old": pytest.approx(3 / 7, rel=1e-6), "new": -3}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (1, block(5, struct.pack("<f", 0.1)), 0.1),
        (1, block(4, struct.pack("<f", 2.5)), 2.5),
        (1, b"\x2d" + struct.pack("<f", 1.5), 1.5),  # not packed
        (1, b"", 0.0),  # zero is the default, and not written
        (2, block(6, struct.pack("<d", 1 / 3)), 1 / 3),
        (3, block(7, varint(-4)), -4),
        (9, block(10, varint(7)), 7),
        (9, b"\x50" + varint(7), 7),
        (10, block(11, varint(1)), 1),
        (14, block(13, varint(0x3FC0)), 1.5),  # bfloat16
        (19, block(13, varint(0x3E00)), 1.5),  # float16
        (19, block(4, struct.pack("<e", 1.5)), 1.5),
    ],
)
def test_tensors_without_dimensions_are_scalars(kind: int, body: bytes, expected: float) -> None:
    assert values(tensor("x", kind, body)) == {"x": expected}


def test_other_tensors_and_texts_are_skipped() -> None:
    histogram = tensor("h", 2, block(6, struct.pack("<3d", 1, 2, 3)), 1, 3)
    text = tensor("t", 7, block(8, b"hello"))
    assert values(histogram, text, simple("x", 1.0)) == {"x": 1.0}


def test_nan_and_infinity_are_kept() -> None:
    found = values(simple("a", math.nan), simple("b", -math.inf))
    assert math.isnan(found["a"]) and found["b"] == -math.inf  # type: ignore[arg-type]


def test_tags_become_valid_names_of_metrics() -> None:
    assert list(values(simple("loss (ema)\n<b>", 1), simple("step", 2), simple("a" * 500, 3))) == [
        "loss__ema___b_", "step_", "a" * 200,
    ]  # fmt: skip


@given(st.lists(st.integers(1, 60), max_size=40))
def test_chunks_may_be_cut_anywhere(cuts: list[int]) -> None:
    data = scalars("loss", {step: step / 2 for step in range(20)})
    reader = EventReader()
    found = []
    for size in [*cuts, len(data)]:
        found += reader.feed(data[reader.position : reader.position + size])
    assert found == read(data)
    assert reader.position == len(data)


@given(st.integers(0, 400))
def test_reader_continues_from_a_saved_state(end: int) -> None:
    data = scalars("loss", {step: step / 2 for step in range(20)})
    first = EventReader("p", 3)
    found = first.feed(data[:end])
    second = EventReader()
    second.restore(first.state())
    found += second.feed(data[second.offset :])
    assert found == EventReader("p", 3).feed(data)


def test_large_records_are_skipped_without_reading_them() -> None:
    image = event(1, block(1, b"image") + block(4, block(4, bytes(3 << 20))))
    data = record(image) + record(event(2, simple("loss", 1.0)))
    reader = EventReader()
    assert reader.feed(data[: 1 << 20]) == []
    assert reader.position == len(record(image))  # the caller seeks
    assert reader.feed(data[reader.position :])[0].step == 2


def test_record_with_a_wrong_checksum_is_left_out() -> None:
    good = record(event(1, simple("loss", 1.0)))
    bad = bytearray(record(event(2, simple("loss", 2.0))))
    bad[-6] ^= 1
    reader = EventReader()
    found = reader.feed(good + bytes(bad) + record(event(3, simple("loss", 3.0))))
    assert [one.step for one in found] == [1, 3]
    assert reader.invalid_lines == 1
    assert reader.first_invalid is not None and reader.first_invalid.line == 2


def test_reader_waits_at_a_wrong_length_until_the_file_is_repaired() -> None:
    good = record(event(1, simple("loss", 1.0)))
    reader = EventReader()
    assert len(reader.feed(good + bytes(100))) == 1
    assert reader.is_stuck and reader.position == len(good)
    assert reader.feed(bytes(100)) == [] and reader.invalid_lines == 1  # counted once
    assert len(reader.feed(record(event(2, simple("loss", 1.0))))) == 1
    assert not reader.is_stuck


@given(st.binary(max_size=300))
def test_records_with_any_content_are_harmless(content: bytes) -> None:
    reader = EventReader()
    reader.feed(record(content) + record(block(5, content)) + record(block(5, block(1, content))))
    assert reader.feed(record(event(7, simple("x", 1.0))))[0].step == 7


def test_damaged_copies_of_a_file_are_harmless() -> None:
    data = scalars("loss", {step: step / 2 for step in range(20)})
    chance = random.Random(7)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        reader = EventReader()
        for report in reader.feed(bytes(damaged)):
            assert report.values == {"loss": report.step / 2}  # type: ignore[operator]


def test_reading_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format, "MAX_BYTES", 300)
    reader = EventReader()
    found = reader.feed(scalars("loss", {step: 0 for step in range(100)}))
    assert 0 < len(found) < 10 and reader.is_full
    assert "MiB" in str(reader.first_invalid)


# -- files of a job -------------------------------------------------------------------------------

OLD, NEW = "events.out.tfevents.1700000000.host.1.0", "events.out.tfevents.1700000900.host.2.0"


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def source(folder: Path, *, is_finished: bool = False) -> Source:
    return Source(
        job=1, attempts=0, stdout=None, is_finished=is_finished, output_dir=str(folder / "out")
    )


def test_event_files_are_metrics_of_the_job(tmp_path: Path) -> None:
    write(tmp_path / "out/runs/a" / OLD, scalars("loss", {1: 4.0, 2: 3.0}))
    files, job = JobFiles(str(tmp_path)), source(tmp_path)
    collector = collect(files, job, Collector())
    assert (collector.summary["loss"].last, collector.summary["loss"].max) == (3.0, 4.0)
    assert curve_of(files, job, "loss") == [(1, 4.0), (2, 3.0)]
    # What is appended is read by the next call, also by a collector that was saved.
    before = report_sizes(files, job)
    with open(tmp_path / "out/runs/a" / OLD, "ab") as file:
        file.write(record(event(3, simple("loss", 1.0))))
    assert report_sizes(files, job) != before
    restored = Collector.from_json(collector.to_json())
    assert collect(files, job, restored).summary["loss"].last == 1.0


def test_name_that_the_job_logged_itself_is_not_taken_from_event_files(tmp_path: Path) -> None:
    files, job = JobFiles(str(tmp_path)), source(tmp_path)
    write(tmp_path / "out" / OLD, scalars("loss", {1: 4.0}) + scalars("acc", {1: 0.5}))
    write(Path(files.metrics(1)), b'{"loss": 7, "step": 5}\n')
    summary = collect(files, job, Collector()).summary
    assert (summary["loss"].last, summary["loss"].n, summary["acc"].last) == (7, 1, 0.5)
    assert curve_of(files, job, "loss") == [(5, 7)]
    assert curve_of(files, job, "acc") == [(1, 0.5)]


def test_later_event_file_replaces_values_from_its_first_step_on(tmp_path: Path) -> None:
    write(tmp_path / "out" / NEW, scalars("loss", {3: 0.3, 4: 0.2}))
    write(tmp_path / "out" / OLD, scalars("loss", {1: 1.0, 2: 0.9, 3: 9.0, 4: 9.0, 5: 9.0}))
    files, job = JobFiles(str(tmp_path)), source(tmp_path)
    assert curve_of(files, job, "loss") == [(1, 1.0), (2, 0.9), (3, 0.3), (4, 0.2)]
    stat = collect(files, job, Collector()).summary["loss"]
    assert (stat.last, stat.max, stat.n) == (0.2, 1.0, 4)


def test_folders_with_the_same_tags_have_different_names(tmp_path: Path) -> None:
    for name in ("train", "validation"):
        write(tmp_path / "out/logs" / name / OLD, scalars("epoch_loss", {1: 1.0}))
    write(tmp_path / "out" / OLD, scalars("lr", {1: 0.1}))
    found = collect(JobFiles(str(tmp_path)), source(tmp_path), Collector()).summary
    assert list(found) == ["lr", "logs/train/epoch_loss", "logs/validation/epoch_loss"]


def test_damaged_event_file_is_reported_like_an_invalid_line(tmp_path: Path) -> None:
    write(tmp_path / "out" / OLD, scalars("loss", {1: 1.0}) + b"x" * 50)
    collector = collect(JobFiles(str(tmp_path)), source(tmp_path), Collector())
    assert collector.summary["loss"].last == 1.0
    assert report_error(collector) == (
        "record 3 of its event file: a wrong length; the rest is not read"
    )


def test_links_and_checkpoints_are_not_searched(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / OLD, scalars("secret", {1: 1.0}))
    write(tmp_path / "out/checkpoints" / OLD, scalars("old", {1: 1.0}))
    os.symlink(tmp_path / "elsewhere", tmp_path / "out/runs")
    os.symlink(tmp_path / "elsewhere" / OLD, tmp_path / "out" / OLD)
    os.mkfifo(tmp_path / "out" / NEW)
    assert event_files(str(tmp_path / "out")) == ()
    assert list(new_reports(str(tmp_path / "out"), {})) == []


def test_unchanged_folders_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    write(folder / "a/b/notes.txt", b"")
    for path in (folder, folder / "a", folder / "a/b"):
        os.utime(path, (1e9, 1e9))
    assert event_files(str(folder)) == ()

    def fail(*words: object) -> None:
        raise AssertionError("the folder was read again")

    with monkeypatch.context() as patched:
        patched.setattr(event_search, "Walk", fail)
        assert event_files(str(folder)) == ()
        assert event_files(str(tmp_path / "missing")) == ()
    write(folder / "a/b" / OLD, HEADER_EVENT)
    assert event_files(str(folder)) == (f"a/b/{OLD}",)


def test_search_has_limits(tmp_path: Path) -> None:
    write(tmp_path / "out/1/2/3" / OLD, b"")
    write(tmp_path / "out/1/2/3/4" / OLD, b"")
    assert event_files(str(tmp_path / "out")) == (f"1/2/3/{OLD}",)
    for number in range(40):
        write(tmp_path / "many" / f"events.out.tfevents.{number}", scalars("x", {number: 1.0}))
    readers: dict[str, EventReader] = {}
    assert len(list(new_reports(str(tmp_path / "many"), readers))) == len(readers) == 32
