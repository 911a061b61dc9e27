"""Start the daemon after a boot: a systemd user unit, or an `@reboot` line in the crontab.

The unit only starts the daemon (`Type=oneshot`): daemon and runner restart each other, and a second
program that restarts them would fight with that. `KillMode=process` keeps systemd from killing jobs
when the unit is stopped or restarted. The user's systemd runs from boot to shutdown only with
linger; without it, it would start the daemon at the first login and kill jobs at the last logout.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys

from stoker.errors import Unavailable
from stoker.record import Record
from stoker.settings import Settings, default_state_dir
from stoker.text.commands.shell_words import quote

SYSTEMD, CRON = "systemd", "cron"
_SECONDS = 30.0
# Variables that select or configure the queue; others belong to a client, a job or a test.
_NOT_PASSED = ("STOKER_JOB_", "STOKER_HOST", "STOKER_CONTEXT", "STOKER_BOOT_ID", "STOKER_STATE_DIR")
_PASSED = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")


class BootStart(Record):
    """How the daemon is started after a boot."""

    how: str | None  # systemd, cron, or None: not at all
    name: str = ""  # of the unit
    lingers: bool | None = None  # None: unknown, or not needed

    def words(self) -> str:
        if self.how is None:
            return "not started after a reboot; `stoker daemon enable` changes that"
        if self.how == CRON:
            return "started after a reboot by cron (@reboot)"
        if self.lingers is False:
            return f"started at the next login by systemd ({self.name}); linger is off"
        return f"started after a reboot by systemd ({self.name})"


# -- what is there now -----------------------------------------------------------------------------


def boot_start(settings: Settings) -> BootStart:
    """How the daemon of this queue is started after a boot."""
    name = unit_name(settings)
    has_unit = os.path.exists(_unit_path(name)) and shutil.which("systemctl")
    if has_unit and _run("systemctl", "--user", "is-enabled", name)[1].strip() == "enabled":
        return BootStart(SYSTEMD, name, lingers())
    lines = _crontab() if shutil.which("crontab") else None
    if lines and any(line.endswith(_mark(settings)) for line in lines):
        return BootStart(CRON)
    return BootStart(None)


def known_boot_start(settings: Settings) -> BootStart:
    """As `boot_start`; not at all if the crontab cannot be read."""
    try:
        return boot_start(settings)
    except Unavailable:
        return BootStart(None)


def set_boot_start(
    settings: Settings, is_enabled: bool, *, use_cron: bool
) -> tuple[BootStart, str]:
    """Start the daemon after each boot, or not any more; returns the result, also in words."""
    if is_enabled:
        found = enable(settings, use_cron=use_cron)
        return found, f"the daemon is {found.words()}"
    removed = disable(settings)
    as_before = "" if removed else ", as before"
    return BootStart(None), f"the daemon is not started after a reboot{as_before}"


def lingers() -> bool | None:
    """Whether the user's systemd runs without a login; None if that is not known."""
    if not shutil.which("loginctl"):
        return None
    code, text, _ = _run("loginctl", "show-user", _user(), "--property=Linger", "--value")
    if code:  # loginctl knows only users who are logged in or linger
        return os.path.exists(f"/var/lib/systemd/linger/{_user()}")
    return {"yes": True, "no": False}.get(text.strip())


# -- changes ---------------------------------------------------------------------------------------


def enable(settings: Settings, *, use_cron: bool = False) -> BootStart:
    """Start the daemon after each boot. Raises Unavailable if neither systemd nor cron can."""
    problem = "not asked for" if use_cron else _systemd_problem()
    if problem is None:
        _enable_unit(settings)
        _remove_line(settings)
    elif shutil.which("crontab"):
        _add_line(settings)
        _remove_unit(settings)
    else:
        if use_cron:
            raise Unavailable("there is no `crontab` on this host", "install cron")
        raise Unavailable(
            f"this host has no crontab, and systemd cannot be used: {problem}",
            "run `stoker daemon start` in a start-up script of this host",
        )
    return boot_start(settings)


def disable(settings: Settings) -> bool:
    """Do not start the daemon after a boot; returns whether anything was removed."""
    removed = _remove_unit(settings)
    return _remove_line(settings) or removed


def _systemd_problem() -> str | None:
    """Why the user's systemd cannot be used; None if it can."""
    if not shutil.which("systemctl"):
        return "there is no systemctl"
    code, _, said = _run("systemctl", "--user", "show", "--property=Version")
    return None if code == 0 else _first_line(said) or f"systemctl exited with {code}"


def _enable_unit(settings: Settings) -> None:
    if lingers() is False:
        code, _, said = _run("loginctl", "enable-linger")
        if code or lingers() is False:
            raise Unavailable(
                f"systemd would stop your jobs at logout, and linger cannot be turned on:"
                f" {_first_line(said) or 'loginctl changed nothing'}",
                f"ask an administrator: loginctl enable-linger {_user()}; or use a crontab:"
                " stoker daemon enable --cron",
            )
    name = unit_name(settings)
    path = _unit_path(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(unit_text(settings))
    os.replace(temporary, path)
    _run("systemctl", "--user", "daemon-reload")
    code, _, said = _run("systemctl", "--user", "enable", name)
    if code:
        os.unlink(path)
        raise Unavailable(
            f"systemctl cannot enable {name}: {_first_line(said)}",
            "use a crontab: stoker daemon enable --cron",
        )


def _remove_unit(settings: Settings) -> bool:
    name = unit_name(settings)
    path = _unit_path(name)
    if not os.path.exists(path):
        return False
    if shutil.which("systemctl"):
        _run("systemctl", "--user", "disable", name)
    wanted = os.path.join(os.path.dirname(path), "default.target.wants", name)
    for one in (wanted, path):
        if os.path.lexists(one):
            os.unlink(one)
    if shutil.which("systemctl"):
        _run("systemctl", "--user", "daemon-reload")
    return True


# -- the unit --------------------------------------------------------------------------------------


def unit_name(settings: Settings) -> str:
    """`stoker.service`, or a name of its own for a queue in another folder."""
    if settings.state_dir == default_state_dir():
        return "stoker.service"
    digest = hashlib.sha256(os.fsencode(settings.state_dir)).hexdigest()[:8]
    return f"stoker-{digest}.service"


def unit_text(settings: Settings) -> str:
    start, stop = (
        " ".join(map(_unit_word, (*_stoker(), "daemon", verb))) for verb in ("start", "stop")
    )
    variables = "\n".join(
        f"Environment={_unit_word(f'{key}={value}', is_command=False)}"
        for key, value in _environment(settings).items()
    )
    return f"""\
[Unit]
Description=Stoker job queue in {settings.state_dir.replace("%", "%%")}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={start}
ExecStop={stop}
KillMode=process
{variables}

[Install]
WantedBy=default.target
"""


def _unit_word(text: str, *, is_command: bool = True) -> str:
    """A word of a unit file, in which `%` and, in commands, `$` have a meaning."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text.replace("$", "$$") if is_command else text}"'


def _unit_path(name: str) -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "systemd", "user", name)


def _stoker() -> tuple[str, ...]:
    """The command that runs this installation of Stoker."""
    return sys.executable, "-P", "-m", "stoker"


def _environment(settings: Settings) -> dict[str, str]:
    """The variables of the daemon: the queue, and the settings in the environment."""
    found = {
        key: value
        for key, value in sorted(os.environ.items())
        if key in _PASSED or (key.startswith("STOKER_") and not key.startswith(_NOT_PASSED))
    }
    return {"STOKER_STATE_DIR": settings.state_dir, **found}


# -- the crontab -----------------------------------------------------------------------------------


def cron_line(settings: Settings) -> str:
    """The line of the crontab. Its comment marks it as that of this queue."""
    variables = [f"{key}={quote(value)}" for key, value in _environment(settings).items()]
    words = [*variables, *map(quote, _stoker()), "daemon", "start"]
    command = " ".join(words).replace("%", "\\%")  # cron ends the command at a percent sign
    return f"@reboot {command} >/dev/null 2>&1 {_mark(settings)}"


def _mark(settings: Settings) -> str:
    digest = hashlib.sha256(os.fsencode(settings.state_dir)).hexdigest()[:16]
    return f"# stoker daemon enable {digest}"


def _crontab() -> list[str]:
    """The lines of the user's crontab. Raises Unavailable if it cannot be read."""
    code, text, said = _run("crontab", "-l")
    if code and "no crontab" not in said:
        raise Unavailable(f"cannot read your crontab: {_first_line(said) or f'exit code {code}'}")
    return [] if code else text.split("\n")


def _add_line(settings: Settings) -> None:
    before = _crontab()
    kept = [line for line in before if not line.endswith(_mark(settings))]
    while kept and not kept[-1]:
        kept.pop()
    _write_crontab(before, [*kept, cron_line(settings), ""])


def _remove_line(settings: Settings) -> bool:
    if not shutil.which("crontab"):
        return False
    before = _crontab()
    kept = [line for line in before if not line.endswith(_mark(settings))]
    _write_crontab(before, kept)
    return kept != before


def _write_crontab(before: list[str], lines: list[str]) -> None:
    if lines == before:
        return
    code, _, said = _run("crontab", "-", given="\n".join(lines))
    if code:
        raise Unavailable(f"cannot change your crontab: {_first_line(said)}")


# -- programs --------------------------------------------------------------------------------------


def _run(*words: str, given: str = "") -> tuple[int, str, str]:
    """Run a program; returns its exit code, output and errors."""
    env = {**os.environ, "LC_ALL": "C"}
    runtime = f"/run/user/{os.getuid()}"
    if "XDG_RUNTIME_DIR" not in env and os.path.isdir(runtime):
        env["XDG_RUNTIME_DIR"] = runtime  # where systemctl finds the user's systemd
    try:
        done = subprocess.run(
            words,
            input=given.encode("utf-8", "surrogateescape"),
            capture_output=True,
            env=env,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    out, said = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
    return done.returncode, out, said


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or str(os.getuid())
