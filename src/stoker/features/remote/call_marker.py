"""`stoker` on a box, as ssh started it: report exit code 255, and notice a lost connection.

ssh itself exits with 255 when the connection fails. A command that exits with 255 leaves a marker
file, by which the caller can tell the two apart.
"""

from __future__ import annotations

import os
import select
import signal
import threading

from stoker.features.remote.remote_command import EXIT_255, HANG_UP


class CallMarker:
    """What the variable STOKER_REMOTE_CALL says about this process."""

    def __init__(self, text: str) -> None:
        mode, _, self._path = text.partition(":")
        if mode == HANG_UP and not os.isatty(1):
            # sshd sends SIGHUP only to commands with a terminal.
            threading.Thread(target=_hang_up_with_stdout, daemon=True).start()

    def exit(self, code: int) -> int:
        """Record the exit code if ssh would confuse it with its own; returns the code."""
        if code == 255 and self._path:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with open(os.open(self._path, flags, 0o600), "w", encoding="ascii") as file:
                    file.write(f"{EXIT_255}\n")
            except OSError:
                pass  # the caller then reports a lost connection
        return code


def _hang_up_with_stdout() -> None:
    """Send this process SIGHUP when nothing can read its stdout any more."""
    poll = select.poll()
    poll.register(1, 0)  # POLLERR and POLLHUP are always reported
    poll.poll()
    os.kill(os.getpid(), signal.SIGHUP)
