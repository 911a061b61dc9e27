"""The page with the true server and daemon behind it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from tests.lab import Lab
from tests.web_ui.conftest import Scenario


@pytest.mark.slow
def test_from_nothing_to_a_finished_sweep(scenario: Scenario, new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=2)
    said = lab.ok("web")
    link = re.search(r"http://\S+#token=\S+", said)
    assert link is not None, said
    try:
        scenario("real", link[0], **{**lab.env, "STOKER_PYTHON": sys.executable})
    finally:
        lab.run("web", "stop")
