"""Chat services through Apprise: Slack, Discord, Telegram, ntfy and many others."""

from __future__ import annotations

import logging
from typing import Any

from stoker.features.notify.senders import SendError

INSTALL_HINT = "install it: pip install 'stoker[notify]'"


def is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("apprise") is not None


def is_valid(url: str) -> bool:
    """Whether Apprise knows the form of the address. Needs Apprise."""
    import apprise

    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def send(url: str, message: dict[str, Any]) -> None:
    """Send with Apprise. Raises SendError with what Apprise logged."""
    if not is_installed():
        raise SendError(f"this place needs Apprise; {INSTALL_HINT}", is_final=True)
    import apprise

    log = _Log()
    logger = logging.getLogger("apprise")
    logger.addHandler(log)
    logger.propagate = False
    try:
        target = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if target is None:
            raise SendError("Apprise does not know this form of address", is_final=True)
        is_bad = any(event.get("state") in ("failed", "lost") for event in message["events"])
        kind = apprise.NotifyType.FAILURE if is_bad else apprise.NotifyType.INFO
        is_sent = target.notify(
            title=message["subject"],
            body=message["body"] or message["subject"],
            notify_type=kind,
            body_format=apprise.NotifyFormat.TEXT,
        )
    finally:
        logger.removeHandler(log)
    if not is_sent:
        words = "; ".join(log.lines)[:300]
        raise SendError(f"Apprise could not send it: {words}" if words else "Apprise failed")


class _Log(logging.Handler):
    """Keeps warnings and errors, to show them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
