"""`GPUPeasyServer`, for start scripts that users have edited."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stoker.compat.gpupeasy.main import run_server


class GPUPeasyServer:
    """`debug` and `wakesec` are accepted and ignored: the server does not poll."""

    def __init__(
        self,
        gpuList: Sequence[str],
        logdir: str | None = None,
        debug: bool = False,
        wakesec: int = 5,
    ) -> None:
        self._devices = [str(gpu) for gpu in gpuList]
        self._logdir = logdir

    def run(self, host: str, port: str | int) -> None:
        """Serve until a signal. `0.0.0.0` is replaced by 127.0.0.1, for this user only."""
        if host == "0.0.0.0":
            print(
                "listening on 127.0.0.1 only; for other addresses see `gpupeasy server --help`",
                file=sys.stderr,
            )
            host = "127.0.0.1"
        code = run_server(host, port, self._devices, self._logdir)
        if code:
            sys.exit(code)
