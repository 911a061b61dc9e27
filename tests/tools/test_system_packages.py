"""The script that installs programs for the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import system_packages


def test_packages_may_not_start_services_while_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(system_packages, "POLICY", str(policy))
    with system_packages.services_not_started():
        assert subprocess.call([policy, "munge", "start"]) == 101
    assert not policy.exists()


def test_policy_of_the_administrator_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("own")
    monkeypatch.setattr(system_packages, "POLICY", str(policy))
    with system_packages.services_not_started():
        assert policy.read_text() == "own"
    assert policy.read_text() == "own"
