"""The web API returns the same as the command line."""

from __future__ import annotations

import json
from typing import Any

from stoker.web.models import Job
from tests.web.site import Site


def ls(site: Site, *words: str) -> dict[int, dict[str, object]]:
    jobs = json.loads(site.lab.ok("ls", "--json", "-n", "1000", *words))["jobs"]
    return {job["id"]: job for job in jobs}


def unmeasured(gpu: dict[str, Any]) -> dict[str, Any]:
    """A GPU without measurements, which change between two reads."""
    measures = ("memory_used_bytes", "utilisation_percent", "power_watts", "temperature_celsius")
    jobs = [{**job, "memory_bytes": None} for job in gpu["jobs"]]
    return {**{k: v for k, v in gpu.items() if k not in measures}, "jobs": jobs}


def finished(site: Site, command: str, *flags: str) -> int:
    job = site.lab.submit(*flags, command)
    site.lab.wait(job)
    return job


def test_overview_and_ls_agree_on_every_job(site: Site) -> None:
    lab = site.lab
    done = finished(site, "echo done")
    failed = finished(site, "exit 3")
    running = [lab.submit("--name", "long", "sleep 1000") for _ in range(2)]
    queued = lab.submit("-T", "night", "sleep 1000")
    held = lab.submit("--hold", "echo held")
    after = lab.submit("--after", str(queued), "echo after")
    lab.wait_until(lambda: all(lab.state(job) == "running" for job in running))
    seen = site.overview()
    assert [job["id"] for job in seen["running"]] == running
    assert [job["id"] for job in seen["queue"]] == [queued, after, held]
    assert {job["id"] for job in seen["recent"]} == {done, failed}
    shown = {}
    for job in (*seen["running"], *seen["queue"], *seen["recent"]):
        extra = ("run", "why", "why_short", "starts_in", "ready")
        shown[job["id"]] = {k: v for k, v in job.items() if k not in extra}
    assert shown == ls(site, "--state", "all")
    assert seen["counts"] == json.loads(lab.ok("ls", "--json"))["counts"]
    shown_gpus = json.loads(lab.ok("gpus", "--json"))["gpus"]
    assert list(map(unmeasured, seen["gpus"])) == list(map(unmeasured, shown_gpus))
    assert set(shown[done]) == set(Job.model_fields)  # the documented fields are the real ones


def test_overview_and_why_agree_on_the_reasons_for_waiting(site: Site) -> None:
    lab = site.lab
    first = lab.submit("--gpus", "2", "--time-limit", "1h", "sleep 1000")
    lab.wait_until(lambda: lab.state(first) == "running")
    jobs = [lab.submit("--gpus", "2", "true") for _ in range(3)]
    held = lab.submit("--hold", "true")
    later = lab.submit("--begin", "+2h", "true")
    seen = {job["id"]: job for job in site.overview()["queue"]}
    for job in (*jobs, held, later):
        reasons = json.loads(lab.ok("why", "--json", str(job)))["jobs"][0]["reasons"]
        expected = [text for text in reasons if not text.startswith(("estimated start", "--"))]
        shown = seen[job]["why"]
        for reason in expected:
            # Remaining times differ between two reads.
            assert reason.partition(" for at most")[0] in shown, (reason, shown)
    assert 3000 < seen[jobs[0]]["starts_in"] <= 3600
    assert seen[held]["starts_in"] is None


def test_only_jobs_that_wait_for_devices_alone_are_ready(site: Site) -> None:
    lab = site.lab
    busy = [lab.submit("sleep 1000") for _ in range(2)]
    lab.wait_until(lambda: all(lab.state(job) == "running" for job in busy))
    line = [lab.submit("true"), lab.submit("true")]
    others = [
        lab.submit("--hold", "true"), lab.submit("--begin", "+2h", "true"),
        lab.submit("--after", str(busy[0]), "true"),
    ]  # fmt: skip
    seen = site.overview()["queue"]
    assert [job["id"] for job in seen if job["ready"]] == line
    assert {job["id"] for job in seen if not job["ready"]} == set(others)
    assert [site.ok(f"/api/jobs/{job}")["job"]["ready"] for job in (*line, *others)] == [
        True, True, False, False, False,
    ]  # fmt: skip
    # The position comes first, since the web UI may cut off the rest.
    assert seen[1]["why"].startswith("1 job in front of it; it needs 1 GPU; ")


def test_single_job_has_all_fields_of_show_and_more(site: Site) -> None:
    lab = site.lab
    command = 'echo "stoker: loss=0.5 step=1"; echo "stoker: loss=0.25 step=2"; exit 4'
    job = finished(site, command, "--retries", "0")
    full = site.ok(f"/api/jobs/{job}")["job"]
    assert {key: full[key] for key in lab.job(job)} == lab.job(job)
    assert full["why"] == ["it failed: exit 4"]
    metric = {"last": 0.25, "min": 0.25, "max": 0.5, "n": 2, "step": 2}
    assert full["metrics"] == {"loss": metric}
    assert site.ok(f"/api/jobs/{job}/curve?metric=loss")["points"] == [[1, 0.5], [2, 0.25]]
    assert site.ok(f"/api/jobs/{job}/curve?metric=other")["points"] == []


def test_metrics_of_a_running_job_grow(site: Site) -> None:
    lab = site.lab
    go = lab.folder / "go"
    script = f"echo 'stoker: a=1 step=0'; while [ ! -e {go} ]; do sleep 0.05; done;"
    job = lab.submit(f"{script} echo 'stoker: a=nan step=1'; echo 'stoker: a=3 step=2'")
    lab.wait_until(lambda: site.ok(f"/api/jobs/{job}")["job"]["metrics"])
    go.touch()
    lab.wait(job)
    metric = site.ok(f"/api/jobs/{job}")["job"]["metrics"]["a"]
    assert metric == {"last": 3, "min": 1, "max": 3, "n": 3, "step": 2}
    assert site.ok(f"/api/jobs/{job}/curve?metric=a")["points"] == [[0, 1], [1, None], [2, 3]]


def test_history_is_paginated_newest_first(site: Site) -> None:
    site.lab.ok("submit", "--hold", "--file", "-", input="".join(f"echo {n}\n" for n in range(25)))
    found, before = [], None
    while True:
        query = f"&before={before}" if before else ""
        page = site.ok(f"/api/jobs?limit=10{query}")
        found += [job["id"] for job in page["jobs"]]
        before = page["next"]
        if before is None:
            break
    assert found == list(range(25, 0, -1))


def test_history_can_be_filtered(site: Site) -> None:
    lab = site.lab
    one = lab.submit("--hold", "-T", "a", "-T", "b", "--name", "base", "python train.py --lr 0.1")
    two = lab.submit("--hold", "-T", "a", "--name", "Other", "python EVAL.py")
    lab.ok("cancel", str(two))

    def ids(query: str) -> list[int]:
        return [job["id"] for job in site.ok(f"/api/jobs?{query}")["jobs"]]

    assert ids("tag=a") == [two, one]
    assert ids("tag=b") == [one]
    assert ids("tag=b&name=base") == [one]
    assert ids("tag=b&name=Other") == []
    assert ids("name=Other") == [two]
    assert ids("state=held") == [one]
    assert ids("state=waiting,cancelled") == [two, one]
    assert ids("state=final&tag=b") == []
    assert ids("q=eval") == [two]
    assert ids("q=other") == [two]
    assert ids("q=python&state=held") == [one]
    assert ids("q=nothing+like+it") == []
    assert site.get("/api/jobs?state=strange").status == 400
    assert site.get("/api/jobs?sweep=none").status == 404


def test_unknown_objects_are_not_found(site: Site) -> None:
    words = (
        "api/jobs/77 api/jobs/77/log api/jobs/77/log/download api/jobs/77/trace api/sweeps/none"
        " api/sweeps/none/results api/gpus/none/trace api/none nothing assets/none.js"
    )
    for path in (f"/{word}" for word in words.split()):
        reply = site.get(path)
        assert (reply.status, reply.code) == (404, "not_found"), path
    assert site.get("/api/jobs/0").status == 400
    assert site.get("/api/jobs/99999999999999999999999").status == 400


def test_traces_return_series(site: Site) -> None:
    job = finished(site, "true")
    assert isinstance(site.ok(f"/api/jobs/{job}/trace")["series"], dict)
    assert isinstance(site.ok("/api/gpus/SIM-0/trace?hours=1")["series"], dict)


def test_api_documentation_loads_nothing_from_other_hosts(site: Site) -> None:
    description = site.ask("GET", "/openapi.json", token=None)
    assert description.status == 200
    assert "/api/jobs/{id}/log" in description.json["paths"]
    page = site.ask("GET", "/docs", token=None)
    assert b"POST /api/batch" in page.body
    assert (
        b"http://" not in page.body and b"https://" not in page.body and b"<script" not in page.body
    )


def test_long_running_job_that_finishes_is_listed_as_recent(site: Site) -> None:
    lab = site.lab
    old = lab.submit("sleep 1000")
    lab.wait_until(lambda: lab.state(old) == "running")
    site.overview()
    lab.ok("submit", "--hold", "--file", "-", input="true\n" * 120)
    lab.ok("cancel", "held")
    assert old not in [job["id"] for job in site.overview()["recent"]]
    lab.ok("cancel", "--now", str(old))
    lab.wait(old)
    assert site.overview()["recent"][0]["id"] == old


def test_held_jobs_are_shown_after_a_long_queue(site: Site) -> None:
    lab = site.lab
    lab.ok("daemon", "start")
    lab.ok("daemon", "drain")
    lab.ok("submit", "--file", "-", input="true\n" * 300)
    held = lab.submit("--hold", "true")
    queue = [job["id"] for job in site.overview()["queue"]]
    assert len(queue) == 200
    assert queue[:3] == [1, 2, 3]
    assert queue[-1] == held
