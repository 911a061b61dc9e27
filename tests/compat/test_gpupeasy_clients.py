"""GPUPeasy as used by scripts and edited start scripts: `curl -F`, paths, devices."""

from __future__ import annotations

import doctest
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stoker.compat.gpupeasy import app, html_pages, job_text
from tests.compat.gpupeasy_lab import PeasyLab, Reply, port_of, send_request, stop
from tests.lab import wait_until


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PeasyLab]:
    lab = PeasyLab(tmp_path)
    yield lab
    lab.close()


@pytest.mark.parametrize("module", [app, html_pages, job_text])
def test_docstring_examples_are_correct(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


# -- forms -----------------------------------------------------------------------------------------


def multipart(lab: PeasyLab, path: str, **fields: str) -> Reply:
    """Send a form as `curl -F` does."""
    boundary = "------------------------d74496d66958873e"
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    body = "".join([*lines, f"--{boundary}--\r\n"]).encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return send_request(lab.gui_port, "POST", path, body, kind)


def test_multipart_forms_are_accepted(shared: PeasyLab) -> None:
    out = shared.work / "parts.txt"
    reply = multipart(shared, "/batchaddjobs", jobList=f"é;;{out};;\r\n printf 'a & b\\nc'")
    assert reply.messages == {"infoMessage": "Jobs successfully passed onto scheduler.\n"}
    wait_until(lambda: "é" in [job["jobName"] for job in shared.value("/successfuljobs")])
    log = multipart(shared, "/loadlogfile", fileName=str(out), lastN="1")
    assert log.json() == {"status": "successful", "value": "c"}
    words = multipart(shared, "/testCommandParser", jobCommand="ls -l").messages
    assert words == {"status": "successful", "commandList": ["ls", "-l"]}


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data;x=y"]
)
def test_multipart_form_without_a_boundary_is_an_error(shared: PeasyLab, kind: str) -> None:
    reply = send_request(
        shared.gui_port, "POST", "/batchaddjobs", b"--x\r\n", {"Content-Type": kind}
    )
    assert (reply.status, reply.json()["status"]) == (400, "failed")


@pytest.mark.parametrize(
    "body", [b"", b"--X", b"--X--", b"--X\r\n\r\n", b"--X\r\nnonsense\r\n\r\nx\r\n--X--",
             b'--X\r\nContent-Disposition: form-data; name="a\r\n\r\nx', b"--X\r\n" * 1000],
)  # fmt: skip
def test_truncated_multipart_form_is_harmless(body: bytes) -> None:
    assert "jobList" not in app.fields_of("multipart/form-data; boundary=X", body)


def test_allowed_methods_are_listed_as_by_flask(shared: PeasyLab) -> None:
    wrong = send_request(shared.gui_port, "DELETE", "/batchaddjobs")
    assert wrong.status == 405
    assert sorted(wrong.headers["Allow"].split(", ")) == ["GET", "HEAD", "OPTIONS", "POST"]
    options = send_request(shared.port, "OPTIONS", "/addnewjob")
    assert (options.status, options.text) == (200, "")
    assert options.headers["Allow"].split(", ") == ["OPTIONS", "POST"]
    assert send_request(shared.port, "OPTIONS", "/jobinfo/1").status == 200
    assert send_request(shared.port, "OPTIONS", "/nothing").status == 404


def test_shell_case_statement_is_parsed_as_a_command(shared: PeasyLab) -> None:
    text = "sh -c 'case $1 in a) echo 1;; b) echo 2;; esac'"
    response = shared.send("/testCommandParser", jobCommand=text).messages
    assert response == {"status": "successful",
                      "commandList": ["sh", "-c", "case $1 in a) echo 1;; b) echo 2;; esac"],
                      }  # fmt: skip
    assert shared.send("/testCommandParser", jobCommand="only;;two").messages["errorCount"] == 1


def test_loadlogfile_returns_json_while_the_server_is_down(lab: PeasyLab) -> None:
    stop(lab.serve())
    lab.show()
    reply = lab.send("/loadlogfile", fileName="x", lastN="1")
    assert (reply.status, reply.json()["status"]) == (200, "failed")
    assert "Connection error" in reply.json()["value"]


# -- batches ---------------------------------------------------------------------------------------


def test_error_in_a_batch_names_its_job(shared: PeasyLab) -> None:
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
    output = process.communicate()[0]
    assert f"Error in job: second: Could not open output file: {shared.work}/none/x\n" in output
    assert "first" not in output


def test_batch_for_a_full_queue_gets_one_error(lab: PeasyLab) -> None:
    lab.serve("--queue-limit", "1", gpus="0")
    lab.show()
    reply = lab.send("/batchaddjobs", jobList="a;;a;;true;;;b;;b;;true")
    assert reply.messages == {
        "errorMessage": "Could not add new job: a. Check logs for details"
    }  # fmt: skip
    (lab.work / "two.peasy").write_text("a;;a;;true;;;b;;b;;true")
    process = lab.launch("-m", "gpupeasy", "submit", "two.peasy", "--backend-port", str(lab.port))
    output = process.communicate()[0]
    assert output.startswith("error: Could not add new job: a. Check logs for details\n")


def test_batch_with_two_spellings_of_one_output_file_is_refused(shared: PeasyLab) -> None:
    (shared.work / "link").symlink_to(".")
    for other in ("./one", f"{shared.work}/one", f"{shared.work}/x/../one", "link/one"):
        response = shared.post("/addnewjobs", {"jobs": [
            {"jobName": "a", "outFile": "one", "jobCommand": ["true"]},
            {"jobName": "b", "outFile": other, "jobCommand": ["true"]},
        ]})  # fmt: skip
        assert response["errors"] == [None, f"Output file already exists: {other}"]


# -- logs ------------------------------------------------------------------------------------------


def test_log_is_found_under_every_spelling_of_its_path(shared: PeasyLab) -> None:
    job = {"jobName": "n", "outFile": "o1", "jobCommand": ["echo", "hello"]}
    shared.wait_for("Succeeded", shared.post("/addnewjob", {"job": job})["jobID"])
    for name in ("o1", "./o1", str(shared.work / "o1"), f"{shared.work}/./o1", "../work/o1"):
        reply = shared.send("/loadlogfile", fileName=name, lastN="1")
        assert reply.json() == {"status": "successful", "value": "hello\n"}
    for name in ("o1/", "o", "../o1", "o1/.", "./"):
        reply = shared.send("/loadlogfile", fileName=name, lastN="1")
        assert reply.json() == f"File not found: {name}"


# -- restarted servers -----------------------------------------------------------------------------


def test_rerun_uses_the_folder_and_environment_of_the_job(lab: PeasyLab) -> None:
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
    (first / "o.3").symlink_to("nowhere")  # a dangling link, so the name is taken
    third = lab.post(f"/rerunjob/{old}")["jobID"]
    lab.wait_for("Succeeded", third)
    assert lab.info(third)["outFile"] == "o.4"


def test_rerun_is_refused_if_its_folder_was_removed(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    folder = lab.work / "gone"
    folder.mkdir()
    job = {"jobName": "n", "outFile": str(folder / "o"), "jobCommand": ["true"]}
    old = lab.post("/addnewjob", {"job": job})["jobID"]
    lab.wait_for("Succeeded", old)
    (folder / "o").unlink()
    folder.rmdir()
    response = lab.post(f"/rerunjob/{old}")
    assert response == {"status": "failed", "message": f"Could not open output file: {folder}/o.2"}
    assert lab.value("/scheduledjobs") == []


def test_server_starts_after_the_ends_of_earlier_jobs_are_recorded(lab: PeasyLab) -> None:
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
def test_devices_of_a_start_script_are_used_unchanged(lab: PeasyLab, names: list[str]) -> None:
    script = lab.folder / "startserver.py"
    script.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        f"GPUPeasyServer({names!r}, logdir='{lab.logdir}').run(host='127.0.0.1', port='0')\n"
    )
    lab.port = port_of(lab.launch(str(script)))
    assert lab.value("/availabledevices") == names
    for name in names:
        assert lab.post("/removedevice", {"device": name})["status"] == "successful"


def test_device_may_start_with_a_dash(lab: PeasyLab) -> None:
    lab.serve(gpus="-1;0")
    assert lab.value("/availabledevices") == ["-1", "0"]
    job = lab.add("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
    lab.wait_for("Succeeded", job)
    assert lab.out(job) == "-1\n"


def test_adddevice_has_the_syntax_of_the_command_line(lab: PeasyLab) -> None:
    lab.serve(gpus="0")
    response = lab.post("/adddevice", {"device": " 4-6;2,3 "})
    assert response == {"status": "successful", "message": "Device added: 4; 5; 6; 2,3"}
    assert lab.value("/availabledevices") == ["0", "4", "5", "6", "2,3"]
    for wrong in ("7\n", "7\n8", "7\0", "7\t8", "\x1b[31m7", "0-9999"):
        assert lab.post("/adddevice", {"device": wrong})["status"] == "failed"
    assert lab.post("/removedevice", {"device": "4-7"})["status"] == "failed"
    assert lab.post("/removedevice", {"device": " 4-6 "})["status"] == "successful"
    assert lab.value("/availabledevices") == ["0", "2,3"]
    lab.post("/adddevice", {"device": ""})
    assert lab.value("/availabledevices") == ["0", "2,3", ""]


# -- failed starts ---------------------------------------------------------------------------------


def test_server_that_cannot_start_creates_no_folder(lab: PeasyLab) -> None:
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
            output = server.communicate()[0]
            assert (server.returncode, output[:7]) == (code, "error: "), output
            assert not lab.logdir.exists()
            assert os.listdir(lab.work) == []


def test_invalid_port_is_reported_in_one_sentence(lab: PeasyLab) -> None:
    script = lab.folder / "startserver.py"
    script.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        f"GPUPeasyServer(['0'], logdir='{lab.logdir}').run(host='127.0.0.1', port='many')\n"
    )
    server = lab.launch(str(script))
    assert server.communicate()[0] == "error: `many` is not a port number\n"
    assert server.returncode == 2
    assert not lab.logdir.exists()


def test_command_line_without_a_command_is_explained(lab: PeasyLab) -> None:
    output, _ = lab.launch("-m", "gpupeasy").communicate()
    assert "the following arguments are required: command" in output
    output, _ = lab.launch("-m", "gpupeasy", "submit", "--help").communicate()
    text = " ".join(output.split())
    assert "--backend-host ADDRESS address of the server (default: 127.0.0.1)" in text
    assert "--backend-port N port of the server (default: " in text
