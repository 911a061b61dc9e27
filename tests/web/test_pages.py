"""The bundle of the page: served from memory, cached where its name never changes."""

from __future__ import annotations

import gzip
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from stoker.web.static_files import Pages


def ask(pages: Pages, name: str, **headers: str) -> Response | None:
    sent = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
    return pages.get(Request({"type": "http", "method": "GET", "headers": sent}), name)


def bundle(folder: Path) -> Pages:
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "assets" / "app-4XK2B7QD.js").write_text("let x = 1;\n" * 100)
    (folder / "assets" / "plain.js").write_text("x")
    (folder / "notes.py").write_text("secret")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "a.js").write_text("secret")
    return Pages(str(folder))


def test_names_with_a_hash_are_kept_for_ever_and_others_asked_for_again(tmp_path: Path) -> None:
    pages = bundle(tmp_path)
    fixed, index = ask(pages, "assets/app-4XK2B7QD.js"), ask(pages, "index.html")
    assert fixed is not None and index is not None
    assert "immutable" in fixed.headers["cache-control"]
    assert index.headers["cache-control"] == "no-cache"
    assert index.headers["content-type"].startswith("text/html")
    again = ask(pages, "index.html", if_none_match=index.headers["etag"])
    assert again is not None and again.status_code == 304


def test_files_go_packed_to_those_who_can_unpack(tmp_path: Path) -> None:
    packed = ask(bundle(tmp_path), "assets/app-4XK2B7QD.js", accept_encoding="gzip, br")
    assert packed is not None
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(bytes(packed.body)) == b"let x = 1;\n" * 100


def test_nothing_but_the_bundle_is_served(tmp_path: Path) -> None:
    pages = bundle(tmp_path)
    for name in ("notes.py", ".hidden/a.js", "../x", "assets", "assets/", "/etc/passwd", ""):
        assert ask(pages, name) is None, name


def test_without_a_bundle_a_plain_page_says_how_to_make_it(tmp_path: Path) -> None:
    page = ask(Pages(str(tmp_path / "none")), "index.html")
    assert page is not None
    assert b"npm run build" in bytes(page.body)
    assert b"<script" not in bytes(page.body) and b"style=" not in bytes(page.body)
