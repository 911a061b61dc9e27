"""Logs as rendered lines, of existing jobs only."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.live import log_search
from stoker.client.live.log_text import log_text
from stoker.text.logs.log_lines import LogLines
from stoker.text.sizes import format_size
from tests.web.site import Site


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def written(site: Site, data: bytes, *flags: str) -> int:
    path = site.lab.folder / "data"
    path.write_bytes(data)
    job = site.lab.submit(*flags, f"cat {path}")
    site.lab.wait(job)
    return job


def log(site: Site, job: int, query: str = "") -> dict[str, Any]:
    return dict(site.ok(f"/api/jobs/{job}/log?{query}"))


def shown(part: dict[str, Any]) -> list[str]:
    return ["".join(span["text"] for span in line["spans"]) for line in part["lines"]]


class Reader:
    """Keeps lines as the web UI does: a response replaces the lines from its first offset on."""

    def __init__(self, part: dict[str, Any]) -> None:
        self.lines: list[dict[str, Any]] = []
        self.add(part)

    def add(self, part: dict[str, Any]) -> None:
        self.lines = [line for line in self.lines if line["at"] < part["from"]] + part["lines"]
        self.continuation = f"start={part['start']}&from={part['to']}"
        self.to = part["to"]

    @property
    def shown(self) -> list[str]:
        return shown({"lines": self.lines})


def test_log_starts_with_its_end_and_ranges_join_without_gaps(site: Site) -> None:
    text = "".join(f"zeile {n} äöü €\n" for n in range(2000))
    data = text.encode()
    job = written(site, data)
    tail = log(site, job, "tail=1000")
    assert tail["size"] == tail["to"] == len(data)
    assert tail["is_over"] is True
    assert 900 < tail["to"] - tail["from"] <= 1000
    assert shown(tail) == text.splitlines()[-len(tail["lines"]) :]
    assert data[: tail["from"]].endswith(b"\n")
    reader = Reader(log(site, job, "from=0&to=997"))
    while reader.to < len(data):
        before = reader.to
        reader.add(log(site, job, f"{reader.continuation}&to={before + 997}"))
        assert before < reader.to <= before + 997
    assert reader.shown == text.splitlines()
    for line in reader.lines:
        assert line["at"] == 0 or data[line["at"] - 1 : line["at"]] == b"\n"


def test_earlier_ranges_end_where_the_known_lines_start(site: Site) -> None:
    text = "".join(f"zeile {n} äöü €\n" for n in range(2000))
    job = written(site, text.encode())
    part = log(site, job, "tail=1000")
    lines = shown(part)
    while part["from"]:
        to = part["from"]
        part = log(site, job, f"to={to}&tail=5000")
        assert part["from"] < to == part["to"]
        lines = shown(part) + lines
    assert lines == text.splitlines()


def test_response_is_never_larger_than_a_mebibyte(site: Site) -> None:
    job = written(site, b"x" * (3 << 20))
    part = log(site, job, "from=0&to=3145728")
    assert (part["from"], part["to"], part["size"]) == (0, 1 << 20, 3 << 20)
    assert site.get(f"/api/jobs/{job}/log?tail=99999999").status == 400


def test_number_of_lines_in_a_response_is_limited(site: Site) -> None:
    data = b"\n" * 300_000
    job = written(site, data)
    for query in ("tail=1048576", "from=0", "to=290000&tail=1048576"):
        part = log(site, job, query)
        assert len(part["lines"]) == 20_000, query
        assert part["to"] - part["from"] == 20_000, query
    assert len(log(site, job, "match=200000&tail=1048576")["lines"]) == 40_000


def test_invalid_utf8_is_shown_as_escapes(site: Site) -> None:
    job = written(site, b"a\xff\xfeb\x00c\xe2\x80\xae\n\xe2\x82")
    assert shown(log(site, job)) == ["a\\xff\\xfebc\\u202e", "\\xe2\\x82"]


def test_raw_lines_show_control_characters(site: Site) -> None:
    job = written(site, b"10%\r\x1b[1m20%\x00\xff\n\tdone\n")
    part = log(site, job, "raw=1")
    assert part["lines"] == [
        {"at": 0, "spans": [{"text": "10%␍␛[1m20%␀\\xff"}]},
        {"at": 14, "spans": [{"text": "\tdone"}]},
    ]


def test_lines_have_the_colors_of_the_terminal(site: Site) -> None:
    job = written(site, b"a \x1b[1;32mok\x1b[0m \x1b[48;5;208mo\n\x1b[mb\n")
    assert log(site, job)["lines"] == [
        {
            "at": 0,
            "spans": [
                {"text": "a "},
                {"text": "ok", "classes": "bold f2"},
                {"text": " "},
                {"text": "o", "background": "rgb(255 135 0)"},
            ],
        },
        {"at": 29, "spans": [{"text": "b"}]},
    ]


def test_followed_progress_bars_end_as_in_stoker_log(site: Site) -> None:
    """One bar that overwrites its line, then two that move the cursor up, over many requests."""
    bar = "".join(f"\repoch {n}%" for n in range(101))
    nested = "".join(f"\x1b[A\router {n}\ninner {n}" for n in range(1, 300))
    data = f"start\n{bar}\nouter 0\ninner 0{nested}\ndone\n".encode()
    job = written(site, data)
    reader = Reader(log(site, job, "from=0&to=50"))
    while reader.to < len(data):
        reader.add(log(site, job, f"{reader.continuation}&to={reader.to + 50}"))
    expected = ["start", "epoch 100%", "outer 299", "inner 299", "done"]
    assert reader.shown == expected == log_text(site.lab.job(job)["stdout"]).splitlines()


def test_continuation_does_not_depend_on_what_the_server_remembers(site: Site) -> None:
    data = b"one\n10%\r20%\ntwo\x1b[A\r30%\nthree\n"
    job = written(site, data)
    first = log(site, job, "from=0&to=16")
    assert shown(first) == ["one", "20%", "two"]
    for _ in range(3):  # the second time, the rendering has been taken by the first request
        part = log(site, job, f"start=0&from={first['to']}")
        assert (part["start"], part["from"], shown(part)) == (0, 4, ["30%", "three"])
    part = log(site, job, "start=99999999&from=16")
    reader = Reader(first)
    reader.add(part)
    assert reader.shown == ["one", "30%", "three"]


def test_end_of_a_long_progress_bar_is_one_line(site: Site) -> None:
    bar = b"".join(b"\rstep %07d of 9999999" % n for n in range(20_000))
    job = written(site, b"first\nsecond\n" + bar)
    part = log(site, job)
    assert shown(part) == ["step 0019999 of 9999999"]
    part = log(site, job, f"to={part['from']}")
    assert (part["from"], shown(part)) == (0, ["first", "second"])


def test_line_of_a_match_is_found_across_cursor_movements(site: Site) -> None:
    head = b"".join(b"line %d\n" % n for n in range(20_000))
    data = head + b"outer 0\ninner 0\x1b[A\router needle\nrest\n" + head
    job = written(site, data)
    at = site.ok(f"/api/jobs/{job}/find?q=needle")["at"]
    part = log(site, job, f"match={at}")
    [line] = [line for line in part["lines"] if line["at"] == part["match"]]
    assert shown({"lines": [line]}) == ["outer needle"]
    assert part["from"] < at < part["to"]
    assert part["to"] - part["from"] < 400_000


def test_job_that_has_not_started_has_an_empty_log(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    assert log(site, job) == {"schema": 2, "attempt": 0, "size": 0, "start": 0, "from": 0, "to": 0,
                              "lines": [], "match": None, "is_over": False}  # fmt: skip
    assert site.get(f"/api/jobs/{job}/log/download").status == 404


def test_each_attempt_has_its_own_log(site: Site) -> None:
    job = site.lab.submit("--retries", "1", 'echo "attempt $STOKER_ATTEMPT"; exit 1')
    site.lab.wait(job)
    assert shown(log(site, job, "attempt=1")) == ["attempt 1"]
    assert shown(log(site, job)) == ["attempt 2"]
    assert site.get(f"/api/jobs/{job}/log?attempt=3").status == 404


def test_stderr_in_a_separate_file_is_read(site: Site) -> None:
    job = site.lab.submit("-e", "err.txt", "echo out; echo err >&2")
    site.lab.wait(job)
    assert shown(log(site, job)) == ["out"]
    assert shown(log(site, job, "stream=stderr")) == ["err"]


def test_download_is_the_raw_file_and_never_rendered_as_html(site: Site) -> None:
    data = b"<script>alert(1)</script>\n" + os.urandom(2 << 20)
    job = written(site, data)
    reply = site.get(f"/api/jobs/{job}/log/download")
    assert reply.body == data
    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.headers["content-disposition"] == f'attachment; filename="job-{job}-1.log"'
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_search_finds_text_and_errors(site: Site) -> None:
    head = b"all is fine, error 0.02\n" * 60_000  # more than one block
    job = written(site, head + b"Needle here\nTraceback (most recent call last):\n  x\n")
    assert site.ok(f"/api/jobs/{job}/find?q=needle")["at"] == len(head)
    assert site.ok(f"/api/jobs/{job}/find?q=needle&from={len(head) + 1}")["at"] is None
    assert site.ok(f"/api/jobs/{job}/find?q=.*")["at"] is None
    assert site.ok(f"/api/jobs/{job}/find?error=1")["at"] == len(head) + len(b"Needle here\n")


def found(site: Site, job: int, query: str) -> tuple[object, object, object]:
    answer = site.ok(f"/api/jobs/{job}/find?{query}")
    return answer["at"], answer["nth"], answer["total"]


def test_search_matches_visible_text_only(site: Site) -> None:
    lines = (
        b"one\n", b"\x1b[31mred nee\x1b[0mdle\r\n", b"bar 10% lost\rbar 100% kept\n",
        b"\x1b]0;hidden title\x07plain\n", b"Red Needle\n", b"\x1b[1mTraceback\x1b[0m (most recent",
        b" call last):\n",
    )  # fmt: skip
    data = b"".join(lines)
    job = written(site, data)
    second = data.index(b"Red Needle")
    assert found(site, job, "q=red+needle") == (data.index(b"red nee"), 1, 2)
    assert found(site, job, f"q=red+needle&from={data.index(b'red nee') + 1}") == (second, 2, 2)
    assert found(site, job, f"q=red+needle&from={second + 1}") == (None, None, 2)
    assert found(site, job, "q=kept")[0] == data.index(b"kept")
    for unseen in ("lost", "hidden", "31m"):
        assert found(site, job, f"q={unseen}") == (None, None, 0), unseen
    at = site.ok(f"/api/jobs/{job}/find?error=1")["at"]
    assert data[: int(at)].count(b"\n") == 5  # in the line of the traceback


def test_search_finds_the_last_state_of_a_bar_before_color_sequences(site: Site) -> None:
    job = written(site, b"bar 10%\rbar 100%\r\x1b[0m\nbar 5%\r\x1b[0mdone\n")
    assert found(site, job, "q=100%25") == (12, 1, 1)
    assert found(site, job, "q=done")[1:] == (1, 1)
    for unseen in ("10%25", "5%25"):
        assert found(site, job, f"q=bar+{unseen}") == (None, None, 0), unseen


@given(
    st.lists(
        st.sampled_from(
            [b"a", b"b", "é".encode(), b"\n", b"\r", b"\t", b"\x00", b"\x1b[31m", b"\x1b]0;t\x07",
             b"\x1b(B", b"\x1b[?25l"]
        ),
        max_size=16,
    )
)  # fmt: skip
def test_searched_text_is_the_rendered_text(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    lines = LogLines(0)
    lines.feed(data)
    searched = log_search._visible(data)[0].decode().split("\n")
    assert searched[: -1 if not searched[-1] else None] == shown({"lines": lines.take()[1]})


def test_log_too_large_for_counting_matches_is_still_searched(site: Site) -> None:
    filler = b"\x1b[2mnothing here\x1b[0m\n" * 420_000  # over 8 MiB
    job = written(site, filler + b"nee\x1b[0mdle\n")
    assert found(site, job, "q=needle") == (len(filler), None, None)


def test_removed_middle_of_a_log_is_noted(site: Site) -> None:
    job = written(site, b"h" * 8191 + b"\n" + b"m" * (1 << 20) + b"t" * 99 + b"\n")
    path = site.lab.job(job)["stdout"]
    from stoker.engine.supervisor.logs import cap_log

    cap_log(path, 65536)
    part = log(site, job, "from=0&to=100000")
    start = part["to"]
    assert start > 900_000, "a range does not end inside of the hole"
    note = f"... {format_size(start - 8192)} dropped ..."
    assert shown(part) == ["h" * 8191, note]
    assert [line["at"] for line in part["lines"]] == [0, 8192]
    assert note in log_text(path).splitlines()
    reader = Reader(part)
    reader.add(log(site, job, reader.continuation))
    assert reader.lines[-1]["at"] == start
    assert reader.shown[-1].endswith("m" + "t" * 99)
    inside = log(site, job, f"to={8192 + (1 << 20) + 100}&tail=500000")
    assert (inside["from"], shown(inside)[0]) == (8192, note), "the note is about the whole hole"
    body = site.get(f"/api/jobs/{job}/log/download").body
    assert len(body) == 8192 + (8192 + (1 << 20) + 100 - start)
    assert b"\0" not in body


def test_link_or_pipe_in_place_of_a_log_is_not_read(site: Site) -> None:
    lab = site.lab
    secret = lab.folder / "secret"
    secret.write_text("secret")
    job = written(site, b"mine")
    path = lab.job(job)["stdout"]
    os.unlink(path)
    os.symlink(secret, path)
    for route in ("log", "log/download", "find?q=secret"):
        reply = site.get(f"/api/jobs/{job}/{route}")
        assert reply.status == 404, reply
        assert b"secret" not in reply.body
    os.unlink(path)
    os.mkfifo(path)
    assert site.get(f"/api/jobs/{job}/log").status == 404


TRAVERSAL = (
    "/api/jobs/../../etc/passwd",
    "/api/jobs/..%2f..%2fetc%2fpasswd/log",
    "/api/jobs/%00/log",
    "/api/jobs/1/log?attempt=../../x",
    "/api/jobs/1/log?attempt=-1",
    "/api/jobs/1/log?stream=/etc/passwd",
    "/api/jobs/1/log/../../../../etc/passwd",
    "/assets/../../../../etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/assets/%2e%2e/%2e%2e/server.py",
    "/static/../server.py",
    "//etc/passwd",
    "/%2fetc%2fpasswd",
    "/assets/..\\..\\server.py",
    "/index.html%00.js",
    "/web.token",
    "/../web.token",
    "/.git/config",
    "/api/gpus/..%2f..%2fetc%2fpasswd/trace",
    "/api/sweeps/..%2f..%2fetc/results",
)


@pytest.mark.parametrize("path", TRAVERSAL)
def test_path_traversal_reaches_no_file(site: Site, path: str) -> None:
    written(site, b"x")
    reply = site.get(path)
    assert reply.status in (400, 404), reply
    assert b"root:" not in reply.body
    assert site.token.encode() not in reply.body
