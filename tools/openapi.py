"""Print the OpenAPI document of `stoker web` as JSON, without starting a server.

frontend/types.mjs generates the TypeScript types of the web UI from it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from fastapi import FastAPI

from stoker.web.app import ROUTERS


def document() -> dict[str, object]:
    app = FastAPI(title="Stoker")
    for router in ROUTERS:
        app.include_router(router)
    return app.openapi()


if __name__ == "__main__":
    print(json.dumps(document()))
