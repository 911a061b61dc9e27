"""GPUPeasy: defects of the original fixed, and features of its TODO list."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.boot import boot_id
from stoker.client.context import current_context
from stoker.compat.gpupeasy.event_log import EventLog
from stoker.compat.gpupeasy.service import Service
from stoker.engine.model import JobSpec, Request
from stoker.engine.store import attempts, named_devices
from stoker.engine.store.database import open_database
from stoker.engine.store.submit import Submission
from stoker.settings import load_settings, prepare_state_dir
from tests.compat.gpupeasy_lab import PeasyLab, send_request, stop
from tests.engine.gpus.host import H200, GpuHost
from tests.lab import wait_until


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PeasyLab]:
    lab = PeasyLab(tmp_path)
    yield lab
    lab.close()


# -- crashes and restarts --------------------------------------------------------------------------


def test_killed_server_loses_no_job(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0")
    done = lab.add("true")
    running = lab.add_gate()
    waiting = [lab.add("true") for _ in range(5)]
    lab.wait_for("Running", running.id)
    server.kill()
    server.wait()
    lab.serve(gpus=None)
    assert lab.value("/availabledevices") == ["0"]
    assert lab.info(done)["status"] == "Succeeded"
    assert lab.info(running.id)["status"] == "Running"
    assert [job["jobID"] for job in lab.value("/scheduledjobs")] == waiting
    running.open(5)
    lab.wait_for("Succeeded", *waiting)
    assert lab.info(running.id)["returnCode"] == 5
    assert lab.add("true") == waiting[-1] + 1


def test_queue_continues_without_a_server(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0")
    gate = lab.add_gate()
    mark = lab.work / "mark"
    last = lab.add("touch", str(mark))
    lab.wait_for("Running", gate.id)
    server.kill()
    server.wait()
    gate.open()
    wait_until(mark.exists)
    lab.serve(gpus=None)
    lab.wait_for("Succeeded", gate.id, last)
    assert f"Process <{last}, job> exited with return code: 0" in lab.logs()


def test_waiting_jobs_survive_the_kill_of_server_daemon_and_runner(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0")
    gate = lab.add_gate()
    waiting = [lab.add("true") for _ in range(3)]
    lab.wait_for("Running", gate.id)
    server.kill()
    server.wait()
    for pid in (lab.daemon_pid(), lab.runner_pid()):
        if pid is not None and pid > 1:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: lab.daemon_pid() is None or lab.runner_pid() is None)
    lab.serve(gpus=None)
    gate.open()
    lab.wait_for("Succeeded", *waiting)
    assert lab.info(gate.id)["status"] in ("Succeeded", "Failed")


def test_jobs_of_a_stopped_server_continue_and_the_next_server_finds_them(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0")
    gate, waiting = lab.add_gate(), lab.add("true")
    lab.wait_for("Running", gate.id)
    assert "jobs still running: 1;" in stop(server)
    assert lab.daemon_pid() is None  # so no job is started meanwhile
    gate.open(4)
    wait_until(lambda: lab.runner_pid() is None)
    lab.serve(gpus=None)
    lab.wait_for("Succeeded", waiting)
    assert lab.info(gate.id)["returnCode"] == 4


def test_second_server_with_the_same_folder_is_refused(lab: PeasyLab) -> None:
    lab.serve()
    second = lab.launch("-m", "gpupeasy", "server", "--port", "0", "--logdir", str(lab.logdir))
    assert "another server uses" in second.communicate()[0]
    assert second.returncode == 1


def test_unknown_job_id_gets_a_json_error(lab: PeasyLab) -> None:
    lab.serve()
    for id in ("99", "0", "-1", "abc", "1e3", "%20", "9" * 40):
        response = lab.get(f"/jobinfo/{id}")
        assert response["status"] == "failed"
        assert response["value"] == {}
        assert "not found" in response["message"]


def test_job_is_found_while_its_state_changes(lab: PeasyLab) -> None:
    lab.serve(gpus="0;1")
    wrong: list[object] = []
    is_over = threading.Event()
    last = 0

    def query() -> None:
        while not is_over.is_set():
            for id in range(max(1, last - 3), last + 1):
                response = send_request(lab.port, "GET", f"/jobinfo/{id}")
                if response.status != 200 or response.json()["status"] != "successful":
                    wrong.append(response.text)

    watcher = threading.Thread(target=query)
    watcher.start()
    for _ in range(40):
        last = lab.add("true")
    lab.wait_for("Succeeded", *range(1, last + 1))
    is_over.set()
    watcher.join()
    assert wrong == []


def test_job_that_changes_state_while_a_list_is_read_is_listed_once(tmp_path: Path) -> None:
    settings = load_settings()._replace(state_dir=str(tmp_path / "queue"))
    prepare_state_dir(settings)
    service = Service(settings, EventLog(str(tmp_path)), 0)
    other = open_database(settings.state_dir)
    named_devices.use(other, ["0", "0"])
    spec = JobSpec(("true",), current_context(settings), False, Request(gpus=1), "n")
    (job,) = Submission(other).add([spec], 1.0).ids
    with other.transaction():
        assert attempts.claim(other, attempts.Claim(7, job, 1, (0,), None, 1.0, boot_id()))
    queries = 0

    def start_job(statement: str) -> None:
        nonlocal queries
        queries += "FROM jobs j" in statement
        if queries == 2:  # found among the starting jobs; the running ones are read next
            queries += 1
            with other.transaction():
                attempts.record_start(other, 7, 1, 1.0, 1.0)

    service._db.connection.set_trace_callback(start_job)
    listed = service.running()["value"]
    assert [(entry["jobID"], entry["gpu"]) for entry in listed] == [(job, "0")]
    assert queries > 2
    service._db.connection.set_trace_callback(None)
    service.close()
    other.close()


def test_concurrent_submissions_create_one_job_each(lab: PeasyLab) -> None:
    lab.serve(gpus="0;1;2")
    out = lab.work / "contested"
    responses: list[dict[str, Any]] = []

    def submit(n: int) -> None:
        for path in (str(out), str(lab.work / f"own{n}")):
            job = {"jobName": "n", "outFile": path, "jobCommand": ["true"]}
            responses.append(lab.post("/addnewjob", {"job": job}))

    clients = [threading.Thread(target=submit, args=(n,)) for n in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    good = [response["jobID"] for response in responses if response["status"] == "successful"]
    assert sorted(good) == list(range(1, 10))  # eight own files, and one job for the contested file


def test_job_file_is_submitted_from_the_command_line(lab: PeasyLab) -> None:
    lab.serve()
    batch = lab.work / "grid.peasy"

    def submit() -> tuple[int | None, str]:
        port = str(lab.port)
        process = lab.launch("-m", "gpupeasy", "submit", str(batch), "--backend-port", port)
        output = process.communicate()[0]
        return process.returncode, output

    batch.write_text("a;;a.txt;;echo 1;;;\nb;;b.txt;;echo 2\n")
    assert submit() == (0, "1\n2\n")
    lab.wait_for("Succeeded", 1, 2)
    assert (lab.work / "b.txt").read_text() == "2\n"
    batch.write_text("a;;a.txt;;echo 1;;;b;;c.txt;;echo 2;;;broken")
    code, output = submit()
    assert code == 2
    assert "Error in job: a: Output file already exists" in output
    assert "Malformed job: broken" in output
    assert not (lab.work / "c.txt").exists()


# -- devices ---------------------------------------------------------------------------------------


def test_devices_can_be_added_and_removed_while_jobs_run(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    gates = [lab.add_gate() for _ in range(4)]
    lab.wait_for("Running", gates[0].id)
    response = lab.post("/adddevice", {"device": "2,3"})
    assert response == {"status": "successful", "message": "Device added: 2,3"}
    assert lab.value("/availabledevices") == ["0", "2,3"]
    lab.wait_for("Running", gates[1].id)
    assert lab.gpu_of(gates[1].id) == "2,3"
    lab.post("/removedevice", {"device": "0"})
    assert lab.value("/availabledevices") == ["2,3"]
    assert lab.info(gates[0].id)["status"] == "Running"  # it may finish
    gates[0].open()
    lab.wait_for("Succeeded", gates[0].id)
    assert lab.info(gates[2].id)["status"] == "Scheduled"
    gates[1].open()
    lab.wait_for("Running", gates[2].id)
    assert lab.gpu_of(gates[2].id) == "2,3"
    lab.post("/adddevice", {"device": "0"})
    lab.wait_for("Running", gates[3].id)
    assert lab.gpu_of(gates[3].id) == "0"
    assert lab.gpu_of(gates[0].id) == "0"
    for gate in gates[2:]:
        gate.open()
    assert lab.post("/removedevice", {"device": "nine"})["status"] == "failed"


def test_restarted_server_uses_its_new_devices(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0;1")
    first = lab.add("true")
    lab.wait_for("Succeeded", first)
    stop(server)
    lab.serve(gpus="5;1")
    ids = [lab.add_gate(), lab.add_gate()]
    lab.wait_for("Running", *(gate.id for gate in ids))
    assert sorted(lab.gpu_of(gate.id) for gate in ids) == ["1", "5"]
    assert lab.gpu_of(first) == "0"
    for gate in ids:
        gate.open()


def test_job_leases_the_gpus_of_its_device(lab: PeasyLab, new_host: Callable[..., GpuHost]) -> None:
    host = new_host(H200, H200)
    other = host.lab()
    env = {key: other.env[key] for key in other.env if key not in lab.env}
    lab.serve(gpus="0,1;7", STOKER_NVML="1", **env)
    gate = lab.add_gate()
    lab.wait_for("Running", gate.id)
    assert lab.gpu_of(gate.id) == "0,1"
    waiting = other.submit("true")
    wait_until(lambda: "lease" in other.why(waiting))
    elsewhere = lab.add("true")  # device 7 is not a GPU of this host, so it needs no lease
    lab.wait_for("Succeeded", elsewhere)
    gate.open()
    assert other.wait(waiting) == 0


def test_device_names_keep_their_numbers(tmp_path: Path) -> None:
    db = open_database(str(tmp_path))
    assert named_devices.read(db) is None
    named_devices.use(db, ["0", "1", "0"])
    named_devices.add(db, "2,3")
    assert named_devices.remove(db, "0")
    assert not named_devices.remove(db, "7")
    assert named_devices.read(db) == named_devices.NamedDevices(
        ("0", "1", "0", "2,3"), ("0", "1", "2,3")
    )
    named_devices.use(db, ["2,3", "0", "0", "0"])
    named = named_devices.read(db)
    assert named == named_devices.NamedDevices(("0", "1", "0", "2,3", "0"), ("2,3", "0", "0", "0"))
    db.close()


def test_plain_daemon_refuses_a_queue_with_named_devices(lab: PeasyLab) -> None:
    stop(lab.serve())
    done = lab.run("daemon", "run", STOKER_STATE_DIR=str(lab.state_dir))
    assert done.returncode != 0
    assert "defines its own devices" in done.stderr


def test_stoker_commands_work_on_the_same_queue(lab: PeasyLab) -> None:
    lab.serve()
    job = lab.add("echo", "hello", name="mine")
    lab.wait_for("Succeeded", job)
    assert "mine" in lab.ok("ls", STOKER_STATE_DIR=str(lab.state_dir))
    assert lab.ok("log", str(job), STOKER_STATE_DIR=str(lab.state_dir)) == "hello\n"


# -- jobs ------------------------------------------------------------------------------------------


def test_jobs_of_higher_priority_start_first(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    gate = lab.add_gate()
    lab.wait_for("Running", gate.id)
    order = lab.work / "order"

    def add(mark: str, **fields: Any) -> int:
        return lab.add("sh", "-c", f"echo {mark} >> {order}", **fields)

    ids = [add("usual"), add("low", priority=1), add("high", priority=90), add("also usual")]
    late = add("raised")
    response = lab.post(f"/setpriority/{late}", {"priority": 100})
    assert response == {"status": "successful", "message": "Priority set to 100"}
    assert [job["jobID"] for job in lab.value("/scheduledjobs")] == [
        late, ids[2], ids[0], ids[3], ids[1]]  # fmt: skip
    assert lab.post(f"/setpriority/{late}", {"priority": "x"})["status"] == "failed"
    gate.open()
    lab.wait_for("Succeeded", *ids, late)
    assert order.read_text().splitlines() == ["raised", "high", "usual", "also usual", "low"]
    assert lab.post(f"/setpriority/{late}", {"priority": 1})["status"] == "failed"


def test_job_can_be_cancelled_before_and_while_it_runs(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    gate, waiting = lab.add_gate(), lab.add("true")
    lab.wait_for("Running", gate.id)
    for id in (waiting, gate.id):
        assert lab.post(f"/canceljob/{id}")["status"] == "successful"
    lab.wait_for("Failed", gate.id, waiting)
    assert lab.info(gate.id)["returnCode"] == -15
    assert lab.info(waiting)["returnCode"] == -1
    assert lab.post(f"/canceljob/{gate.id}")["status"] == "failed"
    assert lab.post("/canceljob/99")["status"] == "failed"


def test_failed_job_can_be_rerun_with_a_new_output_file(lab: PeasyLab) -> None:
    lab.serve()
    mark = lab.work / "mark"
    job = lab.add("sh", "-c", f"test -e {mark} && echo found", name="picky", priority=40)
    lab.wait_for("Failed", job)
    mark.touch()
    again = lab.post(f"/rerunjob/{job}")["jobID"]
    lab.wait_for("Succeeded", again)
    assert lab.info(again)["outFile"] == lab.info(job)["outFile"] + ".2"
    assert lab.out(again) == "found\n"
    assert lab.info(again)["jobName"] == "picky"
    assert lab.value(f"/jobdetails/{again}")["priority"] == 40
    assert lab.post("/rerunjob/99")["status"] == "failed"


def test_output_file_with_percent_j_keeps_its_name(lab: PeasyLab) -> None:
    lab.serve()
    for out in ("out-%j.txt", str(lab.work / "50%%j %J.txt")):
        job = lab.add("echo", "text", outFile=out)
        lab.wait_for("Succeeded", job)
        again = lab.post(f"/rerunjob/{job}")["jobID"]
        lab.wait_for("Succeeded", again)
        assert [lab.info(id)["outFile"] for id in (job, again)] == [out, f"{out}.2"]
        assert [(lab.work / f"{out}{end}").read_text() for end in ("", ".2")] == ["text\n"] * 2
        assert lab.get(f"/joblog/{job}")["value"] == "text\n"
    assert len(list(lab.work.iterdir())) == 4
    env = {"STOKER_STATE_DIR": str(lab.state_dir)}
    own = int(lab.ok("submit", "-q", "-o", str(lab.work / "own-%j"), "echo own", **env))
    lab.wait_for("Succeeded", own)
    assert (lab.work / f"own-{own}").read_text() == "own\n"


def test_checkpoint_job_is_restarted_when_it_exits_with_75(lab: PeasyLab) -> None:
    lab.serve()
    script = (
        'mkdir -p "$STOKER_CHECKPOINT_DIR"; cd "$STOKER_CHECKPOINT_DIR"; echo step >> steps; '
        'test "$(wc -l < steps)" = 2 || exit 75'
    )
    job = lab.add("sh", "-c", script, checkpoint=True)
    lab.wait_for("Succeeded", job)
    details = lab.value(f"/jobdetails/{job}")
    assert details["attempts"] == 2
    assert Path(details["checkpointDir"], "steps").read_text() == "step\nstep\n"


def test_paused_scheduler_accepts_jobs_and_starts_none(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0;1")
    gate = lab.add_gate()
    lab.wait_for("Running", gate.id)
    server.send_signal(signal.SIGUSR1)
    wait_until(lambda: lab.value("/serverinfo")["paused"])
    waiting = lab.add("true")
    gate.open()
    lab.wait_for("Succeeded", gate.id)
    assert lab.info(waiting)["status"] == "Scheduled"
    lab.post("/resumescheduler")
    lab.wait_for("Succeeded", waiting)


def test_batch_is_submitted_as_a_whole_or_not_at_all(lab: PeasyLab) -> None:
    lab.serve()
    good = [{"jobName": "n", "outFile": f"b{n}", "jobCommand": ["true"]} for n in range(3)]
    response = lab.post("/addnewjobs", {"jobs": [*good, {**good[0], "outFile": "b0"}]})
    assert response["status"] == "failed"
    assert response["errors"] == [None, None, None, "Output file already exists: b0"]
    assert not (lab.work / "b0").exists()
    response = lab.post("/addnewjobs", {"jobs": good})
    assert response["jobIDs"] == [1, 2, 3]
    lab.wait_for("Succeeded", 1, 2, 3)
    assert lab.post("/addnewjobs", {"jobs": []})["status"] == "failed"
    assert lab.post("/addnewjobs", [])["status"] == "failed"


def test_log_of_a_job_can_be_read_over_http(lab: PeasyLab) -> None:
    lab.serve()
    job = lab.add("seq", "5")
    lab.wait_for("Succeeded", job)
    assert lab.get(f"/joblog/{job}?lastN=2") == {"status": "successful", "value": "4\n5\n"}
    out = lab.info(job)["outFile"]
    assert lab.get(f"/joblog?outFile={out}&lastN=1")["value"] == "5\n"
    assert lab.get("/joblog?outFile=/etc/passwd")["status"] == "failed"


def test_queue_and_log_file_are_private(lab: PeasyLab) -> None:
    lab.serve()
    assert lab.state_dir.stat().st_mode & 0o777 == 0o700
    assert (lab.logdir / "logs.out").stat().st_mode & 0o077 == 0


def test_job_is_on_disk_before_the_response_is_sent(lab: PeasyLab) -> None:
    lab.serve()
    job = lab.add("true")
    connection = sqlite3.connect(f"file:{lab.state_dir}/queue.db?mode=ro", uri=True)
    assert connection.execute("SELECT count(*) FROM jobs WHERE id = ?", (job,)).fetchone() == (1,)
    connection.close()
