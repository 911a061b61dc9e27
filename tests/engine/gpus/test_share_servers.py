"""Stoker without the feature for MPS: jobs share GPUs by time slices."""

from __future__ import annotations

import pytest

from stoker.engine.daemon.gpus.share_servers import find_servers
from stoker.engine.model import MPS, Device, DeviceState, Request
from stoker.engine.policy.share_mode import share_of_start


def test_job_that_wants_mps_starts_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.features.SHARE_SERVERS", {})
    servers = find_servers(30.0)
    device = Device(0, "0", uuid="GPU-1", pci="0000:01:00.0")
    request = Request(gpus=1, share=MPS)
    state = DeviceState(mps_problem=servers.problem(device.uuid))
    assert share_of_start(request, (0,), (device,), {0: DeviceState()}) == MPS
    assert share_of_start(request, (0,), (device,), {0: state}) == ""
    assert state.mps_problem == "this installation of Stoker has no MPS"
    assert servers.failures() == {}  # the daemon does not report it for every GPU
