"""The web UI with the real server and daemon."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from tests.lab import Lab
from tests.web_ui.conftest import Scenario


@pytest.mark.slow
def test_user_submits_a_sweep_and_sees_its_results(
    scenario: Scenario, new_lab: Callable[..., Lab]
) -> None:
    lab = new_lab(devices=2)
    output = lab.ok("web")
    link = re.search(r"http://\S+#token=\S+", output)
    assert link is not None, output
    try:
        scenario("real_server", link[0], **{**lab.env, "STOKER_PYTHON": sys.executable})
    finally:
        lab.run("web", "stop")
