"""A daemon whose policy starts no job while a file exists: `python broken_daemon.py FILE`.

Only the decisions of the loop are broken. The check of the decisions uses the real policy, and runs
five times a second.
"""

from __future__ import annotations

import os
import sys

from stoker.engine.daemon import job_starter, main
from stoker.engine.model import Plan, Snapshot
from stoker.engine.policy.decide import decide


def broken_decide(snapshot: Snapshot, *, with_reasons: bool = True) -> Plan:
    if os.path.exists(sys.argv[1]):
        return Plan((), None, {})
    return decide(snapshot, with_reasons=with_reasons)


if __name__ == "__main__":
    vars(job_starter)["decide"] = broken_decide
    vars(main)["_CHECK_SECONDS"] = 0.2
    main.main()
