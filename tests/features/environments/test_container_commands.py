"""The commands that run jobs in containers, for each engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stoker.engine.model import Context
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.spawn import Environment, StartFailed
from stoker.features.environments.container_command import container_command
from stoker.text.activation import Activation

UUIDS = ("GPU-aaaa", "GPU-bbbb")


def made(tmp_path: Path, engine: str, **given: Any) -> tuple[list[str], Environment]:
    """The words of the engine, and the environment of its process."""
    files = tmp_path / "files"
    variables = {
        "CUDA_VISIBLE_DEVICES": "2,5", "STOKER_GPUS": "2,5", "NVIDIA_VISIBLE_DEVICES": "2,5",
        "STOKER_GPU_UUIDS": ",".join(given.pop("uuids", UUIDS)), "STOKER_JOB_ID": "7",
        "STOKER_OUTPUT_DIR": str(files / "7"), "STOKER_METRICS": str(files / "7.metrics.jsonl"),
    }  # fmt: skip
    env = {"PATH": "/bin", "TOKEN": "secret", "OTHER": "1", **given.pop("host_env", {})}
    order = Order(
        attempt=1, job=7, number=1, argv=given.pop("argv", ("python", "a b.py")),
        shell=given.pop("shell", False), context=1, env=variables,
        devices=given.pop("devices", (2, 5)), stdout=None, stderr=None, own_log=True,
        time_limit=None, grace=1.0,
        memory_limit=given.pop("memory_limit", None), cpu_limit=given.pop("cpu_limit", 0),
    )  # fmt: skip
    context = Context(
        given.pop("cwd", "/work dir"), given.pop("context_env", ()), 0o022, "/bin/zsh"
    )
    activation = Activation(container=given.pop("image", "image:1"), engine=engine, **given)
    argv, environment = container_command(
        activation, engine, f"/usr/bin/{engine}", order=order, context=context,
        env={os.fsencode(k): os.fsencode(v) for k, v in {**env, **variables}.items()},
        tag=0x123400000001,
    )  # fmt: skip
    return [os.fsdecode(word) for word in argv], environment


def test_docker_gets_the_gpus_of_the_job_by_uuid(tmp_path: Path) -> None:
    words, env = made(tmp_path, "docker")
    assert '--gpus="device=GPU-aaaa,GPU-bbbb"' in words
    assert "--env=CUDA_VISIBLE_DEVICES" in words
    assert env[b"CUDA_VISIBLE_DEVICES"] == b"GPU-aaaa,GPU-bbbb"  # indices differ inside


def test_podman_gets_the_gpus_of_the_job_by_uuid(tmp_path: Path) -> None:
    words, _ = made(tmp_path, "podman")
    assert [word for word in words if word.startswith("--device=")] == [
        "--device=nvidia.com/gpu=GPU-aaaa",
        "--device=nvidia.com/gpu=GPU-bbbb",
    ]


@pytest.mark.parametrize(
    ("engine", "prefix"), [("apptainer", b"APPTAINERENV_"), ("singularity", b"SINGULARITYENV_")]
)
def test_apptainer_sees_only_the_gpus_of_the_job(
    tmp_path: Path, engine: str, prefix: bytes
) -> None:
    words, env = made(tmp_path, engine, variables=("TOKEN",))
    assert words[:4] == [f"/usr/bin/{engine}", "exec", "--cleanenv", "--pwd=/work dir"]
    assert "--nv" in words
    assert env[prefix + b"CUDA_VISIBLE_DEVICES"] == b"GPU-aaaa,GPU-bbbb"
    assert env[prefix + b"TOKEN"] == b"secret"
    assert prefix + b"OTHER" not in env
    assert words[-3:] == ["docker://image:1", "python", "a b.py"]


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_job_without_a_gpu_gets_none(tmp_path: Path, engine: str) -> None:
    words, env = made(tmp_path, engine, devices=(), uuids=())
    assert not any(word.startswith(("--gpus", "--device", "--nv")) for word in words)
    assert env[b"NVIDIA_VISIBLE_DEVICES"] == b"void"  # images of CUDA say `all`


def test_simulated_gpus_are_not_requested_from_the_engine(tmp_path: Path) -> None:
    words, _ = made(tmp_path, "docker", uuids=("SIM-0", "SIM-1"))
    assert not any(word.startswith("--gpus") for word in words)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_values_of_variables_are_not_in_the_arguments(tmp_path: Path, engine: str) -> None:
    words, env = made(tmp_path, engine, variables=("TOKEN",))
    assert "--env=TOKEN" in words
    assert not any("secret" in word for word in words)
    assert not any("OTHER" in word for word in words)
    assert env[b"TOKEN"] == b"secret"


def test_folders_of_the_job_are_mounted_and_exist(tmp_path: Path) -> None:
    words, _ = made(tmp_path, "docker", mounts=("/data,1:/in:ro",))
    files = f"{tmp_path}/files"
    assert [word for word in words if word.startswith("--mount=")] == [
        "--mount=type=bind,source=/work dir,target=/work dir",
        f"--mount=type=bind,source={files},target={files}",
        '--mount=type=bind,"source=/data,1",target=/in,readonly',
    ]
    assert (tmp_path / "files" / "7").is_dir()


def test_container_of_a_job_in_a_snapshot_sees_the_work_tree(tmp_path: Path) -> None:
    tree = (("STOKER_SNAPSHOT_DIR", "/snap"), ("STOKER_SNAPSHOT_OF", "/project"))
    words, _ = made(tmp_path, "docker", cwd="/snap/sub", context_env=tree)
    mounts = [word for word in words if word.startswith("--mount=")]
    assert "--mount=type=bind,source=/snap,target=/snap" in mounts
    assert "--mount=type=bind,source=/project,target=/project" in mounts


def test_files_of_a_container_belong_to_the_user(tmp_path: Path) -> None:
    ids = f"--user={os.getuid()}:{os.getgid()}"
    assert ids in made(tmp_path, "docker")[0]
    rootless = {"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}
    assert ids not in made(tmp_path, "docker", host_env=rootless)[0]


def test_limits_of_the_job_are_those_of_its_container(tmp_path: Path) -> None:
    words, _ = made(tmp_path, "docker", memory_limit=1 << 30, cpu_limit=4)
    assert {"--memory=1073741824b", "--cpus=4"} <= set(words)


def test_options_of_the_settings_come_before_the_image(tmp_path: Path) -> None:
    words, _ = made(tmp_path, "docker", options=("--network=host",))
    assert words[-4:] == ["--network=host", "image:1", "python", "a b.py"]


def test_shell_command_is_run_by_the_shell_of_the_image(tmp_path: Path) -> None:
    words, _ = made(tmp_path, "docker", argv=("echo $HOME | cat",), shell=True)
    assert words[-4:] == ["image:1", "/bin/sh", "-c", "echo $HOME | cat"]


@pytest.mark.parametrize("path", ["/a:b", "/a,b", "/a\\b"])
def test_folder_that_apptainer_cannot_mount_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(StartFailed, match="apptainer cannot mount"):
        made(tmp_path, "apptainer", cwd=path)


@pytest.mark.parametrize("image", ["a.sif", "./a", "/images/a", "oras://host/a"])
def test_apptainer_takes_files_and_uris_as_they_are(tmp_path: Path, image: str) -> None:
    assert made(tmp_path, "apptainer", image=image)[0][-3] == image
