"""GPUPeasy as scripts and edited start scripts use it: `curl -F`, other paths, other devices."""

from __future__ import annotations

import doctest
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stoker.compat.gpupeasy import devices, files, forms
from tests.compat.gpupeasy_lab import PeasyLab, Reply, ask, port_of, stop
from tests.lab import wait_until


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PeasyLab]:
    made = PeasyLab(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeasyLab]:
    made = PeasyLab(tmp_path_factory.mktemp("shared"))
    made.serve()
    made.show()
    yield made
    made.close()


@pytest.mark.parametrize("module", [devices, files, forms])
def test_examples_in_the_code_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


# -- forms -----------------------------------------------------------------------------------------


def multipart(lab: PeasyLab, path: str, **fields: str) -> Reply:
    """As `curl -F` sends it."""
    edge = "------------------------d74496d66958873e"
    lines = [
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    body = "".join([*lines, f"--{edge}--\r\n"]).encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={edge}"}
    return ask(lab.gui_port, "POST", path, body, kind)


def test_forms_may_come_in_parts(shared: PeasyLab) -> None:
    out = shared.work / "parts.txt"
    reply = multipart(shared, "/batchaddjobs", jobList=f"é;;{out};;\r\n printf 'a & b\\nc'")
    assert reply.messages == {"infoMessage": "Jobs successfully passed onto scheduler.\n"}
    wait_until(lambda: "é" in [one["jobName"] for one in shared.value("/successfuljobs")])
    log = multipart(shared, "/loadlogfile", fileName=str(out), lastN="1")
    assert log.json() == {"status": "successful", "value": "c"}
    words = multipart(shared, "/testCommandParser", jobCommand="ls -l").messages
    assert words == {"status": "successful", "commandList": ["ls", "-l"]}


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data;x=y"]
)
def test_parts_without_a_boundary_are_no_form(shared: PeasyLab, kind: str) -> None:
    reply = ask(shared.gui_port, "POST", "/batchaddjobs", b"--x\r\n", {"Content-Type": kind})
    assert (reply.status, reply.json()["status"]) == (400, "failed")


@pytest.mark.parametrize(
    "body", [b"", b"--X", b"--X--", b"--X\r\n\r\n", b"--X\r\nnonsense\r\n\r\nx\r\n--X--",
             b'--X\r\nContent-Disposition: form-data; name="a\r\n\r\nx', b"--X\r\n" * 1000],
)  # fmt: skip
def test_parts_that_are_cut_off_do_no_harm(body: bytes) -> None:
    assert "jobList" not in forms.fields_of("multipart/form-data; boundary=X", body)


def test_methods_are_told_as_flask_tells_them(shared: PeasyLab) -> None:
    wrong = ask(shared.gui_port, "DELETE", "/batchaddjobs")
    assert wrong.status == 405
    assert sorted(wrong.headers["Allow"].split(", ")) == ["GET", "HEAD", "OPTIONS", "POST"]
    asked = ask(shared.port, "OPTIONS", "/addnewjob")
    assert (asked.status, asked.text) == (200, "")
    assert asked.headers["Allow"].split(", ") == ["OPTIONS", "POST"]
    assert ask(shared.port, "OPTIONS", "/jobinfo/1").status == 200
    assert ask(shared.port, "OPTIONS", "/nothing").status == 404


def test_a_shells_case_is_a_command_and_no_job_list(shared: PeasyLab) -> None:
    text = "sh -c 'case $1 in a) echo 1;; b) echo 2;; esac'"
    answer = shared.send("/testCommandParser", jobCommand=text).messages
    assert answer == {"status": "successful",
                      "commandList": ["sh", "-c", "case $1 in a) echo 1;; b) echo 2;; esac"],
                      }  # fmt: skip
    assert shared.send("/testCommandParser", jobCommand="only;;two").messages["errorCount"] == 1


def test_a_script_that_loads_a_log_gets_json_while_the_server_is_away(lab: PeasyLab) -> None:
    stop(lab.serve())
    lab.show()
    reply = lab.send("/loadlogfile", fileName="x", lastN="1")
    assert (reply.status, reply.json()["status"]) == (200, "failed")
    assert "Connection error" in reply.json()["value"]


# -- batches ---------------------------------------------------------------------------------------


def test_an_error_in_a_batch_names_its_own_job(shared: PeasyLab) -> None:
    batch = f"first;;{shared.work}/fine;;true;;;second;;{shared.work}/none/x;;true"
    reply = shared.send("/batchaddjobs", jobList=batch)
    assert reply.messages["errorMessage"] == (
        "There were 1 errors. \n\n"
        f"Error in job: second: Could not open output file: {shared.work}/none/x\n\n"
    )
    assert not (shared.work / "fine").exists()
    file = shared.work / "two.peasy"
    file.write_text(batch)
    port = str(shared.port)
    process = shared.launch("-m", "gpupeasy", "submit", str(file), "--backend-port", port)
    said = process.communicate(timeout=30)[0]
    assert f"Error in job: second: Could not open output file: {shared.work}/none/x\n" in said
    assert "first" not in said


def test_a_full_queue_is_about_no_job_in_particular(lab: PeasyLab) -> None:
    lab.serve("--queue-limit", "1", gpus="0")
    lab.show()
    reply = lab.send("/batchaddjobs", jobList="a;;a;;true;;;b;;b;;true")
    assert reply.messages == {
        "errorMessage": "Could not add new job: a. Check logs for details"
    }  # fmt: skip
    (lab.work / "two.peasy").write_text("a;;a;;true;;;b;;b;;true")
    process = lab.launch("-m", "gpupeasy", "submit", "two.peasy", "--backend-port", str(lab.port))
    said = process.communicate(timeout=30)[0]
    assert said.startswith("error: Could not add new job: a. Check logs for details\n")


def test_jobs_of_a_batch_that_write_one_file_by_two_names_are_refused(shared: PeasyLab) -> None:
    (shared.work / "link").symlink_to(".")
    for other in ("./one", f"{shared.work}/one", f"{shared.work}/x/../one", "link/one"):
        answer = shared.post("/addnewjobs", {"jobs": [
            {"jobName": "a", "outFile": "one", "jobCommand": ["true"]},
            {"jobName": "b", "outFile": other, "jobCommand": ["true"]},
        ]})  # fmt: skip
        assert answer["errors"] == [None, f"Output file already exists: {other}"]


# -- logs ------------------------------------------------------------------------------------------


def test_a_log_is_found_under_every_name_of_its_file(shared: PeasyLab) -> None:
    job = {"jobName": "n", "outFile": "o1", "jobCommand": ["echo", "hello"]}
    shared.wait_for("Succeeded", shared.post("/addnewjob", {"job": job})["jobID"])
    for name in ("o1", "./o1", str(shared.work / "o1"), f"{shared.work}/./o1", "../work/o1"):
        reply = shared.send("/loadlogfile", fileName=name, lastN="1")
        assert reply.json() == {"status": "successful", "value": "hello\n"}
    for name in ("o1/", "o", "../o1", "o1/.", "./"):
        reply = shared.send("/loadlogfile", fileName=name, lastN="1")
        assert reply.json() == f"File not found: {name}"


# -- another server --------------------------------------------------------------------------------


def test_a_rerun_is_where_and_with_what_the_job_was(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0", MINE="first")
    job = {"jobName": "n", "outFile": "o", "jobCommand": ["sh", "-c", 'echo "$MINE $PWD"'],
           "priority": 40}  # fmt: skip
    old = lab.post("/addnewjob", {"job": job})["jobID"]
    lab.wait_for("Succeeded", old)
    first = lab.work
    stop(server)
    lab.work = lab.folder / "elsewhere"
    lab.work.mkdir()
    lab.serve(gpus="0", MINE="second")
    again = lab.post(f"/rerunjob/{old}")["jobID"]
    lab.wait_for("Succeeded", again)
    assert (first / "o.2").read_text() == f"first {first}\n"
    details = lab.value(f"/jobdetails/{again}")
    assert (details["outFile"], details["priority"], details["rerunOf"]) == ("o.2", 40, old)
    assert list(lab.work.iterdir()) == []
    (first / "o.3").symlink_to("nowhere")  # not free, although it leads nowhere
    third = lab.post(f"/rerunjob/{old}")["jobID"]
    lab.wait_for("Succeeded", third)
    assert lab.info(third)["outFile"] == "o.4"


def test_a_rerun_whose_folder_is_gone_is_refused(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    folder = lab.work / "gone"
    folder.mkdir()
    job = {"jobName": "n", "outFile": str(folder / "o"), "jobCommand": ["true"]}
    old = lab.post("/addnewjob", {"job": job})["jobID"]
    lab.wait_for("Succeeded", old)
    (folder / "o").unlink()
    folder.rmdir()
    answer = lab.post(f"/rerunjob/{old}")
    assert answer == {"status": "failed", "message": f"Could not open output file: {folder}/o.2"}
    assert lab.value("/scheduledjobs") == []


def test_a_server_answers_when_it_knows_how_jobs_ended_without_it(lab: PeasyLab) -> None:
    server = lab.serve(gpus="0")
    gate = lab.add_gate()
    lab.wait_for("Running", gate.id)
    stop(server)
    gate.open(4)
    wait_until(lambda: lab.runner_pid() is None)
    lab.serve(gpus=None)
    assert (lab.info(gate.id)["status"], lab.info(gate.id)["returnCode"]) == ("Failed", 4)


# -- devices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["-1", "0"], ["0, 1", "2"], ["a;b"], ["0-3"], [], ["", "GPU-1"]])
def test_devices_of_a_start_script_are_taken_as_they_are(lab: PeasyLab, names: list[str]) -> None:
    script = lab.folder / "startserver.py"
    script.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        f"GPUPeasyServer({names!r}, logdir='{lab.logdir}').run(host='127.0.0.1', port='0')\n"
    )
    lab.port = port_of(lab.launch(str(script)))
    assert lab.value("/availabledevices") == names
    for name in names:
        assert lab.post("/removedevice", {"device": name})["status"] == "successful"


def test_a_device_may_begin_with_a_dash(lab: PeasyLab) -> None:
    lab.serve(gpus="-1;0")
    assert lab.value("/availabledevices") == ["-1", "0"]
    job = lab.add("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
    lab.wait_for("Succeeded", job)
    assert lab.out(job) == "-1\n"


def test_devices_are_added_as_they_are_named_on_the_command_line(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    answer = lab.post("/adddevice", {"device": " 4-6;2,3 "})
    assert answer == {"status": "successful", "message": "Device added: 4; 5; 6; 2,3"}
    assert lab.value("/availabledevices") == ["0", "4", "5", "6", "2,3"]
    for wrong in ("7\n", "7\n8", "7\0", "7\t8", "\x1b[31m7", "0-9999"):
        assert lab.post("/adddevice", {"device": wrong})["status"] == "failed"
    assert lab.post("/removedevice", {"device": "4-7"})["status"] == "failed"
    assert lab.post("/removedevice", {"device": " 4-6 "})["status"] == "successful"
    assert lab.value("/availabledevices") == ["0", "2,3"]
    lab.post("/adddevice", {"device": ""})
    assert lab.value("/availabledevices") == ["0", "2,3", ""]


# -- nothing is left of what cannot be -------------------------------------------------------------


def test_a_server_that_cannot_be_makes_no_folder(lab: PeasyLab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        for words, code in (
            (["--port", "99999"], 2),
            (["--port", "-1"], 2),
            (["--port", taken], 1),
            (["--host", "0.0.0.0", "--port", "0"], 2),
            (["--host", "no such host", "--port", "0", "--token-file", "token"], 2),
        ):
            server = lab.launch("-m", "gpupeasy", "server", "--logdir", str(lab.logdir), *words)
            said = server.communicate(timeout=30)[0]
            assert (server.returncode, said[:7]) == (code, "error: "), said
            assert not lab.logdir.exists()
            assert os.listdir(lab.work) == []


def test_a_port_that_is_no_number_is_told_in_a_sentence(lab: PeasyLab) -> None:
    script = lab.folder / "startserver.py"
    script.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        f"GPUPeasyServer(['0'], logdir='{lab.logdir}').run(host='127.0.0.1', port='many')\n"
    )
    server = lab.launch(str(script))
    assert server.communicate(timeout=30)[0] == "error: there is no port `many`\n"
    assert server.returncode == 2
    assert not lab.logdir.exists()
