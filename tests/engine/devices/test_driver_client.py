"""The driver client never blocks, even if the driver or its process hangs."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.engine.devices.driver_client import DriverClient, sample_once
from stoker.engine.devices.driver_process import IDLE_SECONDS
from stoker.engine.gpus.sample import Sample
from tests.fake_nvml import LIBRARY_MISMATCH, FakeNvml
from tests.lab import HANG_SECONDS, wait_until

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def env(fake: FakeNvml) -> dict[str, str]:
    fake.set_gpus(H100, H100)
    return os.environ | fake.env()


@pytest.fixture
def watch(env: dict[str, str]) -> Iterator[DriverClient]:
    made = DriverClient(env)
    yield made
    pid = made.pid
    made.close()
    if pid is not None:
        wait_until(lambda: is_gone(pid), what=f"the end of helper {pid}")


def is_gone(pid: int) -> bool:
    """Whether the process is dead, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def next_sample(watch: DriverClient, condition: Callable[[Sample], object] = bool) -> Sample:
    """Wait like the daemon until a sample meets the condition, and return it."""
    end = time.monotonic() + HANG_SECONDS
    with select.epoll() as poll:
        poll.register(watch.fileno(), select.EPOLLIN)
        while True:
            for sample in watch.read():
                if condition(sample):
                    return sample
            left = end - time.monotonic()
            assert left > 0, "no sample met the condition"
            poll.poll(left)


def has_gpus(sample: Sample) -> bool:
    return sample.gpus is not None


def deadline(watch: DriverClient) -> float:
    at = watch.next_deadline()
    assert at is not None
    return at


def kill(watch: DriverClient) -> int:
    pid = watch.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_samples_come_without_a_request_and_reading_never_blocks(watch: DriverClient) -> None:
    assert watch.read() == []
    sample = next_sample(watch)
    assert sample.gpus is not None and [gpu.model for gpu in sample.gpus] == [H100, H100]
    assert watch.read() == []


def test_request_returns_a_sample_taken_afterwards(watch: DriverClient, fake: FakeNvml) -> None:
    first = next_sample(watch)
    assert first.gpus
    fake.change(first.gpus[0].uuid, used=12345)
    requested_at = time.monotonic()
    watch.ask()
    sample = next_sample(watch, lambda sample: sample.at >= requested_at)
    assert sample.at - first.at < IDLE_SECONDS
    assert sample.gpus and sample.gpus[0].used == 12345


def test_driver_that_hangs_is_reported_and_retried(watch: DriverClient, fake: FakeNvml) -> None:
    next_sample(watch)
    number, pid = watch.fileno(), watch.pid
    assert pid is not None
    fake.hang("nvmlDeviceGetMemoryInfo_v2")
    watch.ask()
    assert watch.check(time.monotonic()) == []
    late = deadline(watch)
    [sample] = watch.check(late)
    assert (sample.at, sample.gpus) == (late, None)
    assert sample.error == "the NVIDIA driver does not answer; retrying in 1 s"
    assert watch.pid is None
    wait_until(lambda: is_gone(pid))
    fake.unhang()
    assert watch.check(deadline(watch)) == []
    assert watch.pid not in (None, pid)
    assert watch.fileno() == number
    assert len(next_sample(watch).gpus or ()) == 2


def test_driver_that_hangs_from_the_start_is_given_more_time(
    watch: DriverClient, fake: FakeNvml
) -> None:
    fake.hang()
    started = time.monotonic()
    assert deadline(watch) - started > 20
    [*_, sample] = watch.check(deadline(watch))
    assert sample.gpus is None


def test_unanswered_request_is_noticed_sooner_than_a_missing_sample(
    watch: DriverClient,
) -> None:
    next_sample(watch)
    unasked = deadline(watch)
    watch.ask()
    assert deadline(watch) < unasked
    next_sample(watch)
    assert deadline(watch) >= unasked


def test_nothing_that_is_sent_to_a_stuck_helper_blocks(watch: DriverClient) -> None:
    next_sample(watch)
    assert watch.pid is not None
    os.kill(watch.pid, signal.SIGSTOP)
    for _ in range(70_000):  # more than a pipe holds
        watch.ask()
    watch.set_active(True)
    pid = watch.pid
    [sample] = [s for s in watch.check(deadline(watch)) if not has_gpus(s)]
    assert sample.error is not None and "does not answer" in sample.error
    wait_until(lambda: is_gone(pid))


def test_helper_that_dies_is_replaced(watch: DriverClient) -> None:
    next_sample(watch)
    pid = kill(watch)
    sample = next_sample(watch, lambda sample: not has_gpus(sample))
    assert sample.error == "the driver process exited unexpectedly; retrying in 1 s"
    assert watch.pid is None
    watch.check(deadline(watch))
    assert watch.pid not in (None, pid)
    assert next_sample(watch).gpus


def test_helper_that_keeps_dying_is_replaced_less_and_less_often(watch: DriverClient) -> None:
    waits = []
    for _ in range(7):
        kill(watch)
        sample = next_sample(watch, lambda sample: not has_gpus(sample))
        waits.append(round(deadline(watch) - sample.at))
        watch.check(deadline(watch))
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_helper_reaped_elsewhere_is_replaced(watch: DriverClient) -> None:
    next_sample(watch)
    pid = kill(watch)
    os.waitpid(pid, 0)
    next_sample(watch, lambda sample: not has_gpus(sample))
    watch.check(deadline(watch))
    assert next_sample(watch).gpus


def test_dead_helpers_are_reaped(watch: DriverClient) -> None:
    pid = kill(watch)
    next_sample(watch, lambda sample: not has_gpus(sample))

    def is_reaped() -> bool:
        watch.check(time.monotonic() - 1)
        return not Path(f"/proc/{pid}").exists()

    wait_until(is_reaped)


def test_new_helper_keeps_the_rate(watch: DriverClient) -> None:
    watch.set_active(True)
    next_sample(watch)
    kill(watch)
    next_sample(watch, lambda sample: not has_gpus(sample))
    watch.check(deadline(watch))
    first, second = next_sample(watch), next_sample(watch)
    assert second.at - first.at < IDLE_SECONDS / 2


def test_driver_errors_are_reported(fake: FakeNvml, env: dict[str, str]) -> None:
    fake.fail_init(LIBRARY_MISMATCH)
    watch = DriverClient(env)
    sample = next_sample(watch)
    assert sample.gpus is None and sample.error is not None
    assert watch.pid is not None  # the process keeps running and retries
    watch.close()


def test_helper_that_cannot_be_started_is_tried_again(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nonexistent/python")
        watch = DriverClient(env)
    [sample] = watch.read()
    assert sample.error is not None and "cannot be started" in sample.error
    watch.check(deadline(watch))
    assert next_sample(watch).gpus
    watch.close()


def test_files_in_the_current_folder_do_not_get_into_the_helper(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert sample_once(30, env).gpus


def test_helper_does_not_outlive_its_parent(env: dict[str, str]) -> None:
    code = (
        "from stoker.engine.devices.driver_client import DriverClient\n"
        "w = DriverClient(); print(w.pid, flush=True); input()"
    )
    words = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
    wait_until(lambda: is_gone(pid))


def test_one_sample_for_a_short_command(env: dict[str, str], fake: FakeNvml) -> None:
    sample = sample_once(30, env)
    assert sample.gpus and sample.gpus[0].temperature == 30
    fake.uninstall()
    sample = sample_once(30, env)
    assert sample.gpus is None
    assert sample.error and "no NVIDIA driver is installed" in sample.error


def test_short_command_does_not_hang_with_the_driver(env: dict[str, str], fake: FakeNvml) -> None:
    fake.hang()
    sample = sample_once(0.5, env)
    assert (sample.gpus, sample.error) == (None, "the NVIDIA driver does not answer")
