"""The daemon without what features add to it."""

from __future__ import annotations

import subprocess
import sys

from tests.lab import Lab

BARE_DAEMON = """
from stoker import features
for table in (features.DAEMON_HELPERS, features.TRIAL_ENDS, features.ORDER_HOOKS):
    table.clear()
from stoker.engine.daemon.main import main
main()
"""


def test_daemon_without_features_runs_jobs(lab: Lab) -> None:
    daemon = subprocess.Popen([sys.executable, "-P", "-c", BARE_DAEMON], env=lab.env)
    lab.wait_until(lambda: lab.daemon_pid() == daemon.pid)
    job = lab.submit("echo", "hello")
    assert lab.wait(job) == 0 and lab.log(job) == "hello\n"
    assert lab.daemon_pid() == daemon.pid
    daemon.terminate()
    assert daemon.wait() == 0
