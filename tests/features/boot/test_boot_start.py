"""`stoker daemon enable` starts the daemon after a boot; systemd and cron are fake programs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs import pages
from tests.lab import Lab

# Like systemctl, for the commands that Stoker uses: enable creates a link, is-enabled finds it.
SYSTEMCTL = """
echo "$@" >> {folder}/systemctl.log
wants=$XDG_CONFIG_HOME/systemd/user/default.target.wants
case "$2" in
  show) if [ -e {folder}/no-bus ]; then echo 'Failed to connect to bus' >&2; exit 1; fi ;;
  enable) mkdir -p $wants; ln -sf ../$3 $wants/$3 ;;
  disable) rm -f $wants/$3 ;;
  is-enabled) if [ -e $wants/$3 ]; then echo enabled; else echo disabled; exit 1; fi ;;
esac
"""
LOGINCTL = """
case "$1" in
  show-user) if [ -e {folder}/linger ]; then echo yes; else echo no; fi ;;
  enable-linger)
    if [ -e {folder}/no-linger ]; then echo 'Access denied' >&2; exit 1; fi
    touch {folder}/linger ;;
esac
"""
CRONTAB = """
case "$1" in
  -l) cat {folder}/crontab 2>/dev/null || {{ echo 'no crontab for you' >&2; exit 1; }} ;;
  -) cat > {folder}/crontab ;;
esac
"""


class Host:
    """A lab whose PATH has fakes of systemctl, loginctl and crontab, and few other programs."""

    def __init__(self, lab: Lab, *programs: str) -> None:
        self.lab = lab
        self.folder = lab.folder / "host"
        (self.folder / "bin").mkdir(parents=True)
        texts = {"systemctl": SYSTEMCTL, "loginctl": LOGINCTL, "crontab": CRONTAB}
        for name in programs:
            path = self.folder / "bin" / name
            path.write_text("#!/bin/sh\n" + texts[name].format(folder=self.folder))
            path.chmod(0o755)
        for name in ("sh", "cat", "mkdir", "ln", "rm", "touch", "env", "bash", "true"):
            found = next(f for f in ("/bin", "/usr/bin") if os.path.exists(f"{f}/{name}"))
            (self.folder / "bin" / name).symlink_to(f"{found}/{name}")
        lab.env |= {"PATH": str(self.folder / "bin"), "XDG_CONFIG_HOME": str(self.folder / "cfg")}
        lab.env.pop("XDG_RUNTIME_DIR", None)

    @property
    def units(self) -> list[Path]:
        return sorted((self.folder / "cfg" / "systemd" / "user").glob("*.service"))

    @property
    def crontab(self) -> str:
        path = self.folder / "crontab"
        return path.read_text() if path.exists() else ""

    def status(self) -> str:
        return next(line for line in self.lab.run("daemon", "status").stdout.splitlines()
                    if line.startswith("boot "))  # fmt: skip


@pytest.fixture
def host(lab: Lab) -> Host:
    return Host(lab, "systemctl", "loginctl", "crontab")


def test_enable_writes_a_unit_that_starts_this_queue(host: Host) -> None:
    assert host.status() == (
        "boot    not started after a reboot; `stoker daemon enable` changes that"
    )
    said = host.lab.ok("daemon", "enable")
    [unit] = host.units
    assert said == f"the daemon is started after a reboot by systemd ({unit.name})\n"
    assert host.status() == f"boot    started after a reboot by systemd ({unit.name})"
    assert (host.folder / "linger").exists()
    lines = unit.read_text().splitlines()
    for line in ("Type=oneshot", "KillMode=process", "WantedBy=default.target"):
        assert line in lines
    assert not any(line.startswith("Restart=") for line in lines)
    assert f'Environment="STOKER_STATE_DIR={host.lab.state_dir}"' in lines
    assert 'Environment="STOKER_DEVICES=2"' in lines
    # What systemd would do at the next boot:
    [start] = [line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")]
    pairs = [shlex.split(line.removeprefix("Environment="))[0]
             for line in lines if line.startswith("Environment=")]  # fmt: skip
    job = host.lab.submit("--hold", "-G0", "true")
    subprocess.run(shlex.split(start), env=dict(pair.split("=", 1) for pair in pairs), check=True)
    assert host.lab.daemon_pid() is not None
    host.lab.ok("release", str(job))
    assert host.lab.wait(job) == 0


def test_enable_twice_and_disable_leave_nothing(host: Host) -> None:
    host.lab.ok("daemon", "enable")
    before = [unit.read_text() for unit in host.units]
    host.lab.ok("daemon", "enable")
    assert [unit.read_text() for unit in host.units] == before
    assert host.lab.ok("daemon", "disable") == "the daemon is not started after a reboot\n"
    assert host.units == []
    assert not list((host.folder / "cfg").rglob("*.service"))
    said = host.lab.ok("daemon", "disable")
    assert said == "the daemon is not started after a reboot, as before\n"


def test_enable_without_linger_is_refused_and_changes_nothing(host: Host) -> None:
    (host.folder / "no-linger").touch()
    done = host.lab.run("daemon", "enable")
    assert done.returncode == 69
    assert "linger cannot be turned on: Access denied" in done.stderr
    assert "hint: ask an administrator: loginctl enable-linger " in done.stderr
    assert host.units == []


def test_crontab_line_is_added_once_and_other_lines_stay(host: Host) -> None:
    own = "# mine\n0 3 * * * backup 100\\%\n"
    (host.folder / "crontab").write_text(own)
    (host.folder / "no-bus").touch()  # systemctl is there, but the user has no systemd
    assert host.lab.ok("daemon", "enable") == (
        "the daemon is started after a reboot by cron (@reboot)\n"
    )
    host.lab.ok("daemon", "enable")
    assert host.crontab.startswith(own)
    [line] = host.crontab.removeprefix(own).splitlines()
    assert host.status() == "boot    started after a reboot by cron (@reboot)"
    command = line.removeprefix("@reboot ").replace("\\%", "%")
    subprocess.run(["/bin/sh", "-c", command], env={}, check=True)
    assert host.lab.daemon_pid() is not None
    host.lab.ok("daemon", "disable")
    assert host.crontab == own


def test_enable_moves_from_cron_to_systemd_and_back(host: Host) -> None:
    host.lab.ok("daemon", "enable", "--cron")
    assert "@reboot" in host.crontab and not host.units
    host.lab.ok("daemon", "enable")
    assert "@reboot" not in host.crontab and host.units
    found = json.loads(host.lab.ok("daemon", "enable", "--cron", "--json"))
    assert found["after_boot"] == "cron"
    assert "@reboot" in host.crontab and not host.units


def test_host_without_systemd_and_cron_is_refused(lab: Lab) -> None:
    host = Host(lab)
    done = host.lab.run("daemon", "enable")
    assert done.returncode == 69
    assert "no crontab, and systemd cannot be used: there is no systemctl" in done.stderr
    assert "hint: run `stoker daemon start` in a start-up script" in done.stderr
    assert host.lab.run("daemon", "start", "--cron").returncode == 2


def test_doctor_says_whether_the_daemon_is_started_after_a_reboot(host: Host) -> None:
    def finding() -> tuple[str, str]:
        found = json.loads(host.lab.run("doctor", "--json").stdout)["findings"]
        [one] = [one for one in found if "reboot" in one["what"] or "your login" in one["what"]]
        return one["level"], one["hint"]

    assert finding() == ("warn", "stoker daemon enable")
    host.lab.ok("daemon", "enable")
    assert finding()[0] == "ok"
    (host.folder / "linger").unlink()
    assert finding() == ("bad", "loginctl enable-linger")


def test_commands_of_the_page_about_reboots_work(new_lab: Callable[..., Lab]) -> None:
    host = Host(new_lab(devices=2), "systemctl", "loginctl", "crontab")
    programs = f"{pages.environment(host.lab)['PATH'].partition(':')[0]}:{host.lab.env['PATH']}"
    pages.run(host.lab, "reboot.md", PATH=programs)
