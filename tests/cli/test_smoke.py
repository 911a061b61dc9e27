"""One job from submit to done."""

from __future__ import annotations

from tests.lab import Lab


def test_submitted_command_runs_and_its_output_is_kept(lab: Lab) -> None:
    job = lab.submit("echo hello from gpu $CUDA_VISIBLE_DEVICES")
    assert lab.wait(job) == 0
    assert lab.log(job) == "hello from gpu 0\n"
