"""A connection that is cut: no job is lost or queued twice, no line is lost or printed twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.features.remote.ssh_box import SshBox
from tests.lab import wait_until


def read_lines(stream: IO[str] | None, count: int) -> list[str]:
    assert stream is not None
    return [stream.readline().rstrip("\n") for _ in range(count)]


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, rest of stdout, rest of stderr; also what a `readline` has already buffered."""
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    return process.wait(), out, err


# -- submit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_submit_after_a_cut_reports_the_job_of_the_first_try(box: SshBox, when: str) -> None:
    box.ok("ls")
    held = box.hold(when, "submit")
    process = box.popen("submit", "-q", "--hold", "true")
    box.wait_until_held()
    box.cut()
    held.unlink()  # the first try goes on too, on the box
    code, out, err = finish(process)
    assert (code, out) == (0, "1\n")
    assert err == "the connection to box was lost; connecting again\n"
    _wait_for_end_of_first_try(box)
    assert box.there.states() == {1: "held"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_job_file_after_a_cut_is_queued_once(box: SshBox, when: str) -> None:
    count = 12_000  # three transactions
    lines = "".join(f"echo {number}\n" for number in range(count))
    held = box.hold(when, "submit")
    process = box.popen("submit", "--json", "--hold", "-f", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(lines)
    process.stdin.close()
    process.stdin = None
    box.wait_until_held()
    box.cut()
    held.unlink()
    code, out, _ = finish(process)
    assert (code, json.loads(out)["jobs"]) == (0, list(range(1, count + 1)))
    _wait_for_end_of_first_try(box)
    jobs = json.loads(box.there.ok("ls", "--state", "all", "-n", "100000", "--json"))["jobs"]
    assert [job["command"] for job in jobs] == [f"echo {number}" for number in range(count)]


def test_job_file_of_which_a_part_arrives_is_not_queued(box: SshBox) -> None:
    settings = json.dumps({"token": "t", "bytes": 100})
    done = box.there.run("box", "submit", settings, "-f", "-", input="rm -r results/o")
    assert done.returncode == 69
    assert "only 15 of 100 bytes of the job file arrived; no job was queued" in done.stderr
    assert box.there.states() == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_sweep_after_a_cut_reports_the_jobs_of_the_first_try(box: SshBox, when: str) -> None:
    held = box.hold(when, "sweep")
    process = box.popen("sweep", "--json", "--hold", "echo {a}", "a=1,2,3")
    box.wait_until_held()
    box.cut()
    held.unlink()
    code, out, _ = finish(process)
    assert code == 0
    started = json.loads(out)
    assert (started["new"], started["added"], started["jobs"]) == (True, 3, [1, 2, 3])
    _wait_for_end_of_first_try(box)
    assert box.there.states() == dict.fromkeys((1, 2, 3), "held")
    again = json.loads(box.ok("sweep", "--json", "--hold", "echo {a}", "a=1,2,3,4"))
    assert (again["new"], again["added"], again["jobs"]) == (False, 1, [4])


def test_submit_that_is_killed_halfway_is_completed_by_the_next_try(box: SshBox) -> None:
    """The process on the box dies between two transactions of a job file."""
    lines = "".join(f"echo {number}\n" for number in range(7000))
    settings = json.dumps({"token": "t", "bytes": len(lines)})
    words = ("box", "submit", settings, "--json", "--hold", "-f", "-")
    killed = box.there.run(*words, input=lines, STOKER_FAILPOINT="submit.after_commit:1")
    assert killed.returncode == -9
    assert len(box.there.states()) == 5000
    done = box.there.ok(*words, input=lines)
    assert json.loads(done)["jobs"] == list(range(1, 7001))
    assert len(box.there.states()) == 7000


def test_receipts_of_submits_are_removed_after_a_week(box: SshBox) -> None:
    import sqlite3

    assert box.ok("submit", "-q", "--hold", "true") == "1\n"
    db = sqlite3.connect(box.there.state_dir / "queue.db")
    with db:
        db.execute("UPDATE meta SET value = json_set(value, '$.at', 1) WHERE key LIKE 'submit:%'")
    assert box.ok("submit", "-q", "--hold", "true") == "2\n"
    assert db.execute("SELECT count(*) FROM meta WHERE key LIKE 'submit:%'").fetchone() == (1,)
    db.close()


def test_submit_gives_up_when_the_box_stays_away(box: SshBox) -> None:
    held = box.hold("before", "submit")
    process = box.popen("submit", "true", "--json", env={"STOKER_RECONNECT": "0.1"})
    box.wait_until_held()
    box.sshd.stop()
    code, _, err = finish(process)
    box.sshd.start()
    held.unlink()
    assert code == 69, err
    assert "it is unknown whether the jobs are queued" in err
    assert "hint: see what is there: stoker --host box ls" in err


def test_command_gives_up_when_the_box_accepts_connections_and_does_not_answer(
    box: SshBox,
) -> None:
    job = box.there.submit("--hold", "true")
    held = box.hold("before", "wait")
    process = box.popen("wait", str(job), env={"STOKER_RECONNECT": "0.1"})
    box.wait_until_held()
    box.sshd.process.send_signal(signal.SIGSTOP)  # the kernel still accepts connections
    try:
        box.cut()
        code, _, err = finish(process)
    finally:
        box.sshd.process.send_signal(signal.SIGCONT)
        held.unlink()
    assert (code, err.splitlines()[1:]) == (69, [
        "error: cannot connect to box over ssh", "hint: check the connection with: ssh box"
    ])  # fmt: skip


def _wait_for_end_of_first_try(box: SshBox) -> None:
    program = os.fsencode(box.folder / "there" / "bin" / "stoker")

    def runs() -> bool:
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if program in Path(f"/proc/{entry}/cmdline").read_bytes():
                        return True
                except OSError:
                    continue
        return False

    wait_until(lambda: not runs(), what="the end of the commands on the box")


# -- log -f ----------------------------------------------------------------------------------------


def gated_job(box: SshBox, script: str, *options: str) -> tuple[int, list[Path]]:
    """A job that waits at one of two FIFOs where its script runs `gate 0` or `gate 1`."""
    gates = [box.folder / f"gate{number}" for number in (0, 1)]
    for gate in gates:
        os.mkfifo(gate)
    text = f"gate() {{ read -r _ < {box.folder}/gate$1; }}; {script}"
    return box.there.submit(*options, text), gates


@pytest.mark.parametrize("options", [[], ["--raw"]])
def test_log_continues_after_cuts_without_a_gap(box: SshBox, options: list[str]) -> None:
    job, gates = gated_job(
        box, "seq 1 3; gate 0; seq 4 2000; printf 'half a '; gate 1; echo line; seq 2001 2003"
    )
    process = box.popen("log", "-f", *options, str(job))
    lines = read_lines(process.stdout, 3)
    box.cut()
    gates[0].write_text("\n")
    lines += read_lines(process.stdout, 1997)
    box.cut()
    box.cut()
    gates[1].write_text("\n")
    code, out, err = finish(process)
    assert code == 0
    assert err.endswith(f"job {job} done\n")
    expected = [*range(1, 2001), "half a line", 2001, 2002, 2003]
    assert [*lines, *out.splitlines()] == [str(line) for line in expected]


def test_log_with_json_continues_after_a_cut(box: SshBox) -> None:
    job, gates = gated_job(box, "seq 1 3; gate 0; seq 4 6; exit 3")
    process = box.popen("log", "-f", "--json", str(job))
    lines = read_lines(process.stdout, 3)
    box.cut()
    gates[0].write_text("\n")
    _, out, _ = finish(process)
    objects = [json.loads(line) for line in [*lines, *out.splitlines()]]
    assert [one["line"] for one in objects[:-1]] == ["1", "2", "3", "4", "5", "6"]
    assert objects[-1] == {"schema": 2, "job": job, "state": "failed", "exit_code": 3,
                           "signal": None}  # fmt: skip


def test_log_prints_attempts_that_ran_while_the_connection_was_lost(box: SshBox) -> None:
    gates = [box.folder / f"gate{number}" for number in (1, 2, 3)]
    for gate in gates:
        os.mkfifo(gate)
    script = f"n=$STOKER_ATTEMPT; echo first $n; read -r _ < {box.folder}/gate$n; echo last $n"
    job = box.there.submit("--retries", "2", f'{script}; test "$n" = 3')
    process = box.popen("log", "-f", str(job))
    assert read_lines(process.stdout, 1) == ["first 1"]
    box.sshd.stop()
    for gate in gates:
        gate.write_text("\n")
    assert box.there.wait(job) == 0
    box.sshd.start()
    _, out, _ = finish(process)
    assert out.splitlines() == ["last 1", "first 2", "last 2", "first 3", "last 3"]


def test_log_of_a_file_that_attempts_append_to_has_no_line_twice(box: SshBox) -> None:
    job, gates = gated_job(
        box, 'echo $STOKER_ATTEMPT; gate $((STOKER_ATTEMPT - 1)); test "$STOKER_ATTEMPT" = 2',
        "--retries", "1", "-o", str(box.folder / "out.txt"),
    )  # fmt: skip
    process = box.popen("log", "-f", str(job))
    assert read_lines(process.stdout, 1) == ["1"]
    box.cut()
    gates[0].write_text("\n")
    assert read_lines(process.stdout, 1) == ["2"]
    gates[1].write_text("\n")
    assert finish(process)[1] == ""


def test_log_follows_the_same_job_after_a_cut(box: SshBox) -> None:
    job, gates = gated_job(box, "echo one; gate 0; echo two")
    process = box.popen("log", "-f")
    assert read_lines(process.stdout, 1) == ["one"]
    box.there.submit("echo other")  # now the last job
    box.cut()
    gates[0].write_text("\n")
    _, out, err = finish(process)
    assert out == "two\n"
    assert f"job {job} done" in err


def test_log_of_the_last_lines_continues_after_a_cut(box: SshBox) -> None:
    job, gates = gated_job(box, "seq 1 9; gate 0; seq 10 12")
    box.there.wait_until(lambda: box.there.log(job).endswith("9\n"))
    process = box.popen("log", "-f", "-n", "2", str(job))
    assert read_lines(process.stdout, 2) == ["8", "9"]
    box.cut()
    gates[0].write_text("\n")
    assert finish(process)[1] == "10\n11\n12\n"


def test_interrupted_log_says_that_the_job_continues(box: SshBox) -> None:
    job, gates = gated_job(box, "echo one; gate 0")
    process = box.popen("log", "-f", str(job))
    assert read_lines(process.stdout, 1) == ["one"]
    process.send_signal(2)
    code, _, err = finish(process)
    assert (code, err) == (
        0, f"\njob {job} keeps running; to end it: stoker --host box cancel {job}\n"
    )  # fmt: skip
    gates[0].write_text("\n")


# -- wait ------------------------------------------------------------------------------------------


def test_wait_continues_after_a_cut_for_the_same_jobs(box: SshBox) -> None:
    job, gates = gated_job(box, "gate 0; exit 7")
    box.there.wait_until(lambda: box.there.state(job) == "running")
    held = box.hold("before", "wait")
    process = box.popen("wait", "running")
    assert process.stderr is not None
    box.wait_until_held()
    box.cut()
    held.unlink()
    assert process.stderr.readline() == "the connection to box was lost; connecting again\n"
    gates[0].write_text("\n")
    other = box.there.submit("--hold", "true")
    code, _, err = finish(process)
    assert (code, err) == (7, f"job {job} failed: exit 7\n"), other


def test_wait_with_a_timeout_does_not_start_again_after_a_cut(box: SshBox) -> None:
    job = box.there.submit("--hold", "true")
    held = box.hold("before", "wait")
    process = box.popen("wait", "--timeout", "2", "-q", str(job))
    box.wait_until_held()
    box.cut()
    held.unlink()
    code, _, err = finish(process)
    assert code == 124, err
