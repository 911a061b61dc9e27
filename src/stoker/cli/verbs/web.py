"""`stoker web`: start, stop or inspect the server of the web UI."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from stoker.cli.output import notice, print_json
from stoker.errors import Conflict, Error, Unavailable, UsageError
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.text.command_line import Option, Parsed, Verb, count
from stoker.web.server_address import LOG, ServerAddress, living_pid, living_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.web.http.addresses import Addresses

_ACTIONS = ("status", "stop")
_MODULE = "stoker.web.server"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_MAX_LOG_BYTES = 1 << 20

VERB = Verb(
    "web",
    "web [OPTIONS] | web status | web stop",
    "Start the web UI, which shows GPUs and jobs live in the browser, and print its link.",
    (
        Option("--port", "port to listen on (default: 8899, or a free one)", "N", count),
        Option(
            "--host",
            "address to listen on (default: 127.0.0.1; others need --token-file)",
            "ADDRESS",
        ),
        Option("--open", "open the web UI in your browser"),
        Option("--token-file", "file with the access token (created if missing)", "FILE"),
        Option("--read-only", "allow no changes, e.g. for a shared screen"),
        Option("--foreground", "run in the foreground, e.g. under systemd; Ctrl-C stops it"),
    ),
    (
        ("stoker web --open", ""),
        ("stoker web status", "print the link again"),
        ("stoker --host gpu-box web --open", "the web UI of another machine, through ssh"),
        ("stoker web --read-only --port 8900", ""),
        ("stoker web stop", "stop the server; jobs continue"),
    ),
    """The link contains a token. Anyone who has it can run commands as you. It is stored in
web.token in the state folder; to replace it, remove that file and restart the server.""",
    words="actions",
)


def run(parsed: Parsed) -> int:
    if len(parsed.words) > 1 or (parsed.words and parsed.words[0] not in _ACTIONS):
        raise UsageError(
            f"`{' '.join(parsed.words)}` is not an action of `stoker web`",
            f"actions: {', '.join(_ACTIONS)}",
        )
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
    from stoker.web.http.addresses import resolve

    port, host, token = parsed["port"], parsed["host"], parsed["token_file"]
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(f"{port} is not a port", "ports are 1 to 65535")
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
    """Raise UsageError for a wildcard address, and for a public address without --token-file."""
    host = addresses.host
    tunnel = f"ssh -L 8899:127.0.0.1:8899 {os.uname().nodename}, then open the link on your machine"
    if addresses.is_everything:
        raise UsageError(
            f"`--host {host}` would listen on every address of this host",
            f"give one address, or use a tunnel: {tunnel}",
        )
    if token is None:
        raise UsageError(
            f"`--host {host}` opens the web UI to every machine that can reach it, unencrypted",
            f"a tunnel is safer: {tunnel}. To do it anyway, add --token-file FILE",
        )
    notice(
        f"note: every machine that can reach {host} may connect with the token, and nothing is "
        f"encrypted\nhint: a tunnel is safer: {tunnel}"
    )


def _check_same(place: ServerAddress, options: dict[str, object]) -> None:
    for key, text in (("port", "port"), ("token_file", "token file")):
        if options[key] is not None and options[key] != getattr(place, key):
            raise Conflict(
                f"the server already runs with another {text}: {getattr(place, key)}",
                "stop it first with `stoker web stop`",
            )
    if options["host"] != place.host or (options["read_only"] and not place.read_only):
        raise Conflict(
            f"the server already runs with other options at {place.address}",
            "stop it first with `stoker web stop`",
        )


def _start(settings: Settings, options: dict[str, object]) -> ServerAddress:
    """Start a server in the background. Returns its address; raises Unavailable or its error."""
    import json
    import select

    folder = settings.state_dir
    ours, theirs = os.pipe()
    log = _open_log(os.path.join(folder, LOG))
    # -P: a module such as json.py in the current folder must not be imported.
    words = [sys.executable, "-P", "-m", _MODULE, json.dumps({**options, "ready_fd": 3})]
    try:
        os.posix_spawn(
            sys.executable,
            words,
            {**os.environ, "STOKER_STATE_DIR": folder},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, theirs, 3),
            ],
            setsid=True,
        )
    finally:
        os.close(theirs)
        os.close(log)
    try:
        ready = select.select([ours], [], [], _START_SECONDS)[0]
        line = os.read(ours, 1 << 16) if ready else b""
    finally:
        os.close(ours)
    if not line:
        raise Unavailable("the server did not start", f"see its log: {os.path.join(folder, LOG)}")
    answer = json.loads(line)
    if "error" not in answer:
        return ServerAddress(**answer)
    if _wait_until(lambda: living_pid(folder) is None or living_place(folder) is not None):
        place = living_place(folder)  # another process started a server first
        if place is not None:
            _check_same(place, options)
            return place
    raise _ServerError(**answer["error"])


def _wait_until(condition: Callable[[], bool], seconds: float = _STOP_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class _ServerError(Error):
    """The error that kept the server from starting."""

    def __init__(self, code: str, message: str, hint: str | None) -> None:
        super().__init__(message, hint)
        self.code = code


def _open_log(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    if os.path.exists(path) and os.stat(path).st_size > _MAX_LOG_BYTES:
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


def serve_tunnel(parsed: Parsed, port: int) -> int:
    """Serve for another machine, whose port ssh forwards; ends with the ssh connection.

    Prints one line of JSON: the port here, and the access token.
    """
    import json
    import logging

    from stoker.web.http.token_file import load_token
    from stoker.web.server import Options, serve_tunnel

    if parsed["host"] is not None:
        raise UsageError(
            "`stoker web --host` cannot be combined with `stoker --host`",
            "through ssh, the server always listens on a loopback address",
        )
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    settings = load_settings()
    options = _options(parsed)
    ours, theirs = os.pipe()

    def announce() -> None:
        with open(ours, "rb") as file:
            address = json.loads(file.readline())
        token = load_token(address["token_file"])
        print(json.dumps({"port": address["port"], "token": token, **_with_ticket(token)}))
        sys.stdout.flush()

    import threading

    threading.Thread(target=announce, daemon=True).start()
    serve_tunnel(settings, Options(**{**options, "tunnel_port": port}), theirs)  # type: ignore[arg-type]
    return 0


def _with_ticket(token: str) -> dict[str, str]:
    from stoker.web.sessions import Keys

    return {"ticket": Keys(token).ticket(time.time())}


def _show(place: ServerAddress, parsed: Parsed) -> None:
    from stoker.web.http.token_file import load_token
    from stoker.web.sessions import Keys

    token = load_token(place.token_file)
    link = f"{place.address}#token={token}"
    if parsed["json"]:
        print_json(running=True, link=link, **place._asdict())
    else:
        print(link)
    if parsed["open"]:
        import webbrowser

        # Other users can read the arguments of the browser: pass a ticket, not the token.
        ticket = Keys(token).ticket(time.time())
        if not webbrowser.open(f"{place.address}#token={ticket}"):
            notice("could not open a browser; use the link")


def _status(settings: Settings, parsed: Parsed) -> int:
    place = living_place(settings.state_dir)
    if place is None:
        if parsed["json"]:
            print_json(running=False)
        else:
            print("the web UI is not running; start it with `stoker web`")
        return 1
    if not parsed["json"]:
        only = ", read-only" if place.read_only else ""
        notice(f"the web UI runs at {place.address} (pid {place.pid}{only})")
    _show(place, parsed)
    return 0


def _stop(settings: Settings, parsed: Parsed) -> int:
    folder = settings.state_dir
    pid = living_pid(folder)
    if pid is not None and pid > 1:
        # The server holds the lock, so this PID has not been reused.
        os.kill(pid, signal.SIGTERM)
        if not _wait_until(lambda: living_pid(folder) != pid):
            raise Unavailable(
                f"the server (pid {pid}) does not stop", f"kill -9 {pid} (no data is lost)"
            )
    if parsed["json"]:
        print_json(pid=pid)
    else:
        print("the web UI is not running" if pid is None else "web UI stopped; jobs continue")
    return 0
