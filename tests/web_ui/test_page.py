"""The page in a real browser, against a server that can be brought into any state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web_ui.conftest import Scenario

_ALL = sorted(file.stem for file in (Path(__file__).parent / "scenarios").glob("*.mjs"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in _ALL if name != "real"])
def test_scenario(scenario: Scenario, name: str) -> None:
    scenario(name)
