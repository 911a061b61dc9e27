"""Jobs with `--gpu-mem auto` are measured while they run, and others of their kind start beside."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.supervisor import locks
from tests.engine.gpus.host import H200, OUT_OF_MEMORY, GpuHost, GpuLab
from tests.fake_nvml import GIB
from tests.helpers import is_alive

# It uses the memory in the file N.size, and ends when N.end exists, with the code that it holds.
PROGRAM = """
echo $$ > $1.pid
last=
until [ -e $1.end ]; do
  if [ -e $1.size ]; then
    read size < $1.size
    if [ "$size" != "$last" ]; then
      echo "$CUDA_VISIBLE_DEVICES $size" > $1.claim
      mv $1.claim "$FAKE_NVML_PROCS/$$"
      last=$size
    fi
  fi
  sleep 0.02
done
read code < $1.end
[ "$code" = 0 ] || echo "$OUT_OF_MEMORY" >&2
exit $code
"""


# What an attempt claims changes within seconds, faster than a busy machine reads it.
CLAIM_HISTORY = """
CREATE TABLE IF NOT EXISTS claim_history(job INTEGER, claim INTEGER);
CREATE TRIGGER IF NOT EXISTS first_claim AFTER INSERT ON attempts
BEGIN INSERT INTO claim_history VALUES (NEW.job, NEW.claim); END;
CREATE TRIGGER IF NOT EXISTS later_claim AFTER UPDATE OF claim ON attempts
BEGIN INSERT INTO claim_history VALUES (NEW.job, NEW.claim); END;
"""


class Trainings:
    """Jobs in one queue whose memory the test controls; those with the same script are alike."""

    def __init__(self, host: GpuHost, lab: GpuLab) -> None:
        self.lab = lab
        self.host = host
        self._sizes: dict[int, int] = {}
        self.jobs: list[int] = []
        for script in ("train.sh", "tune.sh"):
            (lab.folder / script).write_text(PROGRAM)

    def submit(self, count: int, *options: str, script: str = "train.sh") -> list[int]:
        numbers = range(len(self.jobs), len(self.jobs) + count)
        for number in numbers:
            self.jobs.append(self.lab.submit("-M", "auto", *options, "sh", script, str(number)))
            if not number:  # no job uses its GPU before the test tells it to
                with closing(sqlite3.connect(self.lab.state_dir / "queue.db")) as connection:
                    connection.executescript(CLAIM_HISTORY)
        return list(numbers)

    def use(self, number: int, size: int, utilization: int | None = None) -> None:
        """`utilization`: that of its process; None if the driver does not report it."""
        new = self.lab.folder / f"{number}.new"
        new.write_text(f"{size}\n" if utilization is None else f"{size} {utilization}\n")
        new.rename(self.lab.folder / f"{number}.size")

    def end(self, *numbers: int, code: int = 0) -> None:
        for number in numbers:
            new = self.lab.folder / f"{number}.new"
            new.write_text(f"{code}\n")
            new.rename(self.lab.folder / f"{number}.end")

    def restart(self, number: int) -> None:
        """Let the next attempt of a job start over."""
        for kind in ("size", "end", "pid"):
            (self.lab.folder / f"{number}.{kind}").unlink(missing_ok=True)

    def pid(self, number: int) -> int:
        path = self.lab.folder / f"{number}.pid"
        self.lab.wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        return int(path.read_text())

    def is_paused(self, number: int) -> bool:
        with open(f"/proc/{self.pid(number)}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"

    def states(self) -> list[str]:
        return [self.lab.state(job) for job in self.jobs]

    def claims(self) -> list[int | None]:
        return [self.lab.job(job)["claim_bytes"] for job in self.jobs]

    def wait_for_claims(self, *claims: int | None) -> None:
        """Wait until each job has had this claim, for however short a time; None: any claim."""
        expected = {(job, claim) for job, claim in zip(self.jobs, claims, strict=True) if claim}
        self.wait_for(
            lambda: expected <= set(self.lab.rows("SELECT job, claim FROM claim_history"))
        )

    def events(self, number: int) -> list[str]:
        return [event["kind"] for event in self.lab.job(self.jobs[number])["events"]]

    def wait_for_use(self, size: int) -> None:
        self.lab.wait_until(lambda: self.lab.gpu(0)["memory_used_bytes"] >= size)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        self.lab.wait_until(condition)


@pytest.fixture
def one_gpu(new_host: Callable[..., GpuHost]) -> GpuHost:
    """A host with one GPU of 80 GiB that computes."""
    host = new_host(H200)
    host.fake.change(host.uuids[0], util=50)
    return host


@pytest.fixture
def lab(one_gpu: GpuHost) -> GpuLab:
    return one_gpu.lab(OUT_OF_MEMORY=OUT_OF_MEMORY)


@pytest.fixture
def trainings(one_gpu: GpuHost, lab: GpuLab) -> Trainings:
    return Trainings(one_gpu, lab)


def _paused(trainings: Trainings) -> tuple[int, int]:
    """Start a leader that is not steady yet, and a follower; returns when the latter is paused."""
    leader, follower = trainings.submit(2)
    trainings.wait_for(lambda: trainings.states() == ["running", "running"])
    trainings.pid(leader), trainings.pid(follower)
    fake = trainings.host.fake
    fake.change(trainings.host.uuids[0], util=0)  # it loads data, so it cannot be measured yet
    trainings.use(leader, 8 * GIB)
    trainings.wait_for_use(8 * GIB)
    trainings.host.wait_for_sample()
    trainings.use(follower, GIB)
    trainings.wait_for(lambda: trainings.is_paused(follower))
    return leader, follower


def _compute(trainings: Trainings) -> None:
    trainings.host.fake.change(trainings.host.uuids[0], util=50)


def test_followers_are_paused_until_the_leader_is_measured(trainings: Trainings) -> None:
    leader, follower = _paused(trainings)
    assert not trainings.is_paused(leader)
    assert trainings.claims() == [None, None]
    trainings.wait_for(lambda: "paused" in trainings.lab.ok("why", str(trainings.jobs[follower])))
    _compute(trainings)
    trainings.wait_for(lambda: not trainings.is_paused(follower))
    trainings.wait_for_claims(16 * GIB, 16 * GIB)
    assert trainings.events(follower) == ["paused", "continued"]
    trainings.end(leader, follower)
    assert trainings.lab.wait(*trainings.jobs) == 0
    assert [trainings.lab.job(job)["attempts"] for job in trainings.jobs] == [1, 1]


def test_several_jobs_of_an_unknown_profile_start_at_once_on_one_gpu(trainings: Trainings) -> None:
    trainings.host.fake.change(trainings.host.uuids[0], total=33 * GIB)  # 8 members
    numbers = trainings.submit(9)
    trainings.wait_for(lambda: trainings.states().count("running") == 8)
    trainings.host.wait_for_sample()
    assert trainings.states().count("queued") == 1
    for number in numbers:
        trainings.use(number, GIB)
    # Twice 1 GiB for each: the last one starts too as soon as the first is measured.
    trainings.wait_for_claims(*[2 * GIB] * 9)
    trainings.end(*numbers)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_other_jobs_start_beside_a_leader_that_is_measured(trainings: Trainings) -> None:
    (leader,) = trainings.submit(1)
    trainings.wait_for(lambda: trainings.states() == ["running"])
    whole = trainings.lab.submit("--gpu-ids", "0", "true")
    other = trainings.lab.submit("-M", "50G", "--priority", "1", "true")
    trainings.host.wait_for_sample()
    assert trainings.lab.state(other) == "queued"
    trainings.use(leader, 8 * GIB)
    assert trainings.lab.wait(other) == 0
    assert trainings.lab.state(whole) == "queued"
    trainings.end(leader)
    assert trainings.lab.wait(*trainings.jobs, whole) == 0


def test_job_of_another_kind_is_measured_beside_one_whose_memory_is_known(
    trainings: Trainings,
) -> None:
    (first,) = trainings.submit(1)
    trainings.use(first, 8 * GIB, 50)
    trainings.wait_for_claims(16 * GIB)
    (second,) = trainings.submit(1, script="tune.sh")
    trainings.wait_for(lambda: trainings.states() == ["running", "running"])
    trainings.use(second, GIB, 0)  # it loads data, while the other job computes
    trainings.wait_for_use(9 * GIB)
    trainings.use(second, 4 * GIB, 50)
    trainings.wait_for_claims(16 * GIB, 8 * GIB)
    trainings.end(first, second)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_jobs_of_another_kind_start_with_a_leader_and_are_measured_after_it(
    trainings: Trainings,
) -> None:
    first, second = trainings.submit(1) + trainings.submit(1, script="tune.sh")
    trainings.wait_for(lambda: trainings.states() == ["running", "running"])
    trainings.host.fake.change(trainings.host.uuids[0], util=0)
    trainings.use(first, 8 * GIB, 0)
    trainings.wait_for_use(8 * GIB)
    trainings.host.wait_for_sample()
    trainings.use(second, GIB, 0)
    trainings.wait_for(lambda: trainings.is_paused(second))
    trainings.use(first, 9 * GIB, 50)
    trainings.wait_for(lambda: not trainings.is_paused(second))
    trainings.wait_for_claims(18 * GIB, None)
    assert trainings.claims()[1] is None
    trainings.use(second, 4 * GIB, 50)
    trainings.wait_for_claims(18 * GIB, 8 * GIB)
    trainings.end(first, second)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_claims_shrink_to_the_final_estimate(trainings: Trainings) -> None:
    first, second = trainings.submit(2)
    trainings.use(first, 8 * GIB)
    trainings.use(second, 4 * GIB)
    trainings.wait_for_claims(16 * GIB, 16 * GIB)
    trainings.wait_for(lambda: trainings.claims() == [budget(8 * GIB)] * 2)
    trainings.submit(1)
    trainings.wait_for(lambda: trainings.claims() == [budget(8 * GIB)] * 3)
    trainings.end(0, 1, 2)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_follower_that_does_not_fit_returns_to_the_queue_without_a_failure(
    trainings: Trainings,
) -> None:
    numbers = trainings.submit(3)
    trainings.wait_for(lambda: trainings.states() == ["running"] * 3)
    for number in numbers:
        trainings.use(number, 30 * GIB if number == 0 else GIB)
        trainings.wait_for_use((30 + number) * GIB)
    # 33 GiB are reserved for each, so two of them fit.
    trainings.wait_for(lambda: trainings.states() == ["running", "running", "queued"])
    assert trainings.events(2) == ["paused", "crowded"]
    job = trainings.lab.job(trainings.jobs[2])
    assert [one["cause"] for one in job["history"]] == ["crowded"]
    assert trainings.claims()[:2] == [33 * GIB] * 2
    trainings.restart(2)
    trainings.end(0, 1)
    trainings.wait_for(lambda: trainings.states()[2] == "running")
    trainings.end(2)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_followers_of_a_leader_that_ended_use_its_peak(trainings: Trainings) -> None:
    leader, follower = _paused(trainings)
    trainings.end(leader)
    trainings.wait_for(lambda: trainings.states() == ["done", "running"])
    trainings.wait_for(lambda: trainings.claims()[1] == budget(8 * GIB))
    assert not trainings.is_paused(follower)
    trainings.end(follower)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_follower_leads_when_the_leader_fails(trainings: Trainings) -> None:
    leader, follower = _paused(trainings)
    os.kill(trainings.pid(leader), signal.SIGKILL)
    trainings.wait_for(lambda: trainings.states() == ["failed", "running"])
    trainings.wait_for(lambda: not trainings.is_paused(follower))
    _compute(trainings)
    trainings.wait_for_claims(None, 2 * GIB)
    trainings.end(follower)
    assert trainings.lab.wait(trainings.jobs[1]) == 0


def test_claim_of_a_growing_job_follows_its_use(trainings: Trainings) -> None:
    (leader,) = trainings.submit(1)
    trainings.use(leader, 8 * GIB)
    trainings.wait_for_claims(16 * GIB)
    trainings.use(leader, 40 * GIB)
    trainings.wait_for(lambda: trainings.claims() == [40 * GIB])
    # Another job of the profile needs twice that, which the GPU does not have.
    trainings.submit(1)
    trainings.host.wait_for_sample()
    assert trainings.states() == ["running", "queued"]
    trainings.end(leader)
    trainings.wait_for(lambda: trainings.states() == ["done", "running"])
    assert trainings.claims()[1] == budget(40 * GIB)
    trainings.end(1)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_youngest_job_returns_to_the_queue_before_the_memory_runs_out(
    trainings: Trainings,
) -> None:
    first, second = trainings.submit(2)
    trainings.use(first, 8 * GIB)
    trainings.use(second, 8 * GIB)
    trainings.wait_for_claims(16 * GIB, 16 * GIB)
    trainings.use(first, 38 * GIB)
    trainings.use(second, 39 * GIB)
    trainings.wait_for(lambda: trainings.states() == ["running", "queued"])
    assert "crowded" in trainings.events(1)
    trainings.restart(1)
    trainings.end(first)
    trainings.wait_for(lambda: trainings.states() == ["done", "running"])
    trainings.end(1)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_unknown_job_that_fills_the_gpu_waits_until_the_others_have_ended(
    trainings: Trainings,
) -> None:
    holds = f'echo "0 {39 * GIB}" > "$FAKE_NVML_PROCS/$$"'
    trainings.lab.submit("-M", "39G", f"{holds}; until [ -e known.end ]; do sleep 0.02; done")
    trainings.wait_for_use(39 * GIB)
    (unknown,) = trainings.submit(1)
    trainings.wait_for(lambda: trainings.states() == ["running"])
    trainings.use(unknown, 39 * GIB)
    trainings.wait_for(lambda: trainings.states() == ["queued"])
    trainings.host.wait_for_sample()
    trainings.host.wait_for_sample()
    assert trainings.states() == ["queued"]
    assert trainings.events(unknown) == ["crowded"]
    trainings.restart(unknown)
    (trainings.lab.folder / "known.end").touch()
    trainings.wait_for(lambda: trainings.states() == ["running"])
    trainings.end(unknown)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_job_out_of_memory_beside_others_of_its_kind_runs_again_alone(
    trainings: Trainings,
) -> None:
    first, second = trainings.submit(2)
    trainings.use(first, 8 * GIB)
    trainings.use(second, 8 * GIB)
    trainings.wait_for_claims(16 * GIB, 16 * GIB)
    trainings.end(second, code=1)
    trainings.wait_for(lambda: trainings.states() == ["running", "queued"])
    assert trainings.lab.job(trainings.jobs[1])["exclusive"]
    trainings.restart(second)
    trainings.end(first)
    trainings.wait_for(lambda: trainings.states() == ["done", "running"])
    trainings.end(second, code=1)
    assert trainings.lab.wait(trainings.jobs[1]) == 1
    assert trainings.lab.job(trainings.jobs[1])["attempts"] == 2


def test_paused_job_can_be_cancelled(trainings: Trainings) -> None:
    leader, follower = _paused(trainings)
    pid = trainings.pid(follower)
    trainings.lab.ok("cancel", str(trainings.jobs[follower]))
    trainings.wait_for(lambda: trainings.states() == ["running", "cancelled"])
    assert not is_alive(pid)
    trainings.end(leader)
    assert trainings.lab.wait(trainings.jobs[0]) == 0


def test_time_limit_ends_a_paused_job(one_gpu: GpuHost, lab: GpuLab) -> None:
    trainings = Trainings(one_gpu, lab)
    one_gpu.fake.change(one_gpu.uuids[0], util=0)
    (leader,) = trainings.submit(1)
    trainings.use(leader, 8 * GIB)
    trainings.wait_for_use(8 * GIB)
    (follower,) = trainings.submit(1, "--time-limit", "4s")
    trainings.use(follower, GIB)
    trainings.wait_for(lambda: trainings.is_paused(follower))
    trainings.wait_for(lambda: trainings.states() == ["running", "failed"])
    assert lab.job(trainings.jobs[1])["cause"] == "time_limit"
    trainings.end(leader)
    assert lab.wait(trainings.jobs[0]) == 0


@pytest.mark.parametrize("lock", [locks.DAEMON_LOCK, locks.RUNNER_LOCK])
def test_crash_of_daemon_or_runner_leaves_no_job_paused(trainings: Trainings, lock: str) -> None:
    leader, follower = _paused(trainings)
    pid = locks.holder(str(trainings.lab.state_dir), lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    trainings.lab.wait_until(
        lambda: locks.holder(str(trainings.lab.state_dir), lock) not in (pid, None)
    )
    _compute(trainings)
    trainings.wait_for(lambda: not trainings.is_paused(follower))
    trainings.end(leader, follower)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_daemon_that_is_stopped_leaves_no_job_paused(trainings: Trainings) -> None:
    leader, follower = _paused(trainings)
    trainings.lab.ok("daemon", "stop")
    trainings.wait_for(lambda: not trainings.is_paused(follower))
    trainings.end(leader, follower)
    trainings.lab.submit("--gpus", "0", "true")
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_crash_of_daemon_and_runner_leaves_no_job_paused(trainings: Trainings) -> None:
    leader, follower = _paused(trainings)
    for lock in (locks.DAEMON_LOCK, locks.RUNNER_LOCK):
        pid = locks.holder(str(trainings.lab.state_dir), lock)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    _compute(trainings)
    trainings.lab.ok("ls")
    trainings.lab.submit("--gpus", "0", "true")
    trainings.wait_for(lambda: not trainings.is_paused(follower))
    trainings.end(leader, follower)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_followers_leave_a_gpu_whose_processes_cannot_be_told_apart(
    one_gpu: GpuHost, trainings: Trainings
) -> None:
    trainings.submit(3)
    trainings.wait_for(lambda: trainings.states() == ["running"] * 3)
    # In some containers, the processes of jobs are listed with other PIDs.
    other = one_gpu.other_process(0, 2 * GIB)
    trainings.wait_for(lambda: trainings.states() == ["running", "queued", "queued"])
    assert trainings.events(2) == ["crowded"]
    one_gpu.end_other_process(other)
    one_gpu.wait_for_sample()
    assert trainings.states() == ["running", "queued", "queued"]
    trainings.end(0, 1, 2)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_other_user_gets_what_a_measured_job_does_not_need(
    one_gpu: GpuHost, trainings: Trainings
) -> None:
    first, second = trainings.submit(2)
    trainings.wait_for(lambda: trainings.states() == ["running"] * 2)
    other = one_gpu.lab()
    part = other.submit("-M", "40G", "sleep 600")
    other.wait_until(lambda: "leased" in other.why(part))
    trainings.use(first, 8 * GIB)
    trainings.use(second, 8 * GIB)
    trainings.wait_for_claims(16 * GIB, 16 * GIB)
    other.wait_until(lambda: other.state(part) == "running")
    # At most 80 GiB less 18 and 40 are free; a training of another kind waits for half of the GPU.
    trainings.submit(1, script="tune.sh")
    one_gpu.wait_for_sample()
    assert trainings.states() == ["running", "running", "queued"]
    other.ok("cancel", str(part))
    trainings.wait_for(lambda: trainings.states() == ["running"] * 3)
    trainings.end(0, 1, 2)
    assert trainings.lab.wait(*trainings.jobs) == 0


def test_other_user_who_waits_for_the_whole_gpu_gets_it_before_later_jobs(
    one_gpu: GpuHost, trainings: Trainings
) -> None:
    first, second = trainings.submit(2)
    trainings.wait_for(lambda: trainings.states() == ["running"] * 2)
    other = one_gpu.lab()
    whole = other.submit("sleep 600")
    other.wait_until(lambda: "leased" in other.why(whole))
    one_gpu.wait_for_sample()
    trainings.use(first, 8 * GIB)
    trainings.use(second, 8 * GIB)
    trainings.wait_for_use(16 * GIB)
    trainings.submit(1)
    trainings.end(first, second)
    other.wait_until(lambda: other.state(whole) == "running")
    assert trainings.states() == ["done", "done", "queued"]
    other.ok("cancel", str(whole))
    trainings.end(2)
    assert trainings.lab.wait(*trainings.jobs) == 0
