"""Ports for the rendezvous of jobs with several GPUs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from stoker.engine.devices.leases import port_lease
from stoker.engine.devices.leases.port_lease import take_port


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path))


def test_leased_ports_differ_until_they_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_lease, "_LAST", port_lease._FIRST + 3)
    held: dict[int, int] = {}
    while (found := take_port())[1] is not None:
        assert found[0] not in held
        held[found[0]] = found[1]
    assert held and found[0] not in held  # an ephemeral port when all others are leased
    for descriptor in held.values():
        os.close(descriptor)
    port, again = take_port()
    assert port in held and again is not None
    os.close(again)


def test_port_with_a_listener_is_not_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(port_lease, "_FIRST", port)
        monkeypatch.setattr(port_lease, "_LAST", port)
        assert take_port()[0] != port


def test_port_is_found_without_lock_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "file"))
    found = take_port()
    assert found[1] is None
