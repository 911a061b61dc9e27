"""`gpupeasy server`, `gpupeasy gui` and `gpupeasy submit`: options, start and stop."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stoker.compat.foreground.entry import open_closed_streams
from stoker.compat.gpupeasy.client import Backend, Unreachable
from stoker.compat.gpupeasy.event_log import NAME, EventLog
from stoker.compat.gpupeasy.job_text import error_in, jobs_in
from stoker.compat.gpupeasy.jobs import split_device_list
from stoker.engine.devices.discovery import find_devices
from stoker.engine.supervisor import locks
from stoker.errors import Conflict, Error, NoPermission, Unavailable, UsageError
from stoker.record import Record
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.web.http.addresses import resolve
from stoker.web.http.token_file import load_token, read_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.compat.gpupeasy.app import Application
    from stoker.web.http.http_server import ServerSockets

SERVER_PORT = 8888
GUI_PORT = 4004
_LOOPBACK = "127.0.0.1"
_DEFAULT_DEVICES = ("0", "1", "2")
_QUEUE_LIMIT = 1000
_FOLDER = "queue"
_LOCK = "server.lock"
_STOP_SECONDS = 10.0
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ListenOptions(Record):
    """The address to listen on, and what remote clients need."""

    host: str = _LOOPBACK
    port: int = SERVER_PORT
    token_file: str | None = None
    names: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    open_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    parsed = _parser().parse_args(_join_negative_devices(words))
    return _report_errors(lambda: _run(parsed))


def run_server(host: str, port: str | int, devices: Sequence[str], logdir: str | None) -> int:
    """Run a server for a start script, which passes each device as one string."""
    return _report_errors(
        lambda: serve(ListenOptions(host, _port(port)), devices, logdir, _QUEUE_LIMIT)
    )


def _port(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"`{text}` is not a port number") from None


def _report_errors(work: Callable[[], int]) -> int:
    try:
        return work()
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code


def _run(parsed: argparse.Namespace) -> int:
    if parsed.verb == "submit":
        return submit(_backend(parsed), parsed.file)
    listen_options = ListenOptions(
        parsed.host, parsed.port, parsed.token_file, tuple(parsed.allow_host)
    )
    if parsed.verb == "gui":
        return show(listen_options, _backend(parsed))
    devices = None
    if parsed.gpus is not None:
        devices = split_device_list(parsed.gpus) * max(1, parsed.jobs_per_gpu)
    return serve(listen_options, devices, parsed.logdir, parsed.queue_limit)


def _join_negative_devices(words: list[str]) -> list[str]:
    """Keep argparse from reading the value of `--gpus '-1;0'` as an option.

    >>> _join_negative_devices(["server", "--gpus", "-1;0", "--port", "1"])
    ['server', '--gpus=-1;0', '--port', '1']
    """
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--gpus" and word[:1] == "-" and word[1:2].isdigit():
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _backend(parsed: argparse.Namespace) -> Backend:
    token = read_token(parsed.backend_token_file) if parsed.backend_token_file else None
    return Backend(parsed.backend_host, parsed.backend_port, token)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpupeasy",
        description="Run jobs on GPUs over HTTP. Compatible with GPUPeasy, run by Stoker.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="command", required=True)

    server = verbs.add_parser("server", help="accept jobs over HTTP and run them")
    option = server.add_argument
    text = "devices separated by `;`, each as for CUDA_VISIBLE_DEVICES: '0;1;2,3' "
    text += "(default: the devices of the last server in DIR, else all GPUs, else 0;1;2)"
    option("--gpus", metavar="LIST", help=text)
    text = "jobs at a time on each device (default: 1)"
    option("--jobs-per-gpu", metavar="N", type=int, default=1, help=text)
    option("--logdir", metavar="DIR", help="folder of logs.out and of the queue")
    text = "maximum number of waiting jobs; 0: no limit (default: %(default)s)"
    option("--queue-limit", metavar="N", type=int, default=_QUEUE_LIMIT, help=text)
    _add_listen_options(server, SERVER_PORT)

    gui = verbs.add_parser("gui", help="serve the web page of a server")
    _add_listen_options(gui, GUI_PORT)
    _add_backend(gui)

    batch = verbs.add_parser("submit", help="submit a file of jobs (.esy, .peasy) to a server")
    text = "file of jobs `name ;; outfile ;; command`, separated by `;;;` (-: stdin)"
    batch.add_argument("file", help=text)
    _add_backend(batch)
    return parser


def _add_backend(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    text = "address of the server (default: %(default)s)"
    option("--backend-host", metavar="ADDRESS", default=_LOOPBACK, help=text)
    text = "port of the server (default: %(default)s)"
    option("--backend-port", metavar="N", type=int, default=SERVER_PORT, help=text)
    option("--backend-token-file", metavar="FILE", help="file with the token of the server")


def _add_listen_options(parser: argparse.ArgumentParser, port: int) -> None:
    option = parser.add_argument
    text = "port to listen on (default: %(default)s; 0: any free port)"
    option("--port", metavar="N", type=int, default=port, help=text)
    text = "address to listen on (default: %(default)s); others need --token-file"
    option("--host", metavar="ADDRESS", default=_LOOPBACK, help=text)
    text = "accept clients that send the token in FILE; created if missing"
    option("--token-file", metavar="FILE", help=text)
    text = "also accept requests for this NAME or NAME:PORT"
    option("--allow-host", metavar="NAME", action="append", default=[], help=text)


# -- the server ------------------------------------------------------------------------------------


def serve(
    options: ListenOptions, devices: Sequence[str] | None, logdir: str | None, limit: int
) -> int:
    """Run the server until a signal. Jobs continue to run; the next server finds them."""
    from stoker.compat.gpupeasy.server import Server

    listening = _bind(options)  # first, so that a failure creates no files
    token = load_token(options.token_file) if options.token_file else None
    settings = load_settings()
    folder = os.path.abspath(logdir or os.path.join(settings.state_dir, "gpupeasy"))
    if logdir is None:
        prepare_state_dir(settings)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise NoPermission(
            f"cannot create the folder `{folder}`: {error.strerror}",
            "choose another one with --logdir",
        ) from None
    settings = settings._replace(state_dir=os.path.join(folder, _FOLDER))
    prepare_state_dir(settings)
    lock = _lock(settings.state_dir)
    log = EventLog(folder)
    server = Server(settings, log, max(0, limit))
    _catch_signals()
    service = server.service
    used = service.open(devices, _default_devices(settings) if devices is None else ())
    with _serving(options, listening, token, server):
        log.write("Info", f"Starting GPUPeasy server on {options.host}:{listening.port}")
        _print(
            f"GPUPeasy server on {listening.link}"
            f"  devices: {'; '.join(used)}  log: {os.path.join(folder, NAME)}"
        )
        while _wait_for_signal() == signal.SIGUSR1:
            _print(service.pause(True)["message"])
        running = service.count_running()
        service.close()
    _stop_daemon(settings.state_dir)
    log.write("Info", "GPUPeasy server stopped")
    if running:
        _print(f"jobs still running: {running}; the next server with this --logdir shows them")
    os.close(lock)
    return 0


def _default_devices(settings: Settings) -> Sequence[str]:
    """The GPUs of this host; without any, the devices of the original start script."""
    return [device.visible for device in find_devices(settings.devices)] or _DEFAULT_DEVICES


def _lock(folder: str) -> int:
    try:
        return locks.take(folder, _LOCK)
    except Conflict:
        pid = locks.holder(folder, _LOCK)
        raise Conflict(
            f"another server uses `{os.path.dirname(folder)}` (pid {pid})",
            "choose another --logdir for this one",
        ) from None


def _stop_daemon(folder: str) -> None:
    """Stop the daemon, so that no job is started. The runner keeps and records running jobs."""
    pid = locks.holder(folder, locks.DAEMON_LOCK)
    if pid is None or pid <= 1:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + _STOP_SECONDS
    while locks.holder(folder, locks.DAEMON_LOCK) == pid and time.monotonic() < deadline:
        time.sleep(0.01)


# -- the web page ----------------------------------------------------------------------------------


def show(options: ListenOptions, backend: Backend) -> int:
    from stoker.compat.gpupeasy.gui import Gui

    listening = _bind(options)
    _catch_signals()
    token = load_token(options.token_file) if options.token_file else None
    with _serving(options, listening, token, Gui(backend)):
        _print(f"GPUPeasy gui on {listening.link}")
        while _wait_for_signal() == signal.SIGUSR1:
            pass
    return 0


# -- a file of jobs --------------------------------------------------------------------------------


def submit(backend: Backend, path: str) -> int:
    """Submit all jobs of a file, or none if one of them is invalid."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="surrogateescape") as file:
            lines = list(jobs_in(file.read()))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    data = [line._replace(out=line.out and os.path.abspath(line.out)).as_json() for line in lines]
    is_dry_run = any(line.error for line in lines)
    try:
        response = backend.post("addnewjobs", data={"jobs": data, "dryRun": is_dry_run})
    except Unreachable as error:
        raise Unavailable(str(error), "start a server with: gpupeasy server") from None
    if response["status"] == "successful" and not is_dry_run:
        for id in response["jobIDs"]:
            _print(str(id))
        return 0
    errors = response.get("errors")
    if errors is None:  # not about one of the jobs
        raise UsageError(str(response["message"]), "no job was submitted")
    for line, refusal in zip(lines, errors, strict=False):
        if line.error or refusal:
            print(line.error or error_in(line.name, refusal), file=sys.stderr)
    raise UsageError("no job was submitted")


# -- server and web page ---------------------------------------------------------------------------


def _bind(options: ListenOptions) -> ServerSockets:
    """Open the port; connections wait until the server accepts them."""
    from stoker.web.http.http_server import listen

    addresses = resolve(options.host)
    if not addresses.is_loopback and options.token_file is None:
        raise UsageError(
            f"`--host {options.host}` would let other machines run commands as you",
            "add --token-file FILE, or use 127.0.0.1 and `ssh -L` from other machines",
        )
    return listen(addresses, [options.port], "choose another port with --port N")


@contextmanager
def _serving(
    options: ListenOptions, listening: ServerSockets, token: str | None, application: Application
) -> Iterator[None]:
    """Serve requests until the end of the block."""
    from stoker.compat.gpupeasy.app import make_app
    from stoker.compat.gpupeasy.auth import Guard, own_hosts
    from stoker.web.http.http_server import serving

    guard = Guard(own_hosts(listening, options.names), token)
    if not listening.addresses.is_loopback:
        _print(
            f"clients with the token in `{options.token_file}` can run commands as you; "
            "it is sent unencrypted, so use `ssh -L` on untrusted networks"
        )
    with serving(make_app(application, guard), listening):
        yield


_signals: list[int] = []


def _catch_signals() -> None:
    """Write signals to a self-pipe, whichever thread receives them."""
    if not _signals:
        _signals.extend(os.pipe2(os.O_CLOEXEC))
        os.set_blocking(_signals[1], False)
        signal.set_wakeup_fd(_signals[1])
    for number in (*_STOPS, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)


def _wait_for_signal() -> int:
    return os.read(_signals[0], 1)[0]


def _print(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
