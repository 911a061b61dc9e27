"""The command line that ssh sends to a box to run `stoker` there.

sshd gives it to the user's login shell, whatever that is. So it is base64 of a script for /bin/sh,
which only contains characters that mean the same in every shell. The script starts the login shell
again with `-l`, for the PATH and environment that the user has after `ssh BOX`, discards what the
profile prints, and runs `stoker`.
"""

from __future__ import annotations

import base64
import os
import select
import shlex
import signal
import threading
from collections.abc import Iterable, Mapping

from stoker.errors import UsageError
from stoker.features.remote.boxes import Box
from stoker.record import Record

CALL = "STOKER_REMOTE_CALL"  # tells `stoker` that it was started by the script below
KEEP, HANG_UP = "keep", "hang-up"
_MAX_BYTES = 96 << 10  # Linux limits one argument to 128 KiB, and base64 adds a third

# Words that the script or `stoker` leave in the marker file; ssh exits with 255 then.
NO_STOKER, NO_FOLDER, EXIT_255 = "no-stoker", "no-folder", "255"

_LOGIN = """\
exec 3<&0 4>&1 5>&2
_STOKER_SCRIPT={script}
_STOKER_PATH=$PATH
export _STOKER_SCRIPT _STOKER_PATH
case ${{SHELL##*/}} in
sh|bash|dash|zsh|ksh|mksh|ash|fish)
  exec "$SHELL" -l -c 'exec /bin/sh -c "$_STOKER_SCRIPT"' </dev/null >/dev/null 2>&1 ;;
esac
exec /bin/sh -c "$_STOKER_SCRIPT"
"""
# The variables of this ssh connection are not for jobs, and would differ between two submits.
_RUN = """\
path=$_STOKER_PATH
unset _STOKER_SCRIPT _STOKER_PATH SSH_CLIENT SSH_CONNECTION SSH_TTY XDG_SESSION_ID
exec <&3 >&4 2>&5 3<&- 4>&- 5>&-
mark=$HOME/.stoker-exit-{nonce}
fail() {{ echo "$1" > "$mark"; exit 255; }}
cd {folder} 2>/dev/null || fail no-folder
stoker={stoker}
[ -n "$stoker" ] || stoker=$(command -v stoker) || stoker=$(PATH=$path; command -v stoker) ||
  stoker=$HOME/.local/bin/stoker
[ -x "$stoker" ] || fail no-stoker
export {variables}
exec "$stoker" {words}
"""


class RemoteCall(Record):
    """One run of `stoker` on a box."""

    words: tuple[str, ...]
    nonce: str  # of the marker file, see `marker_query`
    folder: str | None = None  # None: the folder of the box
    hangs_up: bool = False  # end the command when the connection is lost


def command_text(box: Box, call: RemoteCall, env: Mapping[str, str]) -> str:
    """The text for ssh that runs a call in the environment of a login shell.

    Raises UsageError if it is too long for the kernel.
    """
    mark = f'"$HOME/.stoker-exit-{call.nonce}"'
    variables = [f"{CALL}={HANG_UP if call.hangs_up else KEEP}:{mark}"]
    variables += [f"{key}={shlex.quote(value)}" for key, value in sorted(env.items())]
    script = _RUN.format(
        nonce=call.nonce,
        folder=quote_path(call.folder or box.dir or "~"),
        stoker=quote_path(box.stoker) if box.stoker else "",
        variables=" ".join(variables),
        words=quote_words(call.words),
    )
    return shell_text(_LOGIN.format(script=shlex.quote(script)))


def shell_text(script: str) -> str:
    """A script for /bin/sh as a command line for any login shell."""
    data = os.fsencode(script)
    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"the command is too long for ssh: {len(data):,} bytes",
            "send the jobs as a file: stoker submit -f - < jobs.txt",
        )
    text = base64.b64encode(data).decode()
    return f"""exec /bin/sh -c 'eval "$(echo {text} | base64 -d)"'"""


def marker_query(nonce: str) -> str:
    """The text for ssh that prints and removes the marker file of a call."""
    path = f'"$HOME/.stoker-exit-{nonce}"'
    return shell_text(f"cat {path} && rm -f {path}")


def quote_words(words: Iterable[str]) -> str:
    """The words quoted for /bin/sh; $HOME is not expanded in them."""
    return " ".join(map(shlex.quote, words))


def quote_path(path: str) -> str:
    """A path for /bin/sh, in which a leading `~` is the home folder.

    >>> quote_path("~/my runs"), quote_path("/data"), quote_path("~")
    ('"$HOME"/\\'my runs\\'', '/data', '"$HOME"')
    """
    if path in ("~", "~/"):
        return '"$HOME"'
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(path)


# `stoker` on a box, as ssh started it: report exit code 255, and notice a lost connection.
#
# ssh itself exits with 255 when the connection fails. A command that exits with 255 leaves a marker
# file, by which the caller can tell the two apart.


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
