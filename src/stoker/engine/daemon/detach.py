"""Starts the daemon as an orphan: fork and exit, so that init adopts the child."""

from __future__ import annotations

import os

if os.fork() == 0:
    os.chdir("/")
    from stoker.engine.daemon.main import main

    main()
