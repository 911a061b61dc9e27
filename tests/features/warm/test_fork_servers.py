"""Fork servers as their parent sees them: their answers, and the bounds of number and memory."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.engine.supervisor.process_table import read_process
from stoker.engine.supervisor.wire import Wire
from stoker.features.warm import fork_servers
from stoker.features.warm.fork_servers import Forked, ForkServers, NotForked, WarmRequest, confirm
from stoker.features.warm.server_keys import server_environment
from stoker.text.commands.python_command import PythonCommand
from tests.lab import wait_until

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # this process is the parent of the jobs
    made = ForkServers()
    yield made
    made.close()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    _reap()


def _reap() -> None:
    """Wait for all children that have exited or were killed."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _request(folder: Path, attempt: int = 1, code: str = "pass", **env: str) -> WarmRequest:
    given = {**os.environ, **env}
    return WarmRequest(
        attempt=attempt,
        command=PythonCommand(sys.executable, (), "code", code, ()),
        argv=(sys.executable, "-c", code),
        cwd=str(folder),
        umask=0o022,
        env={os.fsencode(key): os.fsencode(value) for key, value in given.items()},
        tag=1 << 40,
        cpus="",
        modules=("json",),
        is_named=True,
        time_limit=None,
    )


def _files() -> list[int]:
    return [os.open(os.devnull, os.O_RDWR) for _ in range(3)]


def _result(servers: ForkServers) -> Forked | NotForked:
    found: list[Forked | NotForked] = []

    def poll() -> bool:
        found.extend(servers.poll(time.monotonic()))
        return bool(found)

    wait_until(poll)
    return found[0]


def _start(servers: ForkServers, request: WarmRequest) -> Forked:
    assert servers.start(request, _files()) is None
    event = _result(servers)
    assert isinstance(event, Forked), event
    return event


def _exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_forked_process_is_a_child_of_the_process_that_owns_the_servers(
    servers: ForkServers, tmp_path: Path
) -> None:
    event = _start(servers, _request(tmp_path, code="raise SystemExit(7)"))
    process = read_process(event.pid)
    assert process is not None
    assert (process.parent, process.session) == (os.getpid(), event.pid)
    confirm(event.control)
    assert _exit_status(event.pid) == 7
    event.control.close()


def test_nothing_is_executed_before_the_start_is_confirmed(
    servers: ForkServers, tmp_path: Path
) -> None:
    event = _start(servers, _request(tmp_path, code="open('ran', 'w').close()"))
    event.control.close()  # as if the runner had died
    assert _exit_status(event.pid) == -61
    assert not (tmp_path / "ran").exists()


def test_job_does_not_inherit_the_files_of_jobs_that_were_requested_with_it(
    servers: ForkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(tmp_path)
    first = _start(servers, request)  # the server is ready now
    first.control.close()
    assert _exit_status(first.pid) == -61
    sent: list[tuple[bytes, list[int]]] = []

    def send(wire: Wire, kind: str, fields: dict[str, object], descriptors: list[int]) -> None:
        sent.append((json.dumps([kind, fields]).encode() + b"\n", descriptors))
        if len(sent) == 2:  # both in one packet, as after a backlog
            data, files = b"".join(one[0] for one in sent), sent[0][1] + sent[1][1]
            socket.send_fds(wire.socket, [data], files)
            for descriptor in files:
                os.close(descriptor)

    monkeypatch.setattr(Wire, "send", send)
    for attempt in (2, 3):
        assert servers.start(request._replace(attempt=attempt), _files()) is None
    found: list[Forked | NotForked] = []

    def poll() -> bool:
        found.extend(servers.poll(time.monotonic()))
        return len(found) == 2

    wait_until(poll)
    one, other = (event for event in found if isinstance(event, Forked))
    assert len(os.listdir(f"/proc/{one.pid}/fd")) == len(os.listdir(f"/proc/{other.pid}/fd"))
    for event in (one, other):
        event.control.close()
        assert _exit_status(event.pid) == -61


def test_cancelled_start_executes_nothing(servers: ForkServers, tmp_path: Path) -> None:
    request = _request(tmp_path, code="open('ran', 'w').close()")
    event = _start(servers, request)
    confirm(event.control)
    assert _exit_status(event.pid) == 0
    event.control.close()
    (tmp_path / "ran").unlink()
    assert servers.start(request._replace(attempt=2), _files()) is None
    servers.cancel(2)
    after = _start(servers, request._replace(attempt=3, command=request.command))
    assert not (tmp_path / "ran").exists()
    after.control.close()
    assert _exit_status(after.pid) == -61


def test_idle_server_ends_after_ten_minutes(servers: ForkServers, tmp_path: Path) -> None:
    event = _start(servers, _request(tmp_path))
    event.control.close()
    (pid,) = servers.started
    now = time.monotonic()
    servers.poll(now + fork_servers.IDLE_SECONDS - 5)
    assert read_process(pid) is not None
    assert servers.next_deadline() is not None
    servers.poll(now + fork_servers.IDLE_SECONDS + 5)
    assert _exit_status(pid) == -signal.SIGKILL
    assert servers.next_deadline() is None


def test_memory_of_idle_servers_is_bounded(
    servers: ForkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        event = _start(servers, _request(tmp_path, NUMBER=str(number)))
        event.control.close()
    first, second, third = servers.started
    monkeypatch.setattr(fork_servers, "MAX_IDLE_BYTES", _resident(second) + _resident(third))
    servers.poll(time.monotonic())
    assert _exit_status(first) == -signal.SIGKILL  # idle longest
    assert read_process(second) is not None and read_process(third) is not None


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") + (1 << 20)


def test_start_is_refused_while_all_servers_are_busy(servers: ForkServers, tmp_path: Path) -> None:
    for number in range(fork_servers.MAX_SERVERS):
        request = _request(tmp_path, attempt=number, NUMBER=str(number))
        assert servers.start(request, _files()) is None
    files = _files()
    why = servers.start(_request(tmp_path, attempt=9, NUMBER="9"), files)
    assert why == "4 fork servers are starting jobs"
    for descriptor in files:
        os.close(descriptor)


def test_server_that_was_just_forked_can_be_ended(servers: ForkServers, tmp_path: Path) -> None:
    """It may not have its own process group yet."""
    for attempt in range(20):
        assert servers.start(_request(tmp_path, attempt=attempt), _files()) is None
        (pid,) = servers.started
        servers.started.clear()
        servers.close()
        wait_until(lambda pid=pid: os.waitpid(pid, os.WNOHANG)[0], what="its end")  # type: ignore[misc]


def test_imports_that_take_too_long_end_in_a_cold_start(
    servers: ForkServers, tmp_path: Path
) -> None:
    (tmp_path / "endless.py").write_text("while True: pass\n")
    request = _request(tmp_path, PYTHONPATH=str(tmp_path))._replace(modules=("endless",))
    assert servers.start(request, _files()) is None
    events = servers.poll(time.monotonic() + fork_servers.IMPORT_SECONDS + 1)
    assert events == [NotForked(1, "its modules were not imported within 120 s")]
    assert servers.start(request, []) == "its modules were not imported within 120 s"


def test_start_without_free_descriptors_is_refused_with_a_reason(
    servers: ForkServers, tmp_path: Path
) -> None:
    event = _start(servers, _request(tmp_path))
    event.control.close()
    files = _files()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files) + 1, limits[1]))
    try:
        assert servers.start(_request(tmp_path, attempt=2), files) is None
        (failed,) = servers.poll(time.monotonic())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    why = "the fork server got no request: Too many open files"
    assert failed == NotForked(2, why)
    after = _start(servers, _request(tmp_path, attempt=3))
    after.control.close()


def test_variables_of_jobs_and_terminals_do_not_matter_to_a_server() -> None:
    base = {b"PATH": b"/bin", b"OMP_NUM_THREADS": b"2"}
    own = {b"STOKER_JOB_ID": b"7", b"CUDA_VISIBLE_DEVICES": b"3", b"SSH_TTY": b"/dev/pts/1"}
    assert server_environment(base | own) == server_environment(base)
    assert server_environment(base)[b"CUDA_VISIBLE_DEVICES"] == b""
    other = base | {b"OMP_NUM_THREADS": b"4"}
    assert server_environment(other) != server_environment(base)
