"""The files of a job through the web API: nothing leaves the folder, nothing is active content."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stoker.client.queue import Queue
from stoker.engine.store import job_queries
from stoker.features.artifacts.artifacts import list_artifacts
from stoker.features.artifacts.verbs.pull import files_to_pull
from stoker.features.artifacts.web import disposition
from stoker.settings import Settings
from tests.features.results.event_bytes import scalars
from tests.lab import Lab
from tests.web import hostile_files
from tests.web.cluster_rows import ClusterRows
from tests.web.conftest import free_port
from tests.web.site import Reply, Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with one job, whose folder is full of hostile files."""
    folder: Path = tmp_path_factory.mktemp("artifacts")
    lab = Lab(folder, 1)
    lab.submit("--hold", "true")
    hostile_files.fill(lab.state_dir / "jobs/0/1", folder / "outside")
    yield Site(lab, "--port", free_port())
    lab.close()


def listed(site: Site) -> dict[str, Any]:
    return {one["path"]: one for one in site.ok("/api/jobs/1/files")["files"]}


def ask(site: Site, what: str, path: str, **headers: str) -> Reply:
    key = quote(os.fsencode(path), safe="/")
    return site.get(f"/api/jobs/1/files/{what}?file={quote(key, safe='')}", **headers)


def shown(site: Site, path: str) -> Any:
    reply = ask(site, "preview", path)
    assert reply.status == 200, reply
    return reply.json


def test_list_has_regular_files_only(site: Site) -> None:
    answer = site.ok("/api/jobs/1/files")
    found = listed(site)
    assert answer["skipped"] == 5 and answer["is_cut"]  # 4 links, a FIFO; a folder is too deep
    for path in ("link.txt", "linked/secret.txt", "media/up", "fifo.txt", "loop"):
        assert path not in found
    assert not any("too deep" in path for path in found)
    assert {os.fsdecode(name) for name in hostile_files.NAMES} <= set(found)
    assert found["sound.wav"]["kind"] == "audio" and found["page.html"]["kind"] == "text"
    assert found["model.pt"]["kind"] == "checkpoint" and found["model.pt"]["size"] == 5120
    (series,) = answer["series"]
    assert series["name"] == "samples"
    assert [one["step"] for one in series["steps"]] == [1, 2, 10]


@pytest.mark.parametrize("what", ["preview", "content", "download"])
@pytest.mark.parametrize(
    "path",
    ["../../../outside/secret.txt", "/etc/passwd", "link.txt", "linked/secret.txt", "fifo.txt",
     "loop", "media", "media/", ".", "..", "media/../sound.wav", "media//samples/1.png",
     "./sound.wav",
     "missing", "x\0y", "sound.wav/x", "a" * 5000],
)  # fmt: skip
def test_path_that_is_no_file_of_the_job_is_not_found(site: Site, what: str, path: str) -> None:
    reply = ask(site, what, path)
    assert reply.status == 404, reply
    assert b"SECRET" not in reply.body and b"root:" not in reply.body
    assert reply.json["error"]["message"].startswith("job 1 has no file")


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("page.html", "text", "<script>"),
        ("drawing.svg", "text", "onload"),
        ("script.png", "text", "<!doctype"),
        ("small.json", "text", '"a": ['),
        ("deep.json", "text", "[[["),
        ("broken.csv", "text", "xxx"),
    ],
)
def test_text_is_shown_as_text(site: Site, path: str, kind: str, words: str) -> None:
    found = shown(site, path)
    assert found["kind"] == kind and words in found["text"]
    assert len(found["text"]) <= 70_000


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("bomb.png", "50000 x 50000 pixels"),
        ("wide.gif", "65535 x 65535 pixels"),
        ("model.pt", "binary"),
        ("damaged.parquet", "damaged"),
    ],
)
def test_file_that_cannot_be_shown_says_why(site: Site, path: str, words: str) -> None:
    found = shown(site, path)
    assert found["kind"] == "none" and words in found["note"]
    assert ask(site, "content", path).status == 400


def test_table_is_shown_with_its_first_rows(site: Site) -> None:
    found = shown(site, "table.csv")
    assert found["kind"] == "table" and found["columns"] == ["name", "note"]
    assert found["rows"][0] == ["<b>x</b>", "=cmd()"] and len(found["rows"]) == 200
    assert found["note"] == "the first 200 rows"


def test_image_is_found_by_its_content_and_sent_with_its_type(site: Site) -> None:
    for path in ("media/samples/1.png", "picture.txt"):
        found = shown(site, path)
        assert (found["kind"], found["content_type"]) == ("image", "image/png")
        assert (found["width"], found["height"]) == (8, 8)
        reply = ask(site, "content", path)
        assert reply.status == 200 and reply.body.startswith(b"\x89PNG")
        assert reply.headers["content-type"] == "image/png"
        check_harmless(reply)
    for path in ("page.html", "drawing.svg", "script.png", "table.csv", "model.pt"):
        assert ask(site, "content", path).status == 400, path


def check_harmless(reply: Reply) -> None:
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["x-frame-options"] == "DENY"
    policy = "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert reply.headers["content-security-policy"] == policy


def test_every_download_is_an_attachment_without_a_type(site: Site) -> None:
    for path, one in listed(site).items():
        reply = ask(site, "download", path)
        assert reply.status == 200 and len(reply.body) == one["size"], path
        assert reply.headers["content-type"] == "application/octet-stream"
        assert reply.headers["content-disposition"].startswith('attachment; filename="')
        check_harmless(reply)


def test_name_in_the_header_of_a_download_is_plain() -> None:
    assert disposition('a"; x\r\nSet-Cookie: y\u202e.txt') == (
        'attachment; filename="a__ x__Set-Cookie_ y_.txt"; '
        "filename*=UTF-8''a%22%3B%20x%0D%0ASet-Cookie%3A%20y%E2%80%AE.txt"
    )


@pytest.mark.parametrize(
    ("wanted", "status", "part", "shown"),
    [
        ("bytes=0-9", 206, slice(0, 10), "bytes 0-9/5120"),
        ("bytes=5000-", 206, slice(5000, None), "bytes 5000-5119/5120"),
        ("bytes=-10", 206, slice(-10, None), "bytes 5110-5119/5120"),
        ("bytes=5100-99999", 206, slice(5100, None), "bytes 5100-5119/5120"),
        ("bytes=0-", 200, slice(None), None),
        ("bytes=9-3", 200, slice(None), None),
        ("bytes=0-1,5-6", 200, slice(None), None),
        ("lines=1-2", 200, slice(None), None),
        ("bytes=5120-", 416, slice(0, 0), "bytes */5120"),
    ],
)
def test_part_of_a_file_can_be_requested(
    site: Site, wanted: str, status: int, part: slice, shown: str | None
) -> None:
    reply = ask(site, "download", "model.pt", Range=wanted)
    assert reply.status == status
    assert reply.body == (bytes(range(256)) * 20)[part]
    assert reply.headers.get("content-range") == shown


def test_folder_that_was_replaced_by_a_link_is_not_listed(site: Site) -> None:
    folder = site.lab.state_dir / "jobs/0/1"
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.symlink_to(site.lab.folder / "outside")
    try:
        assert site.ok("/api/jobs/1/files")["files"] == []
        assert ask(site, "download", "secret.txt").status == 404
    finally:
        folder.unlink()
        moved.rename(folder)


def test_parquet_is_shown_as_a_table(site: Site) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = site.lab.state_dir / "jobs/0/1/tables"
    folder.mkdir()
    table = pyarrow.table({"x": list(range(1000)), "y": ["<i>"] * 1000})
    parquet.write_table(table, folder / "t.parquet")
    found = shown(site, "tables/t.parquet")
    shutil.rmtree(folder)
    assert (found["kind"], found["columns"], found["rows"][1]) == (
        "table",
        ["x", "y"],
        ["1", "<i>"],
    )
    assert len(found["rows"]) == 200 and found["note"] == "200 of 1000 rows"


def test_huge_cell_of_a_small_parquet_file_is_cut(site: Site) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = site.lab.state_dir / "jobs/0/1/bomb.parquet"
    table = pyarrow.table({"x": ["a" * 50_000_000], "y" * 5000: [1]})
    parquet.write_table(table, path, compression="zstd", write_statistics=False)
    assert path.stat().st_size < 100_000
    found = shown(site, "bomb.parquet")
    path.unlink()
    assert [len(cell) for cell in found["rows"][0]] == [200, 1]
    assert len(found["columns"][1]) == 200


def test_show_lists_the_files_in_one_line(site: Site) -> None:
    (line,) = [one for one in site.lab.ok("show", "1").splitlines() if one.startswith("files")]
    assert "more than" in line and "samples (3 images)" in line
    assert "\x1b" not in line and "\u202e" not in line


def test_scalars_of_event_files_are_metrics_of_the_job(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    folder = site.lab.state_dir / f"jobs/0/{job}"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.host").write_bytes(scalars("loss", {1: 1.0}))
    assert site.ok(f"/api/jobs/{job}")["job"]["metrics"]["loss"]["last"] == 1.0


def test_job_without_files_has_an_empty_list(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    answer = site.ok(f"/api/jobs/{job}/files")
    assert answer["files"] == []
    assert "files" not in site.lab.ok("show", str(job)).split("\n")[-1]
    assert site.get("/api/jobs/999/files").status == 404


def test_files_of_a_job_on_a_backend_are_read_from_its_folder(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 0)
    rows = ClusterRows(lab)
    job = rows.finished("python train.py")
    shared = tmp_path / "shared"
    with rows.db.transaction():
        rows.db.execute("UPDATE backends SET folder = ?", (os.fsencode(shared),))
    (shared / f"jobs/0/{job}/media/x").mkdir(parents=True)
    (shared / f"jobs/0/{job}/media/x/1.png").write_bytes(hostile_files.gray(2, 2, 9))
    queue = Queue(Settings(state_dir=str(lab.state_dir)))
    try:
        found = list_artifacts(queue.settings, job_queries.job(queue.db, job))
        pulled = [one.name for one in files_to_pull(queue, [job])]
    finally:
        queue.close()
        rows.db.close()
        lab.close()
    assert [one.path for one in found.files] == ["media/x/1.png"]
    assert [one.name for one in found.series] == ["x"]
    assert f"{job}/output/media/x/1.png" in pulled
