"""Usage of real process trees: membership, CPU time and shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from stoker.engine.supervisor import job_processes, kill_processes, process_tags
from stoker.engine.supervisor.memory_peaks import MemoryPeaks
from stoker.engine.supervisor.process_usage import UsageSampler

BASE = 0x1BADF00D
MIB = 1 << 20

Start = Callable[..., "Program"]


class Program:
    """A Python program that prints when it is ready and waits for input."""

    def __init__(self, attempt: int, text: str) -> None:
        own = process_tags.own_limits()
        process_tags.set_tag(process_tags.tag_of(BASE, attempt))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(text)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        finally:
            process_tags.restore(own)

    def wait(self) -> str:
        """Wait for a line of output and return it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line
        return line.decode().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Program] = []

    def begin(attempt: int, text: str) -> Program:
        made.append(Program(attempt, text))
        return made[-1]

    yield begin
    kill_processes.kill_all(BASE, timeout=5)
    for program in made:
        program.process.wait()
        for pipe in (program.process.stdin, program.process.stdout):
            assert pipe is not None
            pipe.close()


BURN = """
    import os, time
    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end: pass
"""


def test_cpu_time_includes_exited_processes_of_the_tree(start: Start) -> None:
    program = start(
        1,
        BURN
        + """
    print(sum(os.times()[:4]), flush=True)
    input()
    burn(0.2)
    child = os.fork()
    if not child:
        burn(0.3)
        os._exit(0)
    os.waitpid(child, 0)
    print(sum(os.times()[:4]), flush=True)
    input()
    """,
    )
    trees = UsageSampler(BASE)
    before = float(program.wait())
    assert trees.sample([1], 100.0)[1].cpu is None
    program.go_on()
    used = float(program.wait()) - before  # including its child, about half a second
    assert used > 0.45
    cpu = trees.sample([1], 110.0)[1].cpu
    assert cpu is not None
    assert cpu == pytest.approx(10 * used, abs=0.5)  # percent of the ten seconds passed in
    assert trees.sample([1], 120.0)[1].cpu == pytest.approx(0, abs=0.5)


def test_cpu_time_never_decreases_when_a_process_is_reaped_elsewhere(
    start: Start,
) -> None:
    program = start(
        1,
        BURN
        + """
    reader, writer = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork(): os._exit(0)
        burn(0.3)
        print("ready", flush=True)
        input()
        os._exit(0)
    os.wait()
    os.close(writer)
    os.read(reader, 1)  # until the other process has exited
    burn(0.2)
    print("done", flush=True)
    input()
    """,
    )
    trees = UsageSampler(BASE)
    program.wait()
    trees.sample([1], 0.0)
    program.go_on()
    program.wait()
    cpu = trees.sample([1], 10.0)[1].cpu
    assert cpu is not None and cpu >= 1.5


def test_shared_pages_are_counted_once(start: Start) -> None:
    program = start(
        1,
        """
    import os
    block = bytearray(os.urandom(1 << 20) * 64)
    for _ in range(4):
        if not os.fork():
            sum(block[::4096])  # touch every page
            print("ready", flush=True)
            os.read(0, 1)
            os._exit(0)
    os.wait()
    """,
    )
    for _ in range(4):
        program.wait()
    resident = sum(_resident(one.pid) for one in job_processes.processes_by_attempt(BASE)[1])
    memory = UsageSampler(BASE).sample([1], 0.0)[1].memory
    assert resident > 4 * 64 * MIB
    assert 64 * MIB <= memory < 140 * MIB


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_usage_is_separate_for_each_attempt(start: Start) -> None:
    text = "import sys; block = bytearray({} << 20); print(1, flush=True); sys.stdin.read()"
    programs = [start(attempt, text.format(40 * attempt)) for attempt in (1, 2, 3)]
    for program in programs:
        program.wait()
    found = UsageSampler(BASE).sample({1, 3, 4}, 0.0)
    assert sorted(found) == [1, 3]
    assert 40 * MIB < found[1].memory < 80 * MIB
    assert 120 * MIB < found[3].memory < 160 * MIB
    assert UsageSampler(BASE + 1).sample([1, 2, 3], 0.0) == {}
    assert UsageSampler(BASE).sample([], 0.0) == {}


def test_nested_job_counts_for_the_outer_job(start: Start) -> None:
    """`stoker run` in a submitted script gives its own tags to its jobs."""
    program = start(
        1,
        f"""
        import subprocess, sys
        from stoker.engine.supervisor import process_tags
        process_tags.set_tag(process_tags.tag_of({BASE + 1}, 7))
        text = "import sys; block = bytearray(80 << 20); print(1, flush=True); sys.stdin.read()"
        inner = subprocess.Popen([sys.executable, "-c", text])
        process_tags.set_tag(process_tags.tag_of({BASE}, 1))
        inner.wait()
        """,
    )
    program.wait()
    assert UsageSampler(BASE).sample([1], 0.0)[1].memory > 80 * MIB


def test_peak_counts_all_processes_of_an_attempt(start: Start) -> None:
    program = start(
        1,
        """
    import os
    readers = []
    for _ in range(3):
        reader, writer = os.pipe()
        begin, go = os.pipe()
        if not os.fork():
            block = bytearray(os.urandom(1 << 20) * 64)
            os.write(writer, b"r")
            os.close(go)
            os.read(begin, 1)
            os._exit(0)
        os.read(reader, 1)
        os.close(begin)
        readers.append(go)
    print("ready", flush=True)
    input()
    for go in readers:
        os.write(go, b"g")
    for _ in readers:
        os.wait()
    print("less", flush=True)
    input()
    """,
    )
    peaks = MemoryPeaks(BASE)
    program.wait()
    peaks.sample([1], 0.0)
    program.go_on()
    program.wait()
    peaks.sample([1], 10.0)
    assert peaks.take(2) == 0  # never sampled
    peak = peaks.take(1)
    assert 3 * 64 * MIB < peak < 3 * 64 * MIB + 100 * MIB
    assert peaks.take(1) == 0
