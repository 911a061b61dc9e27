"""Logs by byte range, of existing jobs only."""

from __future__ import annotations

import os

import pytest

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


def log(site: Site, job: int, query: str = "") -> dict[str, object]:
    return dict(site.ok(f"/api/jobs/{job}/log?{query}"))


def test_log_starts_with_its_end_and_ranges_join_without_gaps(site: Site) -> None:
    text = "".join(f"zeile {n} äöü €\n" for n in range(2000))
    data = text.encode()
    job = written(site, data)
    tail = log(site, job, "tail=1000")
    assert tail["size"] == tail["to"] == len(data)
    assert tail["is_over"] is True
    assert text.endswith(str(tail["text"]))
    position, parts = 0, []
    while position < len(data):
        part = log(site, job, f"from={position}&to={position + 997}")
        assert part["from"] == position
        parts.append(str(part["text"]))
        position = int(str(part["to"]))
    assert "".join(parts) == text


def test_response_is_never_larger_than_a_mebibyte(site: Site) -> None:
    job = written(site, b"x" * (3 << 20))
    part = log(site, job, "from=0&to=3145728")
    assert (part["from"], part["to"], part["size"]) == (0, 1 << 20, 3 << 20)
    assert site.get(f"/api/jobs/{job}/log?tail=99999999").status == 400


def test_invalid_utf8_is_replaced(site: Site) -> None:
    job = written(site, b"a\xff\xfeb\x00c")
    assert log(site, job)["text"] == "a\ufffd\ufffdb\x00c"


def test_job_that_has_not_started_has_an_empty_log(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    assert log(site, job) == {"schema": 2, "attempt": 0, "size": 0, "from": 0, "to": 0, "text": "",
                              "is_over": False}  # fmt: skip
    assert site.get(f"/api/jobs/{job}/log/download").status == 404


def test_each_attempt_has_its_own_log(site: Site) -> None:
    job = site.lab.submit("--retries", "1", 'echo "attempt $STOKER_ATTEMPT"; exit 1')
    site.lab.wait(job)
    assert log(site, job, "attempt=1")["text"] == "attempt 1\n"
    assert log(site, job)["text"] == "attempt 2\n"
    assert site.get(f"/api/jobs/{job}/log?attempt=3").status == 404


def test_stderr_in_a_separate_file_is_read(site: Site) -> None:
    job = site.lab.submit("-e", "err.txt", "echo out; echo err >&2")
    site.lab.wait(job)
    assert log(site, job)["text"] == "out\n"
    assert log(site, job, "stream=stderr")["text"] == "err\n"


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


def test_log_too_large_for_counting_matches_is_still_searched(site: Site) -> None:
    filler = b"\x1b[2mnothing here\x1b[0m\n" * 420_000  # over 8 MiB
    job = written(site, filler + b"nee\x1b[0mdle\n")
    assert found(site, job, "q=needle") == (len(filler), None, None)


def test_removed_middle_of_a_log_is_skipped(site: Site) -> None:
    job = written(site, b"h" * 8192 + b"m" * (1 << 20) + b"t" * 100)
    path = site.lab.job(job)["stdout"]
    from stoker.supervisor.logs import cap_log

    cap_log(path, 65536)
    part = log(site, job, "from=0&to=100000")
    assert (part["from"], part["to"]) == (0, 8192)
    rest = log(site, job, "from=8192&to=100000")
    start = int(str(rest["from"]))
    assert start > 900_000
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
