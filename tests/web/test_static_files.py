"""The files of the web UI: served from memory, and cached if their name contains a hash."""

from __future__ import annotations

import gzip
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from stoker.web.static_files import StaticFiles


def get(files: StaticFiles, name: str, **headers: str) -> Response | None:
    sent = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
    return files.get(Request({"type": "http", "method": "GET", "headers": sent}), name)


def bundle(folder: Path) -> StaticFiles:
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "assets" / "app-4XK2B7QD.js").write_text("let x = 1;\n" * 100)
    (folder / "assets" / "plain.js").write_text("x")
    (folder / "notes.py").write_text("secret")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "a.js").write_text("secret")
    return StaticFiles(str(folder))


def test_file_with_a_hash_in_its_name_is_immutable_and_others_are_revalidated(
    tmp_path: Path,
) -> None:
    files = bundle(tmp_path)
    fixed, index = get(files, "assets/app-4XK2B7QD.js"), get(files, "index.html")
    assert fixed is not None and index is not None
    assert "immutable" in fixed.headers["cache-control"]
    assert index.headers["cache-control"] == "no-cache"
    assert index.headers["content-type"].startswith("text/html")
    again = get(files, "index.html", if_none_match=index.headers["etag"])
    assert again is not None and again.status_code == 304


def test_file_is_compressed_if_the_client_accepts_gzip(tmp_path: Path) -> None:
    packed = get(bundle(tmp_path), "assets/app-4XK2B7QD.js", accept_encoding="gzip, br")
    assert packed is not None
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(bytes(packed.body)) == b"let x = 1;\n" * 100


def test_only_files_of_the_bundle_are_served(tmp_path: Path) -> None:
    files = bundle(tmp_path)
    for name in ("notes.py", ".hidden/a.js", "../x", "assets", "assets/", "/etc/passwd", ""):
        assert get(files, name) is None, name


def test_missing_bundle_is_replaced_by_build_instructions(tmp_path: Path) -> None:
    page = get(StaticFiles(str(tmp_path / "none")), "index.html")
    assert page is not None
    assert b"npm run build" in bytes(page.body)
    assert b"<script" not in bytes(page.body) and b"style=" not in bytes(page.body)
