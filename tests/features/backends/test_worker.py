"""The worker of a chunk, run without an engine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.features.backends import chunk_files
from tests.features.backends.chunk_lab import ChunkLab
from tests.helpers import Gate, is_alive
from tests.lab import wait_until


@pytest.fixture
def chunk(tmp_path: Path) -> Iterator[ChunkLab]:
    lab = ChunkLab(tmp_path)
    yield lab
    lab.close()


def test_worker_reports_starts_and_ends_of_jobs(chunk: ChunkLab) -> None:
    chunk.write("echo one", "exit 3", "kill -9 $$", "no-such-program")
    assert chunk.run(SLURMD_NODENAME="n7") == (0, "")
    assert chunk.ends() == {
        1: (0, None), 2: (3 << 8, None), 3: (9, None), 4: (127 << 8, "start_failed")
    }  # fmt: skip
    begun = chunk.events("begun")
    assert [(event["job"], event["attempt"]) for event in begun] == [
        (1, 101), (2, 102), (3, 103), (4, 104)
    ]  # fmt: skip
    assert {event["node"] for event in begun} == {"n7"}
    assert {event["gpus"] for event in begun} <= {"0", "1"}
    kinds = [event["kind"] for event in chunk.events()]
    assert (kinds[0], kinds[-1]) == ("owned", "closed")
    assert chunk.log(1) == "one\n"


def test_every_start_is_announced_before(chunk: ChunkLab) -> None:
    chunk.write(*["true"] * 40)
    assert chunk.run() == (0, "")
    announced: set[int] = set()
    for event in chunk.events():
        if event["kind"] == "reserved":
            announced |= {attempt for _, attempt in event["jobs"]}
        elif event["kind"] == "begun":
            assert event["attempt"] in announced
    assert len(chunk.ends()) == 40


def test_jobs_get_the_gpus_of_the_allocation(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(*[f"echo $CUDA_VISIBLE_DEVICES; {gate.wait}"] * 3)
    worker = chunk.start(CUDA_VISIBLE_DEVICES="2,5")
    gate.wait_for(2)
    wait_until(lambda: sorted(chunk.log(job).strip() for job in (1, 2)) == ["2", "5"])
    assert len(gate.arrived()) == 2
    gate.open()
    assert worker.wait() == 0
    assert chunk.log(3).strip() in ("2", "5")


def test_jobs_without_gpu_use_the_cpus_of_the_allocation(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(*[f'echo "<$CUDA_VISIBLE_DEVICES>"; {gate.wait}'] * 4, gpus=0)
    worker = chunk.start(SLURM_CPUS_PER_TASK="3")
    gate.wait_for(3)
    gate.open()
    assert worker.wait() == 0
    assert {chunk.log(job) for job in (1, 2, 3, 4)} == {"<>\n"}


def test_job_that_needs_more_gpus_than_the_allocation_has_fails_at_once(chunk: ChunkLab) -> None:
    chunk.write("true", "true", gpus=3)
    assert chunk.run() == (0, "")
    assert chunk.ends() == {1: (None, "start_failed"), 2: (None, "start_failed")}
    detail = chunk.events("ended")[0]["detail"]
    assert detail == "it needs 3 GPUs, but the allocation has 2 GPUs"


def test_job_sees_variables_of_its_submit_and_of_the_engine(chunk: ChunkLab) -> None:
    chunk.write('echo "$HOME $SLURM_JOB_ID <$SLURM_EXPORT_ENV> $STOKER_JOB_ID $STOKER_ATTEMPT"')
    assert chunk.run(SLURM_JOB_ID="12", SLURM_EXPORT_ENV="HOME") == (0, "")
    assert chunk.log(1) == f"{chunk.work} 12 <> 1 1\n"


# -- cancel and revocation -----------------------------------------------------------------------


def test_running_and_waiting_jobs_are_cancelled_through_the_stop_file(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, "touch never", "touch never", "true")
    worker = chunk.start()
    gate.wait_for(2)
    chunk.stop_jobs(3, 1, 4)
    wait_until(lambda: 1 in chunk.ends() and len(chunk.returned()) == 2)
    gate.open()
    assert worker.wait() == 0
    assert sorted(chunk.returned()) == [(3, "cancelled"), (4, "cancelled")]
    assert chunk.ends() == {1: (signal.SIGTERM, "user"), 2: (0, None), 5: (0, None)}
    assert not (chunk.work / "never").exists()


def test_job_that_was_cancelled_before_the_worker_started_does_not_run(chunk: ChunkLab) -> None:
    chunk.write("touch never", "true")
    chunk.stop_jobs(1)
    assert chunk.run() == (0, "")
    assert chunk.returned() == [(1, "cancelled")]
    assert chunk.ends() == {2: (0, None)}
    assert not (chunk.work / "never").exists()


def test_stubborn_job_is_killed_after_its_grace_period(chunk: ChunkLab) -> None:
    chunk.write("trap '' TERM; echo up; while :; do sleep 0.05; done")
    worker = chunk.start()
    wait_until(lambda: chunk.log(1) == "up\n")
    chunk.stop_jobs(1, grace=0.2)
    assert worker.wait() == 0
    assert chunk.ends() == {1: (signal.SIGKILL, "user")}


def test_worker_of_a_revoked_chunk_starts_nothing(chunk: ChunkLab) -> None:
    chunk.write("touch never")
    chunk_files.revoke(str(chunk.folder))
    assert chunk.run() == (1, "the allocation was revoked; its jobs were stopped\n")
    assert not (chunk.work / "never").exists()
    assert chunk.events("begun") == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_revocation_stops_running_jobs(chunk: ChunkLab, is_removed: bool) -> None:
    gate = Gate(chunk.work)
    chunk.write(*[gate.wait] * 3)
    worker = chunk.start()
    pids = gate.wait_for(2)
    if is_removed:
        chunk_files.remove_folder(str(chunk.folder))
    else:
        chunk_files.revoke(str(chunk.folder))
    assert worker.wait() == 1
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of the jobs")
    assert len(gate.arrived()) == 2


# -- ownership -----------------------------------------------------------------------------------


def test_second_allocation_of_a_chunk_runs_nothing(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, "true")
    worker = chunk.start("5_0.0")
    gate.wait_for()
    code, printed = chunk.run("6_0.0")
    assert (code, "another allocation runs the jobs" in printed) == (0, True)
    gate.open()
    assert worker.wait() == 0
    assert [event["by"] for event in chunk.events("owned")] == ["5_0.0"]
    assert chunk.ends() == {1: (0, None), 2: (0, None)}


def test_restarted_allocation_runs_only_jobs_that_were_not_announced(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, "echo third", "echo fourth")
    worker = chunk.start("5_0.0")
    gate.wait_for(2)
    worker.kill()
    worker.wait()
    announced = {job for event in chunk.events("reserved") for job, _ in event["jobs"]}
    assert {1, 2} <= announced
    gate.open()
    assert chunk.run("5_0.1") == (0, "")
    ends = chunk.ends()
    assert set(ends) == {1, 2, 3, 4}
    for job, end in ends.items():
        assert end == ((None, "lost") if job in announced else (0, None))
    assert len(gate.arrived()) == 2


def test_restart_after_sigterm_reports_the_interrupted_jobs_as_lost(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, *["true"] * 3)
    worker = chunk.start("5_0.0")
    gate.wait_for(2)
    worker.terminate()
    assert worker.wait() == 0
    assert chunk.run("5_0.1") == (0, "")
    last = {event["job"]: event["cause"] for event in chunk.events("ended")}
    assert (last[1], last[2]) == ("lost", "lost")
    assert set(last) == {1, 2, 3, 4, 5}


def test_earlier_process_of_a_restarted_allocation_starts_no_further_job(chunk: ChunkLab) -> None:
    """A node that was lost and comes back: both processes are alive."""
    first, second = Gate(chunk.work, "first"), Gate(chunk.work, "second")
    chunk.write(first.wait, *[f'{second.wait}; echo "$STOKER_JOB_ID" >> ran'] * 4, gpus=2)
    old = chunk.start("5_0.0")
    first.wait_for()
    new = chunk.start("5_0.1")
    second.wait_for()
    first.open()
    assert old.wait() == 1
    second.open()
    assert new.wait() == 0
    assert sorted((chunk.work / "ran").read_text().split()) == ["2", "3", "4", "5"]


# -- ends of allocations -------------------------------------------------------------------------


def test_jobs_are_killed_with_their_worker(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(f'({gate.wait}) & setsid sh -c "{gate.wait}" & wait')
    worker = chunk.start()
    pids = gate.wait_for(2)
    worker.kill()
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of the job's processes")
    events = chunk.events()
    assert [event["kind"] for event in events] == ["owned", "reserved", "begun"]
    assert (chunk.folder / chunk_files.EVENTS).read_bytes().endswith(b"\n")


def test_folder_of_a_killed_worker_is_removed_by_the_next(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait)
    worker = chunk.start("5_0.0")
    gate.wait_for()
    worker.kill()
    worker.wait()
    assert chunk.run("5_0.1") == (0, "")
    assert os.listdir(chunk.temporary) == []


def test_sigterm_stops_jobs_and_leaves_their_cause_to_the_engine(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, "touch never")
    worker = chunk.start()
    gate.wait_for(2)
    worker.terminate()
    assert worker.wait() == 0
    assert {cause for _, cause in chunk.ends().values()} == {"terminated"}
    assert chunk.returned() == []
    assert chunk.events()[-1]["kind"] == "closed"
    assert os.listdir(chunk.temporary) == []
    assert not (chunk.work / "never").exists()


def test_job_that_ends_by_the_signal_of_the_engine_first_has_its_cause(chunk: ChunkLab) -> None:
    """Engines send SIGTERM to jobs and worker at the same time, in any order."""
    gate = Gate(chunk.work)
    chunk.write(gate.wait, "touch never", "touch never", gpus=2)
    worker = chunk.start()
    (pid,) = gate.wait_for()
    worker.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_alive(pid))
    worker.terminate()
    worker.send_signal(signal.SIGCONT)
    assert worker.wait() == 0
    assert chunk.ends() == {1: (signal.SIGTERM, "terminated")}
    assert not (chunk.work / "never").exists()


def test_jobs_after_one_that_was_killed_by_sigterm_run(chunk: ChunkLab) -> None:
    chunk.write("kill $$", "true", "exit 143", "true", gpus=2)
    assert chunk.run() == (0, "")
    assert chunk.ends() == {
        1: (signal.SIGTERM, None), 2: (0, None), 3: (143 << 8, None), 4: (0, None)
    }  # fmt: skip


def test_worker_returns_jobs_that_it_cannot_start_in_time(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, "touch never", unknown_seconds=3.0)
    worker = chunk.start()
    gate.wait_for(2)
    passed = time.monotonic() + 4.5  # it was started before; a full worker does not show that
    wait_until(lambda: time.monotonic() > passed)
    gate.open()
    assert worker.wait() == 0
    assert chunk.ends() == {1: (0, None), 2: (0, None)}
    assert chunk.returned() == [(3, "drained")]
    assert not (chunk.work / "never").exists()


def test_jobs_of_a_chunk_are_stopped_before_slurm_ends_the_allocation(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, "touch never")
    worker = chunk.start(SLURM_JOB_END_TIME=str(int(time.time() + 18)))
    assert worker.wait() == 0
    assert {job: cause for job, (_, cause) in chunk.ends().items()} == {1: "requeue", 2: "requeue"}
    assert chunk.returned() == [(3, "drained")]
    assert not (chunk.work / "never").exists()


def test_job_of_its_own_allocation_is_stopped_before_its_time_limit(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, is_single=True, seconds=18.0)
    worker = chunk.start()
    assert worker.wait() == 0
    assert {job: cause for job, (_, cause) in chunk.ends().items()} == {1: "time_limit"}
    assert chunk.returned() == []


def test_signal_before_the_time_limit_does_not_end_the_worker(chunk: ChunkLab) -> None:
    gate = Gate(chunk.work)
    chunk.write(gate.wait, gate.wait, "true")
    worker = chunk.start()
    gate.wait_for(2)
    worker.send_signal(signal.SIGUSR2)
    gate.open()
    assert worker.wait() == 0
    assert chunk.ends() == {1: (0, None), 2: (0, None), 3: (0, None)}


def test_time_limit_of_a_job_is_enforced(chunk: ChunkLab) -> None:
    chunk.write("sleep 100", job={"time_limit": 0.5})
    assert chunk.run() == (0, "")
    assert chunk.ends() == {1: (signal.SIGTERM, "time_limit")}


def test_worker_without_a_chunk_fails_with_one_line(chunk: ChunkLab) -> None:
    code, printed = chunk.run()
    assert code == 1
    assert len(printed.splitlines()) == 1, printed
    assert str(chunk.folder) in printed
