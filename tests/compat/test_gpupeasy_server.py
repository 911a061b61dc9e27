"""`gpupeasy server`: the routes, keys, messages and order of GPUPeasy's core server."""

from __future__ import annotations

import doctest
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stoker.compat.gpupeasy import auth, event_log, jobs, main
from tests.compat.gpupeasy_lab import PeasyLab, send_request
from tests.lab import wait_until


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PeasyLab]:
    lab = PeasyLab(tmp_path)
    yield lab
    lab.close()


@pytest.mark.parametrize("module", [main, jobs, auth, event_log])
def test_docstring_examples_are_correct(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_new_server_lists_its_devices_and_no_jobs(lab: PeasyLab) -> None:
    lab.serve(gpus="0;1;2,3")
    assert lab.get("/availabledevices") == {"status": "successful", "value": ["0", "1", "2,3"]}
    for path in ("/deviceutilization", "/scheduledjobs", "/successfuljobs", "/failedjobs"):
        assert lab.get(path) == {"status": "successful", "value": []}


def test_default_is_three_devices(lab: PeasyLab) -> None:
    lab.serve(gpus=None)
    assert lab.value("/availabledevices") == ["0", "1", "2"]


def test_job_is_listed_as_scheduled_then_running_then_finished(lab: PeasyLab) -> None:
    lab.serve(gpus="7")
    first, second = lab.add_gate("a"), lab.add_gate("b")
    lab.wait_for("Running", first.id)
    command = f'sh -c read code < "$0"; exit "$code" {first.path}'
    assert lab.value("/deviceutilization") == [
        {"jobID": 1, "jobName": "a", "jobCommand": command, "gpu": "7"}
    ]
    waiting = f'sh -c read code < "$0"; exit "$code" {second.path}'
    assert lab.value("/scheduledjobs") == [{"jobID": 2, "jobName": "b", "jobCommand": waiting}]
    assert lab.info(2)["status"] == "Scheduled"
    assert lab.info(2)["returnCode"] is None
    first.open()
    lab.wait_for("Succeeded", first.id)
    second.open(3)
    lab.wait_for("Failed", second.id)
    assert lab.value("/successfuljobs") == [
        {"jobID": 1, "jobName": "a", "jobCommand": command, "returnCode": 0}
    ]
    assert lab.value("/failedjobs") == [
        {"jobID": 2, "jobName": "b", "jobCommand": waiting, "returnCode": 3}
    ]
    assert lab.get("/jobinfo/1") == {
        "status": "successful",
        "message": {},
        "value": {
            "jobid": 1, "jobName": "a", "jobCommand": command,
            "outFile": str(lab.work / "out0.txt"), "status": "Succeeded", "returnCode": 0,
        },
    }  # fmt: skip


def test_submission_returns_the_next_id(lab: PeasyLab) -> None:
    lab.serve()
    for id in (1, 2, 3):
        job = {"jobName": "n", "outFile": f"rel{id}.txt", "jobCommand": ["true"]}
        assert lab.post("/addnewjob", {"job": job}) == {
            "status": "successful",
            "message": "Job added successfully",
            "jobID": id,
        }
        assert lab.info(id)["outFile"] == f"rel{id}.txt"
        assert (lab.work / f"rel{id}.txt").exists()


def test_invalid_submissions_get_the_messages_of_the_original_in_order(lab: PeasyLab) -> None:
    lab.serve()
    taken = lab.work / "taken.txt"
    taken.write_text("mine")
    new = str(lab.work / "new.txt")
    nowhere = str(lab.work / "no" / "folder.txt")
    cases: list[tuple[object, str]] = [
        (None, "No JSON data was found"),
        ({}, "Key 'job' not found"),
        ([1], "Key 'job' not found"),
        ({"job": {}}, "Key 'outFile' not found"),
        ({"job": 5}, "Key 'outFile' not found"),
        ({"job": {"outFile": new}}, "Key 'jobName' not found"),
        ({"job": {"outFile": new, "jobName": "n"}}, "Key 'jobCommand' not found"),
        ({"job": {"outFile": "", "jobName": "", "jobCommand": []}}, "No jobs were submitted"),
        ({"job": {"outFile": "", "jobName": "", "jobCommand": ["x"]}}, "No job name was provided"),
        ({"job": {"outFile": "", "jobName": "n", "jobCommand": ["x"]}},
         "Output file not specified"),
        ({"job": {"outFile": str(taken), "jobName": "n", "jobCommand": ["x"]}},
         f"Output file already exists: {taken}"),
        ({"job": {"outFile": nowhere, "jobName": "n", "jobCommand": ["x"]}},
         f"Could not open output file: {nowhere}"),
        ({"job": {"outFile": "a\0b", "jobName": "n", "jobCommand": ["x"]}},
         "Could not open output file: a\0b"),
        ({"job": {"outFile": new, "jobName": "n", "jobCommand": ["x", 1]}},
         "Key 'jobCommand' has to be a list of strings"),
        ({"job": {"outFile": new, "jobName": "n", "jobCommand": ["\ud800"]}},
         "Key 'jobCommand' has to be a list of strings"),
    ]  # fmt: skip
    for data, message in cases:
        assert lab.post("/addnewjob", data) == {"status": "failed", "message": message}
    assert taken.read_text() == "mine"
    assert not Path(new).exists()
    assert lab.add("true") == 1


def test_body_that_is_not_json_gets_a_json_error(lab: PeasyLab) -> None:
    lab.serve()
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        reply = send_request(lab.port, "POST", "/addnewjob", b"hello=1", {"Content-Type": kind})
        assert reply.status == 200
        assert reply.json() == {"status": "failed", "message": "No JSON data was found"}


def test_submission_to_a_full_queue_is_an_error(lab: PeasyLab) -> None:
    lab.serve("--queue-limit", "2", gpus="0")
    gate = lab.add_gate()
    lab.wait_for("Running", gate.id)
    lab.add("true"), lab.add("true")
    new = str(lab.work / "more.txt")
    job = {"jobName": "late", "outFile": new, "jobCommand": ["true"]}
    assert lab.post("/addnewjob", {"job": job}) == {
        "status": "failed",
        "message": "Could not add new job: late. Check logs for details",
    }
    assert not Path(new).exists()
    assert "[Error   ]:  Adding new job failed. Queue full." in lab.logs()
    gate.open()


def test_job_runs_without_a_shell_in_the_servers_folder_and_environment(lab: PeasyLab) -> None:
    lab.serve(gpus="2,3", MINE="yes")
    script = 'echo "$CUDA_VISIBLE_DEVICES $MINE $PWD"; echo oops >&2; cat'
    job = lab.add("sh", "-c", script, "$HOME | >x")
    quoted = lab.add("echo", "$HOME", "a  b", "|", "wc")
    lab.wait_for("Succeeded", job, quoted)
    assert lab.out(job) == f"2,3 yes {lab.work}\noops\n"
    assert lab.out(quoted) == "$HOME a  b | wc\n"
    assert lab.info(quoted)["jobCommand"] == "echo $HOME a  b | wc"


def test_return_code_is_minus_one_for_a_missing_program_and_negative_for_a_signal(
    lab: PeasyLab,
) -> None:
    lab.serve()
    missing = lab.add("no-such-program-anywhere", "x")
    killed = lab.add("sh", "-c", "kill -9 $$")
    failed = lab.add("sh", "-c", "exit 7")
    lab.wait_for("Failed", missing, killed, failed)
    codes = {job["jobID"]: job["returnCode"] for job in lab.value("/failedjobs")}
    assert codes == {missing: -1, killed: -9, failed: 7}


def test_command_given_as_a_string_is_split_into_letters_and_fails(lab: PeasyLab) -> None:
    lab.serve()
    job = {"jobName": "n", "outFile": "o.txt", "jobCommand": "ls -l"}
    id = lab.post("/addnewjob", {"job": job})["jobID"]
    lab.wait_for("Failed", id)
    assert lab.info(id)["jobCommand"] == "l s   - l"
    assert lab.info(id)["returnCode"] == -1


def test_devices_may_be_pairs_repeated_or_empty(lab: PeasyLab) -> None:
    lab.serve(gpus="0,1;;5;5")
    assert lab.value("/availabledevices") == ["0,1", "", "5", "5"]
    gates = [lab.add_gate() for _ in range(5)]
    lab.wait_for("Running", *(gate.id for gate in gates[:4]))
    assert [job["gpu"] for job in lab.value("/deviceutilization")] == ["0,1", "", "5", "5"]
    assert lab.info(gates[4].id)["status"] == "Scheduled"
    for gate in gates:
        lab.wait_for("Running", gate.id)
        gate.open()


def test_jobs_start_in_order_on_the_device_that_was_freed_first(lab: PeasyLab) -> None:
    lab.serve(gpus="a;b;c")
    gates = [lab.add_gate() for _ in range(8)]
    lab.wait_for("Running", *(gate.id for gate in gates[:3]))
    for index, freed in ((3, 1), (4, 2), (5, 0), (6, 3)):
        gates[freed].open()
        lab.wait_for("Running", gates[index].id)
        assert lab.gpu_of(gates[index].id) == lab.gpu_of(gates[freed].id)
    for gate in (gates[5], gates[4], gates[6]):
        gate.open()
        lab.wait_for("Succeeded", gate.id)
    lab.wait_for("Running", gates[7].id)
    assert lab.gpu_of(gates[7].id) == lab.gpu_of(gates[5].id)
    gates[7].open()
    lab.wait_for("Succeeded", gates[7].id)
    later = lab.add("true")  # gate 7 was the last to free its device
    lab.wait_for("Succeeded", later)
    assert lab.gpu_of(later) == lab.gpu_of(gates[4].id)


def test_short_jobs_do_not_overtake_earlier_ones(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    for _ in range(3):
        lab.wait_for("Succeeded", lab.add("true"))
    gate = lab.add_gate()
    order = lab.work / "order"
    ids = [lab.add("sh", "-c", f"echo {n} >> {order}") for n in range(6)]
    ids.append(lab.add("true"))
    gate.open()
    lab.wait_for("Succeeded", *ids)
    assert order.read_text().split() == [str(n) for n in range(6)]
    assert [job["jobID"] for job in lab.value("/successfuljobs")] == list(range(1, ids[-1] + 1))


def test_events_are_written_to_the_log_file(lab: PeasyLab) -> None:
    lab.serve(gpus="4")
    good, bad = lab.add("true", name="good one"), lab.add("false", name="bad")
    missing = lab.add("no-such-program-anywhere", name="gone")
    lab.wait_for("Succeeded", good)
    lab.wait_for("Failed", bad, missing)
    stamp = r"\[\d\d/\w{3}/\d{4} \d\d:\d\d:\d\d\] "
    wait_until(lambda: "Scheduling failed" in lab.logs())
    for line in (
        r"\[Info    \]:  Scheduling <1, good one> on gpu  4",
        r"\[Success \]:  Process <1, good one> exited with return code: 0",
        r"\[Warning \]:  Process <2, bad> exited with return code: 1",
        r"\[Error   \]:  Scheduling failed for <3, gone> on gpu 4",
    ):
        assert re.search(f"^{stamp}{line}$", lab.logs(), re.MULTILINE), lab.logs()


def test_unknown_paths_and_methods_get_http_errors(lab: PeasyLab) -> None:
    lab.serve()
    assert send_request(lab.port, "GET", "/nothing").status == 404
    assert send_request(lab.port, "GET", "/jobinfo/").status == 404
    assert send_request(lab.port, "GET", "/addnewjob").status == 405
    assert send_request(lab.port, "POST", "/successfuljobs").status == 405
    assert send_request(lab.port, "HEAD", "/successfuljobs").status == 200


def test_start_scripts_of_the_original_run_unchanged(lab: PeasyLab) -> None:
    script = lab.folder / "startserver.py"
    script.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        f"gpu = GPUPeasyServer(['0', '1,2'], debug=True, logdir='{lab.logdir}/')\n"
        "gpu.run(host='0.0.0.0', port='0')\n"
    )
    server = lab.launch(str(script))
    assert server.stdout is not None
    assert "127.0.0.1 only" in server.stdout.readline()
    lab.port = int(server.stdout.readline().split("127.0.0.1:")[1].split("/")[0])
    assert lab.value("/availabledevices") == ["0", "1,2"]
    assert os.path.exists(lab.logdir / "logs.out")
