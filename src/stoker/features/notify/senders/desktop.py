"""The desktop of this host: `notify-send`, where a session bus is found."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

from stoker.features.notify.senders import SendError

_TIMEOUT_SECONDS = 10.0


def send(url: str, message: dict[str, Any]) -> None:
    """Show the message. Raises SendError, final if there is no desktop session."""
    program = shutil.which("notify-send")
    bus = session_bus()
    if program is None or bus is None:
        missing = "the program notify-send" if program is None else "a desktop session"
        raise SendError(f"this host does not have {missing}", is_final=True)
    is_bad = any(event.get("state") in ("failed", "lost") for event in message["events"])
    command = [
        program,
        "--app-name=Stoker",
        f"--urgency={'critical' if is_bad else 'normal'}",
        "--",
        message["subject"],
        _plain(message["body"]),
    ]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": bus},
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SendError(f"notify-send failed: {error}") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[:200]
        raise SendError(f"notify-send failed with exit code {done.returncode}: {words}", True)


def session_bus() -> str | None:
    """The address of the user's session bus; None if there is none."""
    given = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    if given:
        return given
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    path = os.path.join(folder, "bus")
    return f"unix:path={path}" if os.path.exists(path) else None


def is_available() -> bool:
    """Whether a desktop can be notified from here."""
    return shutil.which("notify-send") is not None and session_bus() is not None


def _plain(text: str) -> str:
    """The body for desktops that read markup in it; a subject is always plain text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
