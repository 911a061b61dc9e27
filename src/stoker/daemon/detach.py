"""Between the client and the daemon: a fork whose parent leaves, so that init adopts the daemon."""

from __future__ import annotations

import os

if os.fork() == 0:
    os.chdir("/")
    from stoker.daemon.main import main

    main()
