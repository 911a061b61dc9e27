"""The web UI in a real browser, with a fake server that can be put into any state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web_ui.conftest import Scenario

_ALL = sorted(file.stem for file in (Path(__file__).parent / "scenarios").glob("*.mjs"))


@pytest.mark.parametrize("name", [name for name in _ALL if not name.startswith("real")])
def test_scenario_passes_in_a_browser(scenario: Scenario, name: str) -> None:
    scenario(name)


@pytest.mark.release
def test_every_screen_works_in_firefox(scenario: Scenario) -> None:
    scenario("all_screens", BROWSER="firefox")
