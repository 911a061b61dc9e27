"""The daemon as clients see it: its PID, its problem, the devices it uses."""

from __future__ import annotations

from stoker.engine.model import Device, HostResources
from stoker.engine.store import host_resources, meta
from stoker.engine.store.database import Database
from stoker.engine.store.device_settings import load_devices
from stoker.engine.supervisor import locks
from stoker.settings import Settings

_ANSWER_SECONDS = 0.5


def daemon_pid(folder: str) -> int | None:
    return locks.holder(folder, locks.DAEMON_LOCK)


def why_not_running(folder: str) -> str | None:
    """Why the daemon starts no jobs: it is not running or suspended; None if it is running."""
    from stoker.engine.supervisor.process_table import STOPPED, process_state

    pid = daemon_pid(folder)
    if pid is None:
        return "no daemon is running; `stoker daemon start` starts one"
    if process_state(pid) == STOPPED:
        return f"the daemon is suspended; `kill -CONT {pid}` continues it"
    runner = runner_pid(folder)
    if runner is not None and process_state(runner) == STOPPED:
        return f"the runner is suspended; `kill -CONT {runner}` continues it"
    return None


def problem(folder: str) -> str | None:
    """The problem for which the daemon cannot start or record jobs now; None if it has none."""
    import select

    from stoker.engine.daemon.wake import CHANGES_SOCKET
    from stoker.engine.supervisor.sockets import connect

    try:
        stream = connect(folder, CHANGES_SOCKET)
    except OSError:
        return None
    with stream:
        if not select.select([stream], [], [], _ANSWER_SECONDS)[0]:
            return None  # busy or suspended; see `why_not_running`
        try:
            text = stream.recv(4096).decode("utf-8", "replace")
        except OSError:
            return None
    return text[1:].partition("\n")[0] if text[:1] == "!" else None


def runner_pid(folder: str) -> int | None:
    return locks.holder(folder, locks.RUNNER_LOCK)


def known_resources(db: Database, settings: Settings) -> HostResources:
    """The host resources of the running daemon, or those that a new daemon would find."""
    found = None
    if daemon_pid(settings.state_dir) is not None:
        found = host_resources.published(db)
    if found is None:
        from stoker.engine.supervisor.host_size import host_resources as size_of_host

        found = size_of_host(settings)
    return found


def known_devices(db: Database, settings: Settings) -> tuple[Device, ...]:
    """The devices of the running daemon, or those that a new daemon would find.

    Raises UsageError if the setting `devices` is not a list of devices.
    """
    if settings.devices:
        from stoker.engine.devices.discovery import simulated

        simulated(settings.devices)
    if daemon_pid(settings.state_dir) is not None and meta.get_meta(db, "cpu_slots") is not None:
        return load_devices(db)
    from stoker.engine.devices.discovery import find_devices

    return find_devices(settings.devices, settings.gpus_by_uuid)
