"""The web UI with the real server and daemon."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from tests.lab import Lab
from tests.web_ui.conftest import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("name", ["real_server", "real_log"])
def test_scenario_passes_with_the_real_server(
    scenario: Scenario, new_lab: Callable[..., Lab], name: str
) -> None:
    lab = new_lab(devices=2)
    output = lab.ok("web")
    link = re.search(r"http://\S+#token=\S+", output)
    assert link is not None, output
    env = {**lab.env, "STOKER_PYTHON": sys.executable, "LOG_FOLDER": str(lab.folder)}
    try:
        scenario(name, link[0], **env)
    finally:
        lab.run("web", "stop")
