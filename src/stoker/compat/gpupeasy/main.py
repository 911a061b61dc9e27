"""`gpupeasy server`, `gpupeasy gui` and `gpupeasy submit`: options, start, stop."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

from stoker.compat.gpupeasy.client import Backend, Unreachable
from stoker.compat.gpupeasy.devices import split_devices
from stoker.compat.gpupeasy.event_log import NAME, EventLog
from stoker.core.formats.gpupeasy_text import jobs_in, trouble_in
from stoker.core.record import Record
from stoker.devices.discovery import find_devices
from stoker.errors import Conflict, Error, NoPermission, Unavailable, UsageError
from stoker.http.addresses import resolve
from stoker.http.token_file import load_token, read_token
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.supervisor import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.compat.gpupeasy.app import Application
    from stoker.http.http_server import ServerSockets

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
    """Where to listen, and who else may come."""

    host: str = _LOOPBACK
    port: int = SERVER_PORT
    token_file: str | None = None
    names: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parsed = _parser().parse_args(_with_devices(words))
    return _told(lambda: _run(parsed))


def run_server(host: str, port: str | int, devices: Sequence[str], logdir: str | None) -> int:
    """For start scripts: each device is taken as it is."""
    return _told(lambda: serve(ListenOptions(host, _port(port)), devices, logdir, _QUEUE_LIMIT))


def _port(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"there is no port `{text}`") from None


def _told(work: Callable[[], int]) -> int:
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
    place = ListenOptions(parsed.host, parsed.port, parsed.token_file, tuple(parsed.allow_host))
    if parsed.verb == "gui":
        return show(place, _backend(parsed))
    devices = None
    if parsed.gpus is not None:
        devices = split_devices(parsed.gpus) * max(1, parsed.jobs_per_gpu)
    return serve(place, devices, parsed.logdir, parsed.queue_limit)


def _with_devices(words: list[str]) -> list[str]:
    """`--gpus '-1;0'` has no option of the name -1 in it.

    >>> _with_devices(["server", "--gpus", "-1;0", "--port", "1"])
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
        prog="gpupeasy", description="Jobs for GPUs over HTTP, on Stoker's engine."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    server = verbs.add_parser("server", help="take jobs and run them")
    server.add_argument(
        "--gpus", metavar="LIST",
        help="devices separated by `;`, each as for CUDA_VISIBLE_DEVICES: '0;1;2,3' "
        "(default: those of the last server here, or 0;1;2)",
    )  # fmt: skip
    server.add_argument(
        "--jobs-per-gpu", metavar="N", type=int, default=1, help="so many at a time on each"
    )
    server.add_argument("--logdir", metavar="DIR", help="logs.out, and the queue")
    server.add_argument("--queue-limit", metavar="N", type=int, default=_QUEUE_LIMIT,
                        help="jobs that may wait; 0: any number (default: 1000)")  # fmt: skip
    _add_place(server, SERVER_PORT)
    gui = verbs.add_parser("gui", help="the page in front of a server")
    _add_place(gui, GUI_PORT)
    _add_backend(gui)
    batch = verbs.add_parser("submit", help="hand a file of jobs (.esy, .peasy) to a server")
    batch.add_argument(
        "file", help="name ;; outfile ;; command, jobs separated by ;;; (- is stdin)"
    )
    _add_backend(batch)
    return parser


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend-host", metavar="ADDRESS", default=_LOOPBACK)
    parser.add_argument("--backend-port", metavar="N", type=int, default=SERVER_PORT)
    parser.add_argument("--backend-token-file", metavar="FILE", help="the server's token")


def _add_place(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--port", metavar="N", type=int, default=port,
                        help="default: %(default)s; 0: any")  # fmt: skip
    parser.add_argument("--host", metavar="ADDRESS", default=_LOOPBACK,
                        help="default: %(default)s; any other needs --token-file")  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE",
                        help="lets in whoever knows its text; made when missing")  # fmt: skip
    parser.add_argument("--allow-host", metavar="NAME", action="append", default=[],
                        help="another NAME of this host, or NAME:PORT")  # fmt: skip


# -- the server ------------------------------------------------------------------------------------


def serve(
    place: ListenOptions, devices: Sequence[str] | None, logdir: str | None, limit: int
) -> int:
    """Be the server until a signal; what runs then goes on, and the next server here finds it."""
    from stoker.compat.gpupeasy.server import Server

    listening = _bind(place)  # before anything is made: what cannot be is known by then
    token = _token(place)
    settings = load_settings()
    folder = os.path.abspath(logdir or os.path.join(settings.state_dir, "gpupeasy"))
    if logdir is None:
        prepare_state_dir(settings)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise NoPermission(f"cannot make the folder `{folder}`: {error.strerror}",
                           "give another one with --logdir") from None  # fmt: skip
    settings = settings._replace(state_dir=os.path.join(folder, _FOLDER))
    prepare_state_dir(settings)
    lock = _lock(settings.state_dir)
    book = EventLog(folder)
    server = Server(settings, book, max(0, limit))
    _catch_signals()
    desk = server.desk
    used = desk.open(devices, _default_devices(settings) if devices is None else ())
    with _serving(place, listening, token, server):
        book.write("Info", f"Starting GPUPeasy server on {place.host}:{listening.port}")
        _say(f"GPUPeasy server on {listening.link}"
             f"  devices: {'; '.join(used)}  log: {os.path.join(folder, NAME)}")  # fmt: skip
        while _wait_for_signal() == signal.SIGUSR1:
            _say(desk.pause(True)["message"])
        running = desk.count_running()
        desk.close()
    _stop_daemon(settings.state_dir)
    book.write("Info", "GPUPeasy server stopped")
    if running:
        _say(f"{running} running; the next server with this --logdir finds them")
    os.close(lock)
    return 0


def _default_devices(settings: Settings) -> Sequence[str]:
    """The cards of this host; where it has none, as many as the old script assumed."""
    return [device.visible for device in find_devices(settings.devices)] or _DEFAULT_DEVICES


def _lock(folder: str) -> int:
    try:
        return locks.take(folder, _LOCK)
    except Conflict:
        pid = locks.holder(folder, _LOCK)
        raise Conflict(f"another server uses `{os.path.dirname(folder)}` (pid {pid})",
                       "give this one its own --logdir") from None  # fmt: skip


def _stop_daemon(folder: str) -> None:
    """Nothing more is started. Jobs that run go on under the runner, which records their ends."""
    pid = locks.holder(folder, locks.DAEMON_LOCK)
    if pid is None or pid <= 1:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    give_up = time.monotonic() + _STOP_SECONDS
    while locks.holder(folder, locks.DAEMON_LOCK) == pid and time.monotonic() < give_up:
        time.sleep(0.01)


# -- the page --------------------------------------------------------------------------------------


def show(place: ListenOptions, backend: Backend) -> int:
    from stoker.compat.gpupeasy.gui import Gui

    listening = _bind(place)
    _catch_signals()
    with _serving(place, listening, _token(place), Gui(backend)):
        _say(f"GPUPeasy gui on {listening.link}")
        while _wait_for_signal() == signal.SIGUSR1:
            pass
    return 0


# -- a file of jobs --------------------------------------------------------------------------------


def submit(backend: Backend, path: str) -> int:
    """All of its jobs or none."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="surrogateescape") as file:
            lines = list(jobs_in(file.read()))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    data = [
        {"jobName": line.name, "outFile": line.out and os.path.abspath(line.out),
         "jobCommand": line.argv}
        for line in lines
    ]  # fmt: skip
    is_trial = any(line.trouble for line in lines)
    try:
        answer = backend.post("addnewjobs", data={"jobs": data, "dryRun": is_trial})
    except Unreachable as error:
        raise Unavailable(str(error), "start one: gpupeasy server") from None
    if answer["status"] == "successful" and not is_trial:
        for id in answer["jobIDs"]:
            _say(str(id))
        return 0
    found = answer.get("errors")
    if found is None:  # about none of them in particular
        raise UsageError(str(answer["message"]), "no job was submitted")
    for line, trouble in zip_longest(lines, found):
        own = line.trouble if line is not None else None
        if own or trouble:
            name = line.name if line is not None else ""
            print(own or trouble_in(name, trouble), file=sys.stderr)
    raise UsageError("no job was submitted")


# -- both ------------------------------------------------------------------------------------------


def _bind(place: ListenOptions) -> ServerSockets:
    """The port; who connects now waits until we answer."""
    from stoker.http.http_server import listen

    addresses = resolve(place.host)
    if not addresses.is_loopback and place.token_file is None:
        raise UsageError(
            f"`--host {place.host}` lets other machines connect, which could run commands as you",
            "add --token-file FILE, or stay on 127.0.0.1 and use `ssh -L` from elsewhere",
        )
    return listen(addresses, [place.port], "choose another port with --port N")


def _token(place: ListenOptions) -> str | None:
    return None if place.token_file is None else load_token(place.token_file)


@contextmanager
def _serving(
    place: ListenOptions, listening: ServerSockets, token: str | None, application: Application
) -> Iterator[None]:
    """Answer on that port until the end of the block."""
    from stoker.compat.gpupeasy.app import make_app
    from stoker.compat.gpupeasy.auth import Guard, own_hosts
    from stoker.http.http_server import serving

    guard = Guard(own_hosts(listening, place.names), token)
    if not listening.addresses.is_loopback:
        _say(f"anybody with the token in `{place.token_file}` may run commands; it travels "
             "unencrypted, so prefer `ssh -L` on networks that you do not trust")  # fmt: skip
    with serving(make_app(application, guard), listening):
        yield


_signals: list[int] = []


def _catch_signals() -> None:
    """Signals are bytes in a pipe, whichever thread the kernel gives them to."""
    if not _signals:
        _signals.extend(os.pipe2(os.O_CLOEXEC))
        os.set_blocking(_signals[1], False)
        signal.set_wakeup_fd(_signals[1])
    for number in (*_STOPS, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)


def _wait_for_signal() -> int:
    return os.read(_signals[0], 1)[0]


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
