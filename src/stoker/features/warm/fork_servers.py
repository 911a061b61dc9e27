"""The fork servers of a process that is the parent of jobs, and the warm starts under way.

There is one server for each interpreter, folder, environment and list of modules. A start waits
until its server has imported the modules, then until the forked process reports its PID; both have
a time limit. Nothing of the job is executed before `confirm` (fork_server.py), so every failure
before that ends in a cold start.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress

from stoker.engine.supervisor.cpu_binding import CpuBinding
from stoker.engine.supervisor.parent_death import send_at_parent_death
from stoker.engine.supervisor.process_table import read_process
from stoker.engine.supervisor.process_tags import RLIMIT_LOCKS
from stoker.engine.supervisor.spawn import DEFAULT_SIGNALS, Environment, close_others, set_deadline
from stoker.engine.supervisor.wire import Wire
from stoker.features.warm.server_keys import server_environment
from stoker.record import Record
from stoker.text.byte_text import to_system
from stoker.text.commands.python_command import PythonCommand

MAX_SERVERS = 4
IDLE_SECONDS = 600.0
MAX_IDLE_BYTES = 8 << 30  # of all idle servers together; a quarter of the host's memory if less
IMPORT_SECONDS = 120.0
FORK_SECONDS = 15.0
_UNFIT_SECONDS = 600.0  # how long starts that need an unfit server are cold
_MAX_REMEMBERED = 200
_MAX_EXCLUDED = 3  # modules of one program
_PROGRAM = os.path.join(os.path.dirname(__file__), "fork_server.py")
_PADDING = " " * 2000  # room for the arguments of a job, which `ps` then shows


class WarmRequest(Record):
    """What a fork needs to become the first process of an attempt."""

    attempt: int
    command: PythonCommand
    argv: tuple[str, ...]
    cwd: str
    umask: int
    env: Environment
    tag: int
    cpus: str  # to bind it to; empty: all
    modules: tuple[str, ...]
    is_named: bool  # the user named the modules; otherwise they were learned
    time_limit: float | None
    cgroup: str | None = None  # the file by which its process enters its cgroup

    @property
    def program(self) -> tuple[str, ...]:
        """Runs with the same value import the same modules."""
        return (self.cwd, self.command.python, self.command.kind, self.command.program)


class Forked(Record):
    """The process of an attempt exists and waits for `confirm`."""

    attempt: int
    pid: int
    control: socket.socket
    note: str | None  # why it executes the interpreter like a cold start


class NotForked(Record):
    """No process of the attempt exists: start it cold."""

    attempt: int
    why: str


class _Start:
    """A warm start under way: it waits for the server, or its request was sent."""

    def __init__(self, request: WarmRequest, files: list[int]) -> None:
        self.request = request
        self.files = files  # stdin, stdout and stderr, then leases
        self.control: socket.socket | None = None
        self.sent_at = 0.0

    def close(self) -> None:
        for descriptor in self.files:
            os.close(descriptor)
        self.files = []
        if self.control is not None:
            self.control.close()
            self.control = None


class _Server:
    def __init__(self, key: tuple[object, ...], request: WarmRequest, wire: Wire, pid: int) -> None:
        self.key = key
        self.request = request  # the first one, whose modules it imports
        self.wire = wire
        self.pid = pid
        self.handle = os.pidfd_open(pid)
        self.is_ready = False
        self.since = self.used_at = time.monotonic()
        self.memory = 0
        self.starts: dict[int, _Start] = {}  # by attempt

    def close(self) -> None:
        """Kill it, and what its imports have started. Its jobs are not in its process group."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGSTOP)  # raises if it was reaped
            with suppress(ProcessLookupError):  # it was just forked and has no group yet
                os.killpg(self.pid, signal.SIGKILL)
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        os.close(self.handle)
        self.wire.close()


class ForkServers:
    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._poll = select.epoll()
        self._servers: dict[tuple[object, ...], _Server] = {}
        self._starts: dict[int, tuple[_Server, _Start]] = {}
        self._unfit: dict[tuple[object, ...], tuple[str, float]] = {}
        self._learned: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._excluded: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._events: list[Forked | NotForked] = []
        self.started: list[int] = []  # PIDs of new servers, until the caller empties the list

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""
        return self._poll.fileno()

    # -- starts --------------------------------------------------------------------------------

    def start(self, request: WarmRequest, files: list[int]) -> str | None:
        """Begin a warm start; `poll` reports its result. Returns why not, for a cold start.

        `files`: stdin, stdout and stderr, then leases; closed by this object, unless it returns a
        reason.
        """
        if not request.is_named:
            request = request._replace(modules=self._modules(request))
        return self._place(request, _Start(request, files), time.monotonic())

    def _modules(self, request: WarmRequest) -> tuple[str, ...]:
        known = (*request.modules, *self._learned.get(request.program, ()))
        excluded = self._excluded.get(request.program, ())
        return tuple(name for name in dict.fromkeys(known) if not _is_within(name, excluded))

    def _place(self, request: WarmRequest, start: _Start, now: float) -> str | None:
        key = _key(request)
        why, until = self._unfit.get(key, ("", 0.0))
        if now < until:
            return why
        server = self._servers.get(key)
        if server is None:
            if not self._make_room():
                return f"{MAX_SERVERS} fork servers are starting jobs"
            try:
                server = self._launch(key, request)
            except OSError as error:
                return f"the fork server cannot be started: {error.strerror}"
        start.request = request
        server.starts[request.attempt] = start
        self._starts[request.attempt] = (server, start)
        server.used_at = now
        if server.is_ready:
            self._send(server, start, now)
        return None

    def _send(self, server: _Server, start: _Start, now: float) -> None:
        request = start.request
        env = request.env
        set_deadline(env, request.time_limit)
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            copies = copy_descriptors(start.files)  # to repeat the request if the server is stale
        except OSError as error:
            self._fail(request.attempt, f"the fork server got no request: {error.strerror}")
            return
        ours.setblocking(False)
        start.control = ours
        start.sent_at = now
        self._poll.register(ours.fileno(), select.EPOLLIN)
        descriptors = [*copies[:3], theirs.detach(), *copies[3:]]
        command = request.command
        server.wire.send(
            "fork",
            {
                "descriptors": len(descriptors),
                "argv": [_in_json(to_system(word)) for word in request.argv],
                "env": [(_in_json(key), _in_json(value)) for key, value in env.items()],
                "cwd": _in_json(to_system(request.cwd)),
                "umask": request.umask,
                "tag": request.tag,
                "tag_limit": RLIMIT_LOCKS,
                "cgroup": request.cgroup,
                "kind": command.kind,
                "program": _in_json(to_system(command.program)),
                "arguments": [_in_json(to_system(word)) for word in command.arguments],
                "learns": not request.is_named,
            },
            descriptors,
        )
        self._watch(server)

    def _watch(self, server: _Server) -> None:
        writes = select.EPOLLOUT if server.wire.has_backlog else 0
        self._poll.modify(server.wire.fileno(), select.EPOLLIN | writes)

    def cancel(self, attempt: int) -> None:
        """Drop a start. A process that was forked for it ends without executing anything."""
        known = self._starts.pop(attempt, None)
        if known is not None:
            server, start = known
            del server.starts[attempt]
            start.close()

    def learn(self, request: WarmRequest, modules: tuple[str, ...]) -> None:
        """Remember what a program imported, for its next start."""
        if len(self._learned) >= _MAX_REMEMBERED:
            self._learned.clear()
        known = self._learned.get(request.program, ())
        self._learned[request.program] = tuple(dict.fromkeys((*known, *modules)))

    # -- servers -------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Forked | NotForked]:
        """Handle messages of servers and forked processes, and time limits."""
        for attempt, (server, start) in list(self._starts.items()):
            if start.control is not None:
                self._read_control(attempt, server, start, now)
        for server in list(self._servers.values()):
            self._read_server(server, now)
        self._end_idle(now)
        for server in self._servers.values():
            self._watch(server)
        events, self._events = self._events, []
        return events

    def _read_control(self, attempt: int, server: _Server, start: _Start, now: float) -> None:
        control = start.control
        assert control is not None
        try:
            data = control.recv(4096)
        except BlockingIOError:
            if now < start.sent_at + FORK_SECONDS:
                return
            self._fail(attempt, f"the fork server did not answer within {FORK_SECONDS:.0f} s")
            self._end(server)
            return
        except OSError:
            data = b""
        if not data:
            if server.key in self._servers:  # `stale` may arrive at the same time
                self._read_server(server, now)
            if self._starts.get(attempt, (None,))[0] is server:
                self._fail(attempt, "the fork server could not fork")
            return
        fields = json.loads(data)
        pid = int(fields["pid"])
        process = read_process(pid)
        if process is None or process.parent != os.getpid():
            self._fail(attempt, "the forked process ended before it started")
            return
        del self._starts[attempt], server.starts[attempt]
        self._poll.unregister(control.fileno())
        start.control = None
        start.close()
        self._events.append(Forked(attempt, pid, control, fields["cold"]))

    def _read_server(self, server: _Server, now: float) -> None:
        server.wire.flush()
        messages, is_alive = server.wire.receive()
        for kind, fields in messages:
            if kind == "ready":
                server.is_ready = True
                server.memory = _resident(server.pid)
                for start in list(server.starts.values()):
                    self._send(server, start, now)
            elif kind == "unfit":
                self._set_unfit(server, str(fields["why"]), fields.get("module"), now)
                return
            elif kind == "stale":
                self._replace(server, now)
                return
        if not is_alive:
            # A start that was sent ends with its control socket: its process may exist.
            why = "the fork server exited"
            if not server.is_ready:
                why = "the fork server exited during its imports"
                self._remember_unfit(server.key, why, now)
            self._end(server)
            for attempt, start in list(server.starts.items()):
                if start.control is None:
                    self._fail(attempt, why)
        elif not server.is_ready and now >= server.since + IMPORT_SECONDS:
            why = f"its modules were not imported within {IMPORT_SECONDS:.0f} s"
            self._set_unfit(server, why, None, now)

    def _set_unfit(self, server: _Server, why: str, module: str | None, now: float) -> None:
        """Use this server for no start; one without the module that is at fault may do."""
        program = server.request.program
        excluded = self._excluded.get(program, ())
        can_exclude = module is not None and not server.request.is_named
        if module is not None and can_exclude and len(excluded) < _MAX_EXCLUDED:
            if len(self._excluded) >= _MAX_REMEMBERED:
                self._excluded.clear()
            self._excluded[program] = (*excluded, module.partition(".")[0])
            self._replace(server, now)
            return
        self._end(server)
        self._remember_unfit(server.key, why, now)
        for attempt in list(server.starts):
            self._fail(attempt, why)

    def _remember_unfit(self, key: tuple[object, ...], why: str, now: float) -> None:
        if len(self._unfit) >= _MAX_REMEMBERED:
            self._unfit.clear()
        self._unfit[key] = (why, now + _UNFIT_SECONDS)

    def _replace(self, server: _Server, now: float) -> None:
        """Let the starts of a server wait for a fresh one."""
        self._end(server)
        for attempt, start in list(server.starts.items()):
            del self._starts[attempt], server.starts[attempt]
            if start.control is not None:  # a process that was forked for it ends
                start.control.close()
                start.control = None
            request = start.request
            if not request.is_named:
                request = request._replace(modules=self._modules(request))
            why = self._place(request, start, now)
            if why is not None:
                start.close()
                self._events.append(NotForked(attempt, why))

    def _fail(self, attempt: int, why: str) -> None:
        self.cancel(attempt)
        self._events.append(NotForked(attempt, why))

    def _launch(self, key: tuple[object, ...], request: WarmRequest) -> _Server:
        ours, theirs = socket.socketpair()
        binding = CpuBinding()
        binding.bind(request.cpus)  # inherited by the server and its jobs
        try:
            pid = os.fork()
            if pid == 0:
                _execute_server(request, theirs, self._null)
        except OSError:
            ours.close()
            raise
        finally:
            binding.restore()
            theirs.close()
        wire = Wire(ours)
        self.started.append(pid)
        server = _Server(key, request, wire, pid)
        command = request.command
        wire.send(
            "prepare",
            {
                "kind": command.kind,
                "program": _in_json(to_system(command.program)),
                "modules": list(request.modules),
                "required": request.is_named,
            },
        )
        self._poll.register(ours.fileno(), select.EPOLLIN)
        self._servers[key] = server
        return server

    def _make_room(self) -> bool:
        """End the server that was idle longest, if there are too many; False if all are busy."""
        if len(self._servers) < MAX_SERVERS:
            return True
        idle = [one for one in self._servers.values() if not one.starts]
        if not idle:
            return False
        self._end(min(idle, key=lambda one: one.used_at))
        return True

    def _end_idle(self, now: float) -> None:
        idle = sorted(
            (one for one in self._servers.values() if not one.starts and one.is_ready),
            key=lambda one: one.used_at,
        )
        memory = sum(one.memory for one in idle)
        most = min(MAX_IDLE_BYTES, _host_memory() // 4) if memory else 0
        for server in idle:
            if now < server.used_at + IDLE_SECONDS and memory <= most:
                break
            memory -= server.memory
            self._end(server)

    def _end(self, server: _Server) -> None:
        if self._servers.get(server.key) is server:
            del self._servers[server.key]
            server.close()

    def next_deadline(self) -> float | None:
        """When to call `poll` even if nothing arrives (monotonic)."""
        times = [0.0] if self._events else []
        for server in self._servers.values():
            if not server.is_ready:
                times.append(server.since + IMPORT_SECONDS)
            elif not server.starts:
                times.append(server.used_at + IDLE_SECONDS)
        times += [
            start.sent_at + FORK_SECONDS
            for _, start in self._starts.values()
            if start.control is not None
        ]
        return min(times, default=None)

    def end_servers(self) -> None:
        """End all servers that no start waits for."""
        for server in list(self._servers.values()):
            if not server.starts:
                self._end(server)

    def close(self) -> None:
        """End all servers and starts."""
        for attempt in list(self._starts):
            self.cancel(attempt)
        self.end_servers()


def copy_descriptors(numbers: list[int]) -> list[int]:
    """Copies of all descriptors, or OSError and none."""
    copies: list[int] = []
    try:
        for number in numbers:
            copies.append(os.dup(number))
    except OSError:
        for copy in copies:
            os.close(copy)
        raise
    return copies


def read_report(control: socket.socket) -> tuple[str, ...]:
    """The modules that a forked process reported at its exit; () if it did not."""
    try:
        fields = json.loads(control.recv(1 << 17))
        return tuple(str(name) for name in fields["modules"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def confirm(control: socket.socket) -> None:
    """Let a forked process execute its program."""
    with suppress(OSError):  # it was killed; its exit status says so
        control.send(b"go")


def _key(request: WarmRequest) -> tuple[object, ...]:
    command = request.command
    folder = os.path.dirname(command.program) if command.kind == "script" else ""
    env = server_environment(request.env)
    return (
        command.python,
        command.flags,
        command.kind,
        folder,
        request.cwd,
        request.umask,
        request.cpus,
        request.modules,
        tuple(sorted(env.items())),
    )


def _execute_server(request: WarmRequest, channel: socket.socket, null: int) -> None:
    """In the child: execute a fork server. Never returns."""
    try:
        parent = os.getppid()
        close_others({null, channel.fileno()})
        send_at_parent_death(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for target in range(3):
            os.dup2(null, target)
        channel.set_inheritable(True)
        os.umask(request.umask)
        os.chdir(to_system(request.cwd))
        command = request.command
        words = (command.python, *command.flags, _PROGRAM, str(channel.fileno()), _PADDING)
        argv = [to_system(word) for word in words]
        os.execvpe(argv[0], argv, server_environment(request.env))
    except OSError:
        pass  # the end of the channel reports it
    finally:
        os._exit(127)


def _is_within(name: str, packages: tuple[str, ...]) -> bool:
    return name.partition(".")[0] in packages


def _in_json(data: bytes) -> str:
    """Bytes as text with one character for each."""
    return data.decode("latin-1")


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
