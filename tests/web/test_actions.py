"""Changes through the web API, and the errors for changes that are not possible."""

from __future__ import annotations

import json

from tests.web.site import Site


def act(site: Site, action: str, *ids: int, **more: object) -> dict[str, object]:
    reply = site.post("/api/jobs/act", {"action": action, "ids": list(ids), **more})
    assert reply.status == 200, reply
    content: dict[str, object] = reply.json
    return content


def test_jobs_are_held_released_and_cancelled(site: Site) -> None:
    lab = site.lab
    lab.ok("daemon", "start")
    lab.ok("daemon", "drain")
    one, two = lab.submit("sleep 1000"), lab.submit("sleep 1000")
    assert act(site, "hold", one, two)["changed"] == 2
    assert lab.state(one) == "held"
    assert act(site, "release", one)["changed"] == 1
    assert act(site, "cancel", one, two)["changed"] == 2
    assert (lab.state(one), lab.state(two)) == ("cancelled", "cancelled")


def test_running_job_is_cancelled_without_grace_period(site: Site) -> None:
    lab = site.lab
    job = lab.submit("trap '' TERM; sleep 1000")
    lab.wait_until(lambda: lab.state(job) == "running")
    assert act(site, "cancel", job, grace=0)["stopping"] == 1
    lab.wait(job)
    assert lab.state(job) == "cancelled"


def test_finished_job_is_rerun_and_removed(site: Site) -> None:
    lab = site.lab
    job = lab.submit("exit 1")
    lab.wait(job)
    new = act(site, "rerun", job)["jobs"]
    assert isinstance(new, list)
    lab.wait(*new)
    assert lab.job(new[0])["rerun_of"] == job
    assert act(site, "rm", job)["changed"] == 1
    assert site.get(f"/api/jobs/{job}").status == 404


def test_jobs_move_to_the_front_of_the_queue(site: Site) -> None:
    lab = site.lab
    lab.ok("daemon", "start")
    lab.ok("daemon", "drain")
    jobs = [lab.submit("true") for _ in range(4)]
    act(site, "priority", jobs[1], priority=5)
    act(site, "move_first", jobs[3], jobs[2])
    order = [job["id"] for job in site.overview()["queue"]]
    assert order == [jobs[2], jobs[3], jobs[1], jobs[0]]


def test_action_that_does_not_apply_is_a_conflict_and_changes_nothing(site: Site) -> None:
    lab = site.lab
    job = lab.submit("--hold", "true")
    done = lab.submit("true")
    lab.wait(done)
    for action, id in (("rerun", job), ("rm", job), ("cancel", done), ("hold", done)):
        reply = site.post("/api/jobs/act", {"action": action, "ids": [id]})
        assert (reply.status, reply.code) == (409, "conflict"), (action, reply)
    assert site.post("/api/jobs/act", {"action": "hold", "ids": [99]}).status == 404
    assert site.post("/api/jobs/act", {"action": "dance", "ids": [job]}).status == 400
    assert site.post("/api/jobs/act", {"action": "priority", "ids": [job]}).status == 400
    assert site.post("/api/jobs/act", {"action": "hold", "ids": []}).status == 400
    assert (lab.state(job), lab.state(done)) == ("held", "done")


def test_waiting_job_is_edited(site: Site) -> None:
    lab = site.lab
    job = lab.submit("--hold", "--name", "old", "echo", "old", "words")
    change = {"command": "echo new | cat", "name": None, "priority": 3, "time_limit": 90,
              "retries": 2, "gpus": 2}  # fmt: skip
    assert site.post(f"/api/jobs/{job}", change, "PATCH").json["changed"] == 1
    seen = lab.job(job)
    assert (seen["argv"], seen["shell"], seen["name"]) == (["echo new | cat"], True, None)
    assert (seen["priority"], seen["time_limit"], seen["retries"], seen["gpus"]) == (3, 90, 2, 2)
    assert site.post(f"/api/jobs/{job}", {"time_limit": "2h"}, "PATCH").status == 200
    assert lab.job(job)["time_limit"] == 7200
    for wrong in ({}, {"command": " "}, {"name": "a\0b"}, {"strange": 1}, {"time_limit": "never"}):
        assert site.post(f"/api/jobs/{job}", wrong, "PATCH").status == 400, wrong
    assert site.post(f"/api/jobs/{job}", {"gpus": 9}, "PATCH").status == 422
    lab.ok("cancel", str(job))
    assert site.post(f"/api/jobs/{job}", {"priority": 1}, "PATCH").status == 409


def test_gpu_is_drained_restored_and_shared(site: Site) -> None:
    lab = site.lab
    lab.ok("daemon", "start")

    def gpu() -> dict[str, object]:
        return dict(site.overview()["gpus"][0])

    assert site.post("/api/gpus/SIM-0/act", {"action": "drain"}).status == 200
    assert gpu()["state"] == "drained"
    assert site.post("/api/gpus/SIM-0/act", {"action": "restore"}).status == 200
    assert gpu()["state"] == "free"
    assert site.post("/api/gpus/SIM-0/act", {"action": "slots", "slots": 3}).status == 200
    lab.wait_until(lambda: gpu()["slots"] == 3)
    assert site.post("/api/gpus/SIM-0/act", {"action": "slots"}).status == 400
    assert site.post("/api/gpus/SIM-9/act", {"action": "drain"}).status == 404


def test_daemon_is_started_drained_and_resumed(site: Site) -> None:
    lab = site.lab
    assert site.overview()["daemon"] == {"pid": None, "draining": False}
    assert site.post("/api/daemon/act", {"action": "start"}).json["pid"] == lab.daemon_pid()
    assert site.post("/api/daemon/act", {"action": "drain"}).json["draining"] is True
    assert site.overview()["daemon"] == {"pid": lab.daemon_pid(), "draining": True}
    job = site.submit("true")
    assert site.post("/api/daemon/act", {"action": "resume"}).status == 200
    lab.wait(job)


def test_sweep_from_a_form_has_results_and_curves(site: Site) -> None:
    lab = site.lab
    script = lab.folder / "train.sh"
    script.write_text('for s in 1 2 3; do echo "stoker: loss=$(($1 * s)) step=$s"; done\n')
    form = {
        "command": f"sh {script} {{lr}} {{seed}}",
        "parameters": {"lr": "3,1", "seed": [7, 8]},
        "metric": "loss:min", "name": "first", "options": {"cwd": str(lab.folder), "gpus": 1},
    }  # fmt: skip
    preview = site.post("/api/sweeps", {**form, "dry_run": True})
    assert preview.status == 200
    assert preview.json["total"] == 4
    assert preview.json["commands"][0] == f"sh {script} 3 7"
    assert site.ok("/api/sweeps")["sweeps"] == []
    started = site.post("/api/sweeps", form)
    assert (started.status, started.json["added"]) == (201, 4), started
    lab.wait(*started.json["jobs"])

    seen = site.ok("/api/sweeps/first")
    assert (seen["state"], seen["trials"], seen["total"]) == ("finished", {"done": 4}, 4)
    assert seen["best"] == {"trial": 3, "value": 3, "params": {"lr": 1, "seed": 7}}
    assert seen["params"] == [{"name": "lr", "kind": "choices", "values": [3, 1]},
                              {"name": "seed", "kind": "choices", "values": [7, 8]}]  # fmt: skip
    table = site.ok("/api/sweeps/first/results?sort=-loss&where=seed==8")
    assert (table["total"], table["metric"]) == (2, {"name": "loss", "goal": "min"})
    assert [row["loss"] for row in table["rows"]] == [9, 3]
    from_cli = json.loads(lab.ok("results", "first", "--json", "--all"))["rows"]
    everything = site.ok("/api/sweeps/first/results")["rows"]
    assert sorted(everything, key=lambda row: row["trial"]) == from_cli
    assert site.ok("/api/sweeps/first/results?limit=1&offset=3")["rows"] == everything[3:]
    weights = site.ok("/api/sweeps/first/importance")
    assert (weights["metric"], weights["importance"][0]["name"]) == ("loss", "lr")
    assert site.get("/api/sweeps/first/importance?metric=none").status == 404
    curves = site.ok("/api/sweeps/first/curves?limit=2")
    assert [curve["trial"] for curve in curves["curves"]] == [3, 4]
    assert curves["curves"][0]["points"] == [[1, 1], [2, 2], [3, 3]]
    assert site.get("/api/sweeps/first/results?sort=nothing").status == 400
    assert site.get("/api/sweeps/first/results?where=__import__('os')").status == 400
    assert site.get("/api/sweeps/first/curves?metric=none").status == 404
    assert [job["trial"] for job in site.ok("/api/jobs?sweep=first")["jobs"]] == [4, 3, 2, 1]

    assert site.overview()["sweeps"][0]["name"] == "first"
    again = site.post("/api/sweeps", form)
    assert (again.json["added"], again.json["jobs"]) == (0, [])
    assert site.post("/api/sweeps/first/act", {"action": "extend", "trials": 2}).status == 409
    assert site.post("/api/sweeps/first/act", {"action": "rerun_failed"}).json["changed"] == 0
    assert site.post("/api/sweeps/first/act", {"action": "rm", "jobs": True}).status == 200
    assert site.get("/api/sweeps/first").status == 404


def test_sweep_is_stopped_and_resumed(site: Site) -> None:
    lab = site.lab
    form = {"command": "sleep 100{n}", "parameters": {"n": "range(4)"}, "name": "s",
            "max_parallel": 1, "options": {"gpus": 1}}  # fmt: skip
    jobs = site.post("/api/sweeps", form).json["jobs"]
    lab.wait_until(lambda: lab.state(jobs[0]) == "running")
    stopped = site.post("/api/sweeps/s/act", {"action": "stop", "kill": True}).json
    assert (stopped["cancelled"], stopped["stopping"]) == (3, 1)
    lab.wait(*jobs)
    seen = site.ok("/api/sweeps/s")
    assert (seen["state"], seen["missing"]) == ("stopped", 4)
    assert site.post("/api/sweeps/s/act", {"action": "resume"}).json["changed"] == 4
    lab.wait_until(lambda: site.ok("/api/sweeps")["sweeps"][0]["state"] == "active")
