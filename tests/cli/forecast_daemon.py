"""A daemon that makes forecasts at once: `python forecast_daemon.py FILE NUMBER`.

It creates FILE when it has forecasts for NUMBER jobs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stoker.daemon import forecast_log, main


class _Log(forecast_log.ForecastLog):
    def update(self, now: float) -> None:
        super().update(now)
        if len(self._pending) >= int(sys.argv[2]):
            Path(sys.argv[1]).touch()


if __name__ == "__main__":
    vars(forecast_log)["_INTERVAL_SECONDS"] = 0.02
    vars(main)["ForecastLog"] = _Log
    main.main()
