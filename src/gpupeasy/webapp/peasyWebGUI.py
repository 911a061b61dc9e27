"""`GPUPeasyWebGUI`, for start scripts that users have edited."""

from __future__ import annotations

import sys

from stoker.compat.gpupeasy.main import main


class GPUPeasyWebGUI:
    def __init__(self, coreHost: str, corePort: str | int, debug: bool = False) -> None:
        self._words = ["gui", "--backend-host", coreHost, "--backend-port", str(corePort)]

    def run(self, host: str, port: str | int) -> None:
        """Serve until a signal. `0.0.0.0` is replaced by 127.0.0.1, for this user only."""
        if host == "0.0.0.0":
            print(
                "listening on 127.0.0.1 only; for other addresses see `gpupeasy gui --help`",
                file=sys.stderr,
            )
            host = "127.0.0.1"
        code = main([*self._words, "--host", host, "--port", str(port)])
        if code:
            sys.exit(code)
