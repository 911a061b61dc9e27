"""Sweeps have every job option that many jobs can share."""

from __future__ import annotations

from stoker.client.job_options import JOB_OPTIONS, read_options
from stoker.sweep_control import lifecycle
from stoker.sweeps import spec

# Fields of JobSpec that differ between the jobs of a sweep, or that the sweep sets itself.
_OF_ONE_JOB = {"name", "dedupe", "fair_share_group"}


def test_sweep_files_accept_every_option_that_many_jobs_can_share() -> None:
    shared = {option.key for option in JOB_OPTIONS if not option.is_single}
    assert set(spec.RESOURCES) == shared - {"tags"} | {"tag"}


def test_stored_sweep_has_every_field_that_its_jobs_share() -> None:
    assert set(lifecycle._OF_BASE) == set(read_options({}).fields) - _OF_ONE_JOB
