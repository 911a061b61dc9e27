"""Sweeps have every job option that many jobs can share."""

from __future__ import annotations

from stoker.client.submit.job_options import JOB_OPTIONS, as_flag, file_values
from stoker.client.submit.parsed_options import make_spec, parse_options, read_options
from stoker.client.submit.spec_options import options_of_spec
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import Context, Device, JobSpec, Request
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.spec import spec
from stoker.settings import load_settings
from stoker.text.activation import Activation, activation_words
from tests.lab import Lab
from tests.python.conftest import here as here

# Fields of JobSpec that differ between the jobs of a sweep, or that the sweep sets itself.
_OF_ONE_JOB = {"name", "dedupe", "fair_share_group"}


def test_sweep_files_accept_every_option_that_many_jobs_can_share() -> None:
    shared = {option.key for option in JOB_OPTIONS if not option.is_single}
    assert set(spec.RESOURCES) == shared - {"tags"} | {"tag"}


def test_stored_sweep_has_every_field_that_its_jobs_share() -> None:
    shared = set(read_options({}).fields)
    assert set(lifecycle._OF_BASE) == shared - _OF_ONE_JOB


def test_options_of_a_stored_job_make_the_same_job_again(here: Lab) -> None:
    settings = load_settings()
    given = {
        "gpus": 1, "gpu_mem": "20G", "gpu_ids": ["0", "2"], "prefer": ["2"], "gpu_model": "sim",
        "min_gpu_mem": "1500M", "share": "mps:50", "cpus": 1, "mem": "auto", "on_oom": "bigger",
        "priority": -2, "time_limit": "90m", "grace": 7, "signal": "USR1@60", "retries": 2,
        "restartable": True, "tags": ["a", "b"], "hold": True, "keep_children": True,
        "warm": "torch", "notify": "none", "no_bind": True, "snapshot": True, "on": "local",
        "cwd": "/",
    }  # fmt: skip
    # These need a container, a backend, a profile or counters; the environment is copied apart.
    others = (
        "exclusive preemptible need nodes option conda venv uv module container mount profile env"
        " env_file no_snapshot"
    )
    assert {option.key for option in JOB_OPTIONS if not option.is_single} == {
        *given,
        *others.split(),
    }
    devices = tuple(
        Device(number, str(number), model="sim", uuid=f"GPU-{number}", memory=80 << 30)
        for number in range(3)
    )
    job = make_spec(read_options(given, settings), settings, devices)
    options = options_of_spec(job)
    assert make_spec(read_options(options, settings), settings, devices) == job
    by_flags = parse_options(file_values(options), as_flag)
    assert make_spec(by_flags, settings, devices) == job


def test_options_of_a_stored_job_include_those_of_backends_and_environments() -> None:
    request = Request(gpus=2, exclusive=True, backend="hpc", nodes=2, options=("partition=gpu",),
                      needs=("licence=1",), preemptible=True)  # fmt: skip
    words = activation_words(
        Activation(container="img", mounts=("/a:/b:ro",), modules=("gcc", "cuda/12"))
    )
    context = Context("/", (), 0o22, "/bin/sh")
    settings = JobSettings(restartable=True, activation=words)
    job = JobSpec((), context, request=request, settings=settings)
    assert options_of_spec(job) == {
        "gpus": 2, "on": "hpc", "cwd": "/", "exclusive": True, "need": ["licence=1"], "nodes": 2,
        "option": ["partition=gpu"], "preemptible": True, "module": ["gcc", "cuda/12"],
        "container": "img", "mount": ["/a:/b:ro"],
    }  # fmt: skip
    conda = settings._replace(activation=("conda=/e", "uv=1"))
    assert options_of_spec(job._replace(settings=conda))["conda"] == "/e"
