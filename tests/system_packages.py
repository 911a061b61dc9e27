"""Programs that tests need, and the Debian packages that contain them.

    python3 tests/system_packages.py

As root, installs missing packages through apt and starts none of their services. Otherwise prints
the command that installs them; tests that need them are skipped, and with CI=true they fail. Uses
only the standard library, because it runs before an environment exists.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NamedTuple

POLICY = "/usr/sbin/policy-rc.d"
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Need(NamedTuple):
    """Something that tests need, its packages, and whether it is installed."""

    what: str
    packages: tuple[str, ...]
    is_installed: bool


def needs() -> list[Need]:
    """All system requirements of the tests."""
    programs = ("unshare", "nsenter", "prlimit", "setsid", "setpriv")
    slurm = ("munge", "slurmctld", "slurmd", "slurm-client")
    accounting = ("slurmdbd", "mariadb-server-core", "mariadb-client-core")
    return [
        Need(
            "Python's ensurepip",
            (f"python{_VERSION}-venv",),
            find_spec("ensurepip") is not None,
        ),
        Need("a C compiler", ("gcc", "libc6-dev"), shutil.which("cc") is not None),
        Need("namespaces and limits", ("util-linux",), all(map(shutil.which, programs))),
        Need("host names", ("hostname",), shutil.which("hostname") is not None),
        Need("network interfaces", ("iproute2",), shutil.which("ip") is not None),
        Need("Slurm", slurm, all(map(shutil.which, ("munged", "slurmctld", "slurmd", "sbatch")))),
        Need(
            "Slurm's accounting",
            accounting,
            all(map(shutil.which, ("slurmdbd", "mariadbd", "mariadb-install-db"))),
        ),
        Need("mount", ("mount",), shutil.which("mount") is not None),
        Need("file systems in files", ("e2fsprogs",), shutil.which("mkfs.ext4") is not None),
        Need("a browser", ("chromium", "fonts-dejavu-core"), browser() is not None),
        Need("Firefox", ("firefox-esr",), firefox() is not None),
        Need(
            "an ssh server", ("openssh-server", "openssh-client"), os.path.exists("/usr/sbin/sshd")
        ),
        Need("zsh", ("zsh",), shutil.which("zsh") is not None),
        Need("fish", ("fish",), shutil.which("fish") is not None),
        Need("git", ("git",), shutil.which("git") is not None),
        Need("rsync", ("rsync",), shutil.which("rsync") is not None),
        Need("other locales", ("locales",), _has_locale_sources()),
        Need("CPython's own tests", (f"libpython{_VERSION}-testsuite",), bool(cpython_tests())),
    ]


def browser() -> str | None:
    """The path of Chromium; the variable CHROMIUM overrides it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def firefox() -> str | None:
    """The path of Firefox; the variable FIREFOX overrides it."""
    return os.environ.get("FIREFOX") or next(
        filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None
    )


def _has_locale_sources() -> bool:
    sources = glob.glob("/usr/share/i18n/locales/en_US*")
    return shutil.which("localedef") is not None and bool(sources)


def cpython_tests() -> str | None:
    """The folder with CPython's tests of `concurrent.futures`, from this Python or from Debian."""
    own = os.path.join(os.path.dirname(os.__file__), "test")
    for folder in (own, f"/usr/lib/python{_VERSION}/test"):
        # It is a file or a package, depending on the version.
        if glob.glob(os.path.join(folder, "test_concurrent_futures*")):
            return folder
    return None


def missing() -> list[Need]:
    return [need for need in needs() if not need.is_installed]


def hint() -> str | None:
    """The command that installs the missing packages; None if nothing is missing."""
    packages = [package for need in missing() for package in need.packages]
    sudo = "" if os.geteuid() == 0 else "sudo "
    install = f"{sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends"
    return f"{install} {' '.join(packages)}" if packages else None


def _install(wanted: list[Need]) -> None:
    """Install each need separately, so that a package that does not exist affects only itself."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=env, stdin=subprocess.DEVNULL)
    with services_not_started():
        for need in wanted:
            print(f"installing {need.what}: {' '.join(need.packages)}", flush=True)
            words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *need.packages]
            subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@contextmanager
def services_not_started() -> Iterator[None]:
    """Packages do not start their services during the block: the tests start their own.

    Debian's packages ask the program policy-rc.d; 101 means that the action is not allowed.
    """
    try:
        file = os.open(POLICY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except OSError:  # the administrator has a policy already
        yield
        return
    with open(file, "w") as policy:
        policy.write("#!/bin/sh\nexit 101\n")
    try:
        yield
    finally:
        os.unlink(POLICY)


def main() -> int:
    if missing() and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _install(missing())
    if not missing():
        return 0
    print(f"not installed: {', '.join(need.what for need in missing())}")
    print(f"hint: {hint()}")
    return 1 if os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    raise SystemExit(main())
