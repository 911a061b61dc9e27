"""Forms offer every option of a job."""

from __future__ import annotations

from stoker.client.submit.job_options import BY_KEY, JOB_OPTIONS
from stoker.web.option_forms import JobOptions, SingleOptions

_OF_A_SHELL = {"env_file"}  # reads a file of the submitter's folder, which a browser does not have


def test_form_of_a_job_has_every_option() -> None:
    assert set(SingleOptions.model_fields) == set(BY_KEY) - _OF_A_SHELL


def test_form_of_a_sweep_has_every_option_that_many_jobs_can_share() -> None:
    shared = {option.key for option in JOB_OPTIONS if not option.is_single}
    assert set(JobOptions.model_fields) == shared - _OF_A_SHELL
