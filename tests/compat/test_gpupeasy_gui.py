"""`gpupeasy gui`: the pages, forms, fragments and messages of GPUPeasy's web page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from stoker.compat.gpupeasy import html_pages
from tests.compat.gpupeasy_lab import PeasyLab, send_request, stop

# Known cross-site scripting payloads; none of them may reach a browser as markup.
NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "<svg/onload=alert(1)>",
    "</pre></textarea></title><script>alert(1)</script>",
    "javascript:alert(1)",
    "&lt;b&gt;{{7*7}}${7*7}",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PeasyLab]:
    lab = PeasyLab(tmp_path)
    lab.serve()
    lab.show()
    yield lab
    lab.close()


class Markup(HTMLParser):
    """Collects active markup that our own pages never contain."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.foreign: list[object] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("img", "svg", "iframe", "object", "embed", "style", "base"):
            self.foreign.append(tag)
        if tag == "script" and given != {"src": "/static/refresh.js", "defer": None}:
            self.foreign.append(given)
        for name in ("href", "src", "action"):
            if not (given.get(name) or "/").startswith("/"):
                self.foreign.append(given)
        self.foreign += [name for name in given if name.startswith("on") or name == "style"]


def test_empty_lists_and_idle_devices_show_the_texts_of_the_original(lab: PeasyLab) -> None:
    assert "No successful jobs" in lab.page("/successfuljobs").text
    assert "No jobs have failed" in lab.page("/failedjobs").text
    assert "No jobs scheduled" in lab.page("/scheduledjobs").text
    devices = lab.page("/deviceutilization").text
    assert [f"Device: {n}" in devices for n in "012"] == [True] * 3
    assert devices.count("Status: Idle") == 3
    assert "<html" not in devices  # a fragment
    index = lab.page("/")
    assert index.status == 200
    assert index.headers["Content-Type"].startswith("text/html")
    for words in ("Device: 0", "No successful jobs", "No jobs have failed", "No jobs scheduled"):
        assert words in index.text


def test_lists_link_to_the_jobs(lab: PeasyLab) -> None:
    gate = lab.add_gate("runs")
    done, bad = lab.add("true", name="good"), lab.add("false", name="bad")
    lab.wait_for("Running", gate.id)
    lab.wait_for("Succeeded", done)
    lab.wait_for("Failed", bad)
    devices = lab.page("/deviceutilization").text
    assert "Status: running" in devices
    assert f"Job ID: {gate.id}" in devices
    assert f'Job Name: <a href="/jobinfo/{gate.id}">runs</a>' in devices
    assert "Command: sh -c" in devices
    assert f'<a href="/jobinfo/{done}">good</a>' in lab.page("/successfuljobs").text
    assert f'<a href="/jobinfo/{bad}">bad</a>' in lab.page("/failedjobs").text
    gate.open()


def test_device_listed_twice_is_shown_twice(tmp_path: Path) -> None:
    lab = PeasyLab(tmp_path)
    try:
        lab.serve(gpus="0;0")
        lab.show()
        gate = lab.add_gate()
        lab.wait_for("Running", gate.id)
        text = lab.page("/deviceutilization").text
        assert text.count("Device: 0") == 2
        assert text.count("Status: running") == text.count("Status: Idle") == 1
        gate.open()
    finally:
        lab.close()


def test_banners_show_the_messages_of_the_query_string(lab: PeasyLab) -> None:
    messages = {"errorMessage": "e1\n\ne2", "infoMessage": "i", "successMessage": "s"}
    text = lab.page(f"/?messages={quote(json.dumps(messages))}").text
    assert "<strong>Error:</strong> e1\n\ne2" in text
    assert "<strong>Info:</strong> i" in text
    assert "<strong>Success:</strong> s" in text
    reply = lab.page("/message")
    assert (reply.status, reply.location) == (302, "/")
    assert reply.messages["successMessage"] == "This is a success message"
    for nonsense in ("x", "[1]", '{"errorMessage": 5}', "[" * 5000):
        assert lab.page(f"/?messages={quote(nonsense)}").status == 200


def test_batch_page_has_both_forms(lab: PeasyLab) -> None:
    text = lab.page("/batchaddjobs").text
    assert re.search(r'<form action="/batchaddjobs" method="post">.*name="jobList"', text, re.S)
    assert re.search(r'<form action="/testCommandParser" method="post">.*name="jobCommand"', text,
                     re.S)  # fmt: skip


def test_batch_is_parsed_and_submitted(lab: PeasyLab) -> None:
    batch = (
        "first ;; a.txt ;; sh -c 'echo $0   $1' x\r\n  'y  z'\r\n;;;\r\n"
        f"second;;{lab.work}/b.txt;;echo  done ;;;  "
    )
    reply = lab.send("/batchaddjobs", jobList=batch)
    assert (reply.status, reply.location) == (302, "/")
    assert reply.messages == {"infoMessage": "Jobs successfully passed onto scheduler.\n"}
    lab.wait_for("Succeeded", 1, 2)
    assert (lab.work / "a.txt").read_text() == "x y z\n"
    assert lab.info(1)["jobName"] == "first"
    assert lab.info(1)["outFile"] == "a.txt"
    assert lab.info(2)["jobCommand"] == "echo done"


def test_one_invalid_job_rejects_the_whole_batch(lab: PeasyLab) -> None:
    (lab.work / "taken").write_text("")
    batch = (
        "ok;;new1;;true;;;only;;two;;;a;;b;;c;;d;;;"
        'q;;new2;;echo "open;;;t;;taken;;true;;;x;;same;;true;;;y;;same;;true'
    )
    reply = lab.send("/batchaddjobs", jobList=batch)
    common = "Output file already exists or common to multiple jobs:"
    assert reply.messages == {
        "errorMessage": "There were 5 errors. \n\n"
        "Malformed job: only;;two\n\n"
        "Malformed job: a;;b;;c;;d\n\n"
        "Error in job: q: No closing quotation\n\n"
        f"Error in job: t: {common} taken\n\n"
        f"Error in job: y: {common} same\n\n"
    }
    assert lab.value("/successfuljobs") == lab.value("/scheduledjobs") == []
    assert not (lab.work / "new1").exists()
    for nothing in ("", " \n ;;; ;;;", "  "):
        assert lab.send("/batchaddjobs", jobList=nothing).messages == {
            "errorMessage": "No jobs were submitted (or incorrect syntax)"
        }


def test_command_parser_shows_the_words(lab: PeasyLab) -> None:
    reply = lab.send("/testCommandParser", jobCommand="python -u  x.py\n --a 'b  c'")
    assert (reply.status, reply.location) == (302, "/batchaddjobs")
    assert reply.messages == {
        "status": "successful",
        "commandList": ["python", "-u", "x.py", "--a", "b c"],
    }
    shown = lab.page(reply.headers["Location"]).text
    assert "<strong>Command List:</strong>" in shown
    assert "x.py" in shown
    empty = lab.send("/testCommandParser", jobCommand="").messages
    assert empty["status"] == "failed"
    assert empty["commandList"] == []
    assert lab.send("/testCommandParser", jobCommand="echo 'x").messages["status"] == "failed"
    listed = lab.send("/testCommandParser", jobCommand="n;;f;;ls -l;;;bad;;x").messages
    assert listed["errorCount"] == 1
    assert listed["jobList"] == [{"Job Name": "n", "Job File": "f", "Job Command": ["ls", "-l"]}]


def test_job_page_shows_details_and_log(lab: PeasyLab) -> None:
    job = lab.add("printf", "one\\ntwo\\n50%%\\r100%%\\n\\033]0;title\\007red\\n", name="printer")
    lab.wait_for("Succeeded", job)
    text = lab.page(f"/jobinfo/{job}").text
    for words in ("printer", "Succeeded", "printf", "out0.txt", 'name="fileName"', 'name="lastN"'):
        assert words in text
    assert "one\ntwo\n100%\nred" in text
    assert "one" not in lab.page(f"/jobinfo/{job}?lastN=2").text.split("<pre")[1]
    missing = lab.page("/jobinfo/99")
    assert missing.status == 200
    assert "not found" in missing.text
    assert lab.page("/jobinfo/abc").status == 200


def test_log_viewer_returns_the_last_lines(lab: PeasyLab) -> None:
    job = lab.add("seq", "30")
    lab.wait_for("Succeeded", job)
    name = lab.info(job)["outFile"]
    for last, lines in (("3", ["28", "29", "30"]), ("-2", ["29", "30"]), ("0", [])):
        assert lab.send("/loadlogfile", fileName=name, lastN=last).json() == {
            "status": "successful",
            "value": "".join(f"{line}\n" for line in lines),
        }
    assert lab.send("/loadlogfile", fileName=name, lastN="100").json()["value"].count("\n") == 30
    (Path(name)).unlink()
    gone = lab.send("/loadlogfile", fileName=name, lastN="3")
    assert gone.json() == f"File not found: {name}"  # a bare JSON string
    bad = lab.send("/loadlogfile", fileName=name, lastN="many")
    assert (bad.status, bad.json()["status"]) == (200, "failed")


def test_log_viewer_serves_only_logs_of_its_jobs(lab: PeasyLab) -> None:
    secret = lab.work / "secret"
    secret.write_text("s3cret")
    job = lab.add("true")
    lab.wait_for("Succeeded", job)
    out = Path(lab.info(job)["outFile"])
    for name in (
        "/etc/passwd", str(secret), "secret", "../work/secret", f"{out}/../secret", f"{out}\0",
        "", "/", str(lab.work), f"{lab.state_dir}/queue.db", "file:///etc/passwd", f"{out}/",
    ):  # fmt: skip
        reply = lab.send("/loadlogfile", fileName=name, lastN="5")
        assert reply.json() == f"File not found: {name}"
        assert "s3cret" not in reply.text
        assert "root:" not in reply.text
    out.unlink()
    out.symlink_to(secret)  # a log that was replaced by a symlink is not followed
    assert "s3cret" not in lab.send("/loadlogfile", fileName=str(out), lastN="5").text
    assert "s3cret" not in lab.page(f"/jobinfo/{job}").text
    for path in ("/../../etc/passwd", "/static/../../x", "/static/%2e%2e/x", "//etc/passwd"):
        assert lab.page(path).status == 404


def test_scripts_in_names_commands_logs_and_links_are_escaped(lab: PeasyLab) -> None:
    ids = [lab.add("echo", nasty, name=nasty) for nasty in NASTY]
    bad = [lab.add("false", nasty, name=nasty) for nasty in NASTY]
    lab.wait_for("Succeeded", *ids)
    lab.wait_for("Failed", *bad)
    gate = lab.add_gate(NASTY[0])
    lab.post("/adddevice", {"device": NASTY[1]})
    lab.wait_for("Running", gate.id)
    links = [f"/?messages={quote(json.dumps({'errorMessage': nasty}))}" for nasty in NASTY]
    links += [
        f"/batchaddjobs?messages={quote(json.dumps({'status': 'successful', 'commandList': n}))}"
        for n in NASTY
    ]
    paths = ["/", "/successfuljobs", "/failedjobs", "/deviceutilization", "/batchaddjobs",
                  *links, *(f"/jobinfo/{id}" for id in (*ids, *bad, gate.id)),
                  *(f"/jobinfo/{ids[0]}?lastN={quote(n)}" for n in NASTY),
                  f"/jobinfo/{quote(NASTY[0], safe='')}"]  # fmt: skip
    for path in paths:
        reply = lab.page(path)
        assert reply.status in (200, 404), path
        assert Markup(reply.text).foreign == [], path
        if reply.status == 200:
            policy = reply.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
    gate.open()


def test_pages_use_no_other_host_and_no_inline_style(lab: PeasyLab) -> None:
    for path in ("/", "/batchaddjobs"):
        text = lab.page(path).text
        assert "://" not in text
        assert "<style" not in text
        assert "style=" not in text
        for source in re.findall(r'(?:src|href)="(/static/[^"]+)"', text):
            assert lab.page(source).status == 200
    assert "prefers-color-scheme: dark" in lab.page("/static/style.css").text


def test_page_shows_an_error_while_the_server_is_down(lab: PeasyLab) -> None:
    stop(lab.processes_started[0])
    for path in ("/", "/successfuljobs", "/deviceutilization", "/jobinfo/1"):
        reply = lab.page(path)
        assert reply.status == 200
        assert "Connection error on url: http://127.0.0.1:" in reply.text
    reply = lab.send("/batchaddjobs", jobList="a;;b;;true")
    assert reply.status == 302
    assert "Connection error" in reply.messages["errorMessage"]


def test_forms_can_change_jobs_devices_and_the_scheduler(lab: PeasyLab) -> None:
    gates = [lab.add_gate() for _ in range(3)]
    waiting = lab.add("true")
    lab.wait_for("Running", *(gate.id for gate in gates))
    assert "Priority set to 50" in str(lab.send(f"/setpriority/{waiting}", priority="50").messages)
    assert lab.value(f"/jobdetails/{waiting}")["priority"] == 50
    reply = lab.send(f"/canceljob/{gates[0].id}")
    assert (reply.location, reply.messages) == (
        f"/jobinfo/{gates[0].id}", {"successMessage": "Job cancelled"})  # fmt: skip
    lab.wait_for("Failed", gates[0].id)
    lab.wait_for("Succeeded", waiting)
    again = lab.send(f"/rerunjob/{waiting}")
    lab.wait_for("Succeeded", int(again.location.rpartition("/")[2]))
    lab.send("/adddevice", device="9")
    assert lab.value("/availabledevices") == ["0", "1", "2", "9"]
    lab.send("/removedevice", device="9")
    assert lab.value("/availabledevices") == ["0", "1", "2"]
    lab.send("/pausescheduler")
    assert "The scheduler is paused" in lab.page("/").text
    lab.send("/resumescheduler")
    assert "The scheduler is paused" not in lab.page("/").text
    for gate in gates[1:]:
        gate.open()


def test_actions_refuse_get_requests(lab: PeasyLab) -> None:
    for path in ("/pausescheduler", "/adddevice", "/canceljob/1", "/loadlogfile"):
        assert send_request(lab.gui_port, "GET", path).status == 405


def test_log_is_shown_as_in_a_terminal() -> None:
    assert html_pages.log_as_text("a\rb\n\x1b[31mred\x1b[0m\x1b]52;c;eA==\x07!\n") == "b\nred!"
