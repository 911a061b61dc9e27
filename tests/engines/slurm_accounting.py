"""Accounting of a Slurm cluster for tests: slurmdbd with a private MariaDB server.

The server checks no passwords; it is reached only through a socket in a folder that only root can
enter.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.engines.loopback import LOCALHOST

_LOG_SIZE = "--innodb-log-file-size=8M"


def has_accounting() -> bool:
    """Whether slurmdbd and MariaDB are installed."""
    return all(map(shutil.which, ("slurmdbd", "mariadbd", "mariadb-install-db")))


def database_command(folder: Path) -> list[str]:
    """The command that starts the database server."""
    return [
        "mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={folder}/database",
        f"--socket={folder}/database/server.sock",
        "--skip-grant-tables",
        "--skip-networking",
        "--innodb-buffer-pool-size=16M",
        _LOG_SIZE,
    ]


def database_environment(folder: Path) -> dict[str, str]:
    """Where the client library in slurmdbd finds the server: its configuration cannot say that."""
    return {"MYSQL_UNIX_PORT": f"{folder}/database/server.sock"}


def settings(folder: Path, port: int) -> dict[str, str | int]:
    """Lines of slurm.conf."""
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": LOCALHOST,
        "AccountingStoragePort": port,
        # Needed with a private munge socket, or authentication fails.
        "AccountingStoragePass": f"{folder}/run/munge.sock",
        "AccountingStorageTRES": "gres/gpu",
        "JobAcctGatherType": "jobacct_gather/linux",
    }


def write_files(folder: Path, port: int) -> None:
    """Write slurmdbd.conf and create an empty database."""
    (folder / "database").mkdir(mode=0o700)
    # slurmdbd stores procedures, for which the server needs its system tables.
    words = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}/database"]
    words += ["--skip-test-db", "--auth-root-authentication-method=normal", _LOG_SIZE]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    path = folder / "etc" / "slurmdbd.conf"
    path.touch(0o600)
    path.write_text(
        f"""AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
DbdHost=control
DbdAddr={LOCALHOST}
DbdPort={port}
SlurmUser=root
PidFile={folder}/run/slurmdbd.pid
CommunicationParameters=NoInAddrAny
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=accounting
"""
    )
