"""Images, figures, tables and files that a job logs."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path

import numpy
import pytest
from PIL import Image

import stoker
from stoker.functions import media
from stoker.functions.media import png_of_array

RED = numpy.zeros((4, 6, 3), numpy.uint8) + numpy.array([200, 10, 10], numpy.uint8)


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output folder of a job."""
    for key in list(os.environ):
        if key.startswith("STOKER_"):
            monkeypatch.delenv(key)
    monkeypatch.setenv("STOKER_OUTPUT_DIR", str(tmp_path / "out"))
    monkeypatch.setenv("STOKER_ATTEMPT", "2")
    monkeypatch.setattr(media, "_counts", {})
    monkeypatch.setattr(media, "_warned", set())
    return tmp_path / "out"


def files(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


@pytest.mark.parametrize(
    "array",
    [
        RED,
        RED.transpose(2, 0, 1),  # channels first
        RED[:, :, 0],
        RED[:, :, :1],
        numpy.dstack([RED, RED[:, :, 0]]),
        RED / 255.0,
        RED[:, :, 0] > 3,
        RED.astype(numpy.float32)[::2] / 255,
    ],
)
def test_arrays_become_png_files_that_pillow_reads(array: numpy.ndarray) -> None:
    import io

    image = Image.open(io.BytesIO(png_of_array(array)))
    image.load()
    assert image.size == (6, 2 if len(array) == 2 else 4)
    first = image.convert("RGBA").getpixel((0, 0))
    assert isinstance(first, tuple) and first[0] in (200, 255)


def test_images_of_all_kinds_are_saved_by_name_and_step(output: Path, tmp_path: Path) -> None:
    stoker.log_image("samples", RED, step=10)
    stoker.log_image("samples", Image.fromarray(RED), step=numpy.int64(20))
    Image.fromarray(RED).save(tmp_path / "x.jpg")
    stoker.log_image("val/from path", tmp_path / "x.jpg")
    stoker.log_image("val/from path", (tmp_path / "x.jpg").read_bytes())
    assert files(output) == [
        "media/index.jsonl", "media/samples/10.png", "media/samples/20.png",
        "media/val/from path/0.jpg", "media/val/from path/1.jpg",
    ]  # fmt: skip
    lines = [json.loads(line) for line in (output / "media/index.jsonl").read_text().splitlines()]
    assert {key: lines[1][key] for key in ("attempt", "kind", "name", "step", "file")} == {
        "attempt": 2, "kind": "image", "name": "samples", "step": 20,
        "file": "media/samples/20.png",
    }  # fmt: skip


def test_figure_of_matplotlib_is_saved(output: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    stoker.log_figure("roc", figure, step=3)
    with Image.open(output / "media/roc/3.png") as image:
        assert image.size == (100, 100)


def test_tables_are_saved_as_csv(output: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = [["a", "b"], ["1", "x"], ["2", ""]]
    for rows, columns in (
        ([{"a": 1, "b": "x"}, {"a": 2}], None),
        ([(1, "x"), (2, None)], ["a", "b"]),
        ({"a": [1, 2], "b": ["x", None]}, None),
        (polars.DataFrame({"a": [1, 2], "b": ["x", None]}), None),
        (pandas.DataFrame({"a": [1, 2], "b": ["x", ""]}), None),
    ):
        stoker.log_table("t", rows, columns)
    for step in range(5):
        with open(output / f"media/t/{step}.csv", newline="") as file:
            assert list(csv.reader(file)) == expected, step


def test_artifacts_are_copied_without_links(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/weights.pt").write_bytes(b"123")
    (folder / "secret").symlink_to("/etc/passwd")
    stoker.log_artifact(folder)
    stoker.log_artifact(folder / "sub/weights.pt", name="best/w.pt")
    assert files(output) == [
        "artifacts/best/w.pt", "artifacts/model/sub/weights.pt", "media/index.jsonl",
    ]  # fmt: skip
    with pytest.raises(FileNotFoundError):
        stoker.log_artifact(tmp_path / "missing")


@pytest.mark.parametrize(
    "name",
    ["", "..", "../x", "/x", "x/../../y", "a//b", ".hidden", "x\ny", "x\0", "<b>", "a" * 201,
     "x/", " x", "\udcff", 7],
)  # fmt: skip
def test_names_that_are_not_plain_paths_are_refused(output: Path, name: str) -> None:
    with pytest.raises(TypeError, match="is not a valid name"):
        stoker.log_image(name, RED)
    with pytest.raises(TypeError, match="is not a valid name"):
        stoker.log_artifact(__file__, name)
    assert not output.exists()


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (numpy.zeros((2, 2, 7), numpy.uint8), "shape"),
        (numpy.zeros((0, 2), numpy.uint8), "shape"),
        (numpy.zeros((2, 2), numpy.int32), "uint8, bool or float"),
        (numpy.array([[0.0, 255.0]]), "from 0 to 1"),
        (b"<svg onload=alert(1)>", "not a PNG, JPEG, GIF or WebP"),
        (object(), "takes an array"),
    ],
)
def test_values_that_are_not_images_are_refused(output: Path, image: object, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        stoker.log_image("x", image)


@pytest.mark.parametrize("step", [-1, 0.5, float("nan"), 1e300])
def test_steps_are_whole_numbers(output: Path, step: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        stoker.log_image("x", RED, step=step)


def test_rows_that_do_not_match_the_columns_are_refused(output: Path) -> None:
    for rows, columns in (
        ([(1, 2, 3)], ["a", "b"]), (["ab"], ["a", "b"]), ([(1, 2)], None), (7, None),
        ({"a": [1], "b": []}, None),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            stoker.log_table("x", rows, columns)


def test_number_of_files_of_a_name_is_limited(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(media, "MAX_FILES_PER_NAME", 2)
    for _ in range(5):
        stoker.log_image("x", RED)
    assert len(files(output / "media/x")) == 2
    assert capsys.readouterr().err == "stoker: x has 2 files; further ones are not written\n"


def test_failing_write_is_a_warning_and_leaves_no_file(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output.mkdir()
    (output / "media").write_text("in the way")
    stoker.log_image("x", RED)
    stoker.log_image("x", RED)
    assert capsys.readouterr().err.count("stoker: cannot write media") == 1
    assert files(output) == ["media"]


def test_calls_outside_a_job_check_their_values_and_write_nothing(
    output: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STOKER_OUTPUT_DIR")
    monkeypatch.chdir(tmp_path)
    stoker.log_image("x", RED)
    stoker.log_table("x", [{"a": 1}])
    stoker.log_artifact(__file__)
    with pytest.raises(TypeError):
        stoker.log_image("x", object())
    assert files(tmp_path) == []


def test_png_is_written_without_pillow(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    stoker.log_image("x", RED, step=0)
    assert (output / "media/x/0.png").read_bytes().startswith(b"\x89PNG")
