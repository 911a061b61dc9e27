"""`stoker web`: start, stop or look at the server of the page."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from stoker.cli.output import notice, print_json
from stoker.core.formats.command_line import Option, Parsed, Verb, count
from stoker.errors import Conflict, Error, Unavailable, UsageError
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.web.server_address import LOG, ServerAddress, living_pid, living_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.http.addresses import Addresses

_ACTIONS = ("status", "stop")
_MODULE = "stoker.web.server"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LARGEST_LOG = 1 << 20

VERB = Verb(
        "web",
        "web [OPTIONS] | web status | web stop",
        "The page: every GPU and every job, live, in the browser. Starts its server and prints a "
        "link.",
        (
            Option("--port", "listen there (default: 8899, or another free one)", "N", count),
            Option("--host", "another address than 127.0.0.1; needs --token-file", "ADDRESS"),
            Option("--open", "open the page in your browser"),
            Option("--token-file", "the token that lets people in (made when missing)", "FILE"),
            Option("--read-only", "only show: for a screen on the wall"),
            Option("--foreground", "stay here, for systemd and the curious; Ctrl-C ends"),
        ),
        (
            ("stoker web --open", ""),
            ("stoker web status", "the link again"),
            ("ssh -L 8899:127.0.0.1:8899 gpu-host", "then open the link on your own machine"),
            ("stoker web --read-only --port 8900", ""),
            ("stoker web stop", "jobs do not notice"),
        ),
        """The link holds a token; whoever has it can run commands as you. It is kept in web.token
in the state folder: remove that file and restart the server for a new one.""",
        words="actions",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    if len(parsed.words) > 1 or (parsed.words and parsed.words[0] not in _ACTIONS):
        raise UsageError(f"`{' '.join(parsed.words)}`: what should be done?",
                         "stoker web, stoker web status or stoker web stop")  # fmt: skip
    settings = load_settings()
    prepare_state_dir(settings)
    if parsed.words:
        return _status(settings, parsed) if parsed.words[0] == "status" else _stop(settings, parsed)
    options = _options(parsed)
    place = living_place(settings.state_dir)
    if place is not None:
        _check_same(place, options)
    elif parsed["foreground"]:
        return _foreground(settings, options, parsed)
    else:
        place = _start(settings, options)
    _show(place, parsed)
    return 0


def _options(parsed: Parsed) -> dict[str, object]:
    from stoker.http.addresses import resolve

    port, host, token = parsed["port"], parsed["host"], parsed["token_file"]
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(f"{port} is not a port", "1 to 65535")
    addresses = resolve("127.0.0.1" if host is None else host)
    if not addresses.is_loopback:
        _check_open(addresses, token)
    return {
        "host": addresses.shown,
        "addresses": addresses.found,
        "port": port,
        "token_file": None if token is None else os.path.abspath(token),
        "read_only": bool(parsed["read_only"]),
    }


def _check_open(addresses: Addresses, token: str | None) -> None:
    """Refuse all addresses at once, and an address without a token that was asked for."""
    host = addresses.host
    tunnel = f"ssh -L 8899:127.0.0.1:8899 {os.uname().nodename}, then open the link on your machine"
    if addresses.is_everything:
        raise UsageError(f"`--host {host}` means every address of this host",
                         f"give one address; or use a tunnel: {tunnel}")  # fmt: skip
    if token is None:
        raise UsageError(
            f"`--host {host}` opens the web UI to every machine that can reach it, unencrypted",
            f"a tunnel is safer: {tunnel}. To do it anyway, add --token-file FILE",
        )
    notice(f"note: every machine that can reach {host} may connect with the token, and nothing is "
         f"encrypted\nhint: a tunnel is safer: {tunnel}")  # fmt: skip


def _check_same(place: ServerAddress, options: dict[str, object]) -> None:
    for key, text in (("port", "port"), ("token_file", "token file")):
        if options[key] is not None and options[key] != getattr(place, key):
            raise Conflict(f"the server runs with another {text}: {getattr(place, key)}",
                           "`stoker web stop` first")  # fmt: skip
    if options["host"] != place.host or (options["read_only"] and not place.read_only):
        raise Conflict(f"the server runs with other options at {place.address}",
                       "`stoker web stop` first")  # fmt: skip


def _start(settings: Settings, options: dict[str, object]) -> ServerAddress:
    """Start a server that outlives this terminal; where it listens."""
    import json
    import select

    folder = settings.state_dir
    ours, theirs = os.pipe()
    log = _open_log(os.path.join(folder, LOG))
    # -P: the folder we are in is a user's, and its json.py is not ours.
    words = [sys.executable, "-P", "-m", _MODULE, json.dumps({**options, "told": 3})]
    try:
        os.posix_spawn(
            sys.executable, words, {**os.environ, "STOKER_STATE_DIR": folder},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, theirs, 3),
            ],
            setsid=True,
        )  # fmt: skip
    finally:
        os.close(theirs)
        os.close(log)
    try:
        ready = select.select([ours], [], [], _START_SECONDS)[0]
        line = os.read(ours, 1 << 16) if ready else b""
    finally:
        os.close(ours)
    if not line:
        raise Unavailable("the server did not start",
                          f"its last words are in {os.path.join(folder, LOG)}")  # fmt: skip
    told = json.loads(line)
    if "error" not in told:
        return ServerAddress(**told)
    if _wait_until(lambda: living_pid(folder) is None or living_place(folder) is not None):
        place = living_place(folder)  # somebody else was quicker
        if place is not None:
            _check_same(place, options)
            return place
    raise _ServerError(**told["error"])


def _wait_until(condition: Callable[[], bool], seconds: float = _STOP_SECONDS) -> bool:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


class _ServerError(Error):
    """What the server said before it left."""

    def __init__(self, code: str, message: str, hint: str | None) -> None:
        super().__init__(message, hint)
        self.code = code


def _open_log(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    if os.path.exists(path) and os.stat(path).st_size > _LARGEST_LOG:
        flags |= os.O_TRUNC
    return os.open(path, flags, 0o600)


def _foreground(settings: Settings, options: dict[str, object], parsed: Parsed) -> int:
    import logging
    import threading

    from stoker.web.server import Options, serve

    logging.basicConfig(level=logging.WARNING, format="%(message)s")

    def announce() -> None:
        folder = settings.state_dir
        _wait_until(lambda: living_place(folder) is not None, _START_SECONDS)
        place = living_place(folder)
        if place is not None and place.pid == os.getpid():
            _show(place, parsed)
            sys.stdout.flush()

    threading.Thread(target=announce, daemon=True).start()
    try:
        serve(settings, Options(**options))  # type: ignore[arg-type]
    except KeyboardInterrupt:
        pass
    return 0


def _show(place: ServerAddress, parsed: Parsed) -> None:
    from stoker.http.token_file import load_token
    from stoker.web.sessions import Keys

    token = load_token(place.token_file)
    link = f"{place.address}#token={token}"
    if parsed["json"]:
        print_json(running=True, link=link, **place._asdict())
    else:
        print(link)
    if parsed["open"]:
        import webbrowser

        # The arguments of a browser can be read by every user of the host: not the token itself.
        ticket = Keys(token).ticket(time.time())
        if not webbrowser.open(f"{place.address}#token={ticket}"):
            notice("no browser could be opened; use the link")


def _status(settings: Settings, parsed: Parsed) -> int:
    place = living_place(settings.state_dir)
    if place is None:
        if parsed["json"]:
            print_json(running=False)
        else:
            print("no page is served; `stoker web` starts its server")
        return 1
    if not parsed["json"]:
        only = ", read-only" if place.read_only else ""
        notice(f"served at {place.address} (pid {place.pid}{only})")
    _show(place, parsed)
    return 0


def _stop(settings: Settings, parsed: Parsed) -> int:
    folder = settings.state_dir
    pid = living_pid(folder)
    if pid is not None and pid > 1:
        # The lock proves that this PID is the server's, at this moment.
        os.kill(pid, signal.SIGTERM)
        if not _wait_until(lambda: living_pid(folder) != pid):
            raise Unavailable(
                f"the server (pid {pid}) does not stop", f"kill -9 {pid} loses nothing"
            )
    if parsed["json"]:
        print_json(pid=pid)
    else:
        print("no page was served" if pid is None else "the page is closed; jobs go on")
    return 0
