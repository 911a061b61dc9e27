"""Notes, stars and tags through the web API."""

from __future__ import annotations

from tests.web.site import Site


def test_notes_stars_and_tags_are_changed_through_the_api(site: Site) -> None:
    lab = site.lab
    job = lab.submit("--hold", "true")
    lab.ok("sweep", "--name", "lrs", "--hold", "--gpus", "0", "echo {lr}", "lr=1,2")
    for path, get in ((f"/api/jobs/{job}", "job"), ("/api/sweeps/lrs", "")):
        first = site.post(f"{path}/note", {"text": "a *long* note"}, "PUT").json
        assert (first["note_revision"], first["note"]) == (1, "a *long* note")
        late = site.post(f"{path}/note", {"text": "short"}, "PUT").json
        assert (late["note"], late["previous_note"]) == ("short", "a *long* note")
        answer = site.ok(path)
        shown = answer[get] if get else answer
        assert (shown["note"], shown["previous_note"]) == ("short", "a *long* note")
    form = {"jobs": [job], "sweeps": ["lrs"], "star": True, "add_tags": ["paper", "b"]}
    assert site.post("/api/annotate", form).json["changed"] == 2
    form = {"jobs": [job], "sweeps": ["lrs"], "remove_tags": ["b"]}
    assert site.post("/api/annotate", form).status == 200
    found = site.ok("/api/jobs?starred=true")["jobs"]
    assert [(one["id"], one["tags"], one["note_line"]) for one in found] == [
        (job, ["paper"], "short")
    ]
    sweep = site.ok("/api/sweeps")["sweeps"][0]
    assert (sweep["starred"], sweep["tags"], sweep["note_line"]) == (True, ["paper"], "short")
    assert site.ok("/api/tags")["tags"] == [{"tag": "paper", "count": 2}]


def test_mistakes_in_notes_and_tags_change_nothing(site: Site) -> None:
    job = site.lab.submit("--hold", "true")
    note, annotate = f"/api/jobs/{job}/note", "/api/annotate"
    for path, form, status, method in (
        (note, {"text": "x" * 70_000}, 400, "PUT"),
        (note, {"text": "a\0b"}, 400, "PUT"),
        (note, {"text": "\ud800"}, 400, "PUT"),
        ("/api/jobs/99/note", {"text": "a"}, 404, "PUT"),
        ("/api/sweeps/none/note", {"text": "a"}, 404, "PUT"),
        (annotate, {"jobs": [job]}, 400, "POST"),
        (annotate, {"star": True}, 400, "POST"),
        (annotate, {"jobs": [job], "add_tags": [" "]}, 400, "POST"),
        (annotate, {"jobs": [job], "add_tags": ["a\0"]}, 400, "POST"),
        (annotate, {"jobs": [99], "star": True}, 404, "POST"),
        (annotate, {"jobs": [job], "sweeps": ["none"], "star": True}, 404, "POST"),
    ):
        reply = site.post(path, form, method)
        assert reply.status == status, (path, form, reply)
    shown = site.ok(f"/api/jobs/{job}")["job"]
    assert (shown["note"], shown["tags"], shown["starred"]) == ("", [], False)


def test_report_of_a_sweep_is_downloaded(site: Site) -> None:
    lab = site.lab
    lab.ok("sweep", "--name", "lrs", "--gpus", "0", "--metric", "loss",
           "echo stoker: loss={lr}", "lr=1,2")  # fmt: skip
    lab.ok("wait", "sweep:lrs")
    site.post("/api/sweeps/lrs/note", {"text": "<script>alert(1)</script>"}, "PUT")
    page = site.get("/api/sweeps/lrs/report?format=html")
    assert page.status == 200
    assert page.headers["content-disposition"] == 'attachment; filename="lrs-report.html"'
    assert "sandbox" in page.headers["content-security-policy"]
    assert b"&lt;script&gt;" in page.body
    assert b"<script" not in page.body
    text = site.get("/api/sweeps/lrs/report?format=md")
    assert text.headers["content-type"].startswith("text/markdown")
    made = lab.ok("report", "lrs").split("\n")[:-3]
    assert text.body.decode().split("\n")[:-3] == made  # up to the time
    for path, status in (
        ("none/report", 404), ("lrs/report?format=pdf", 400), ("lrs/report?metric=acc", 404),
        ("lrs/report?group=nope", 400), ("lrs/report?smooth=1", 400),
    ):  # fmt: skip
        assert site.get(f"/api/sweeps/{path}").status == status, path
