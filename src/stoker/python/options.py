"""Static types of job options in the Python API; their meaning is in `job_options.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from stoker.engine.model import Dependency
    from stoker.python.job import Job

    Path: TypeAlias = str | os.PathLike[str]
    After: TypeAlias = Job[Any] | int | str | Dependency


class Options(TypedDict, total=False):
    """The keywords of `submit` for commands, of `@job` and of `Executor`."""

    gpus: int | None  # default: 1 if this host has any
    gpu_mem: str | int | None  # to reserve on each GPU, which jobs then share: "20G", bytes, "auto"
    gpu_ids: Iterable[int | str] | None  # only these: indices or UUIDs
    prefer: Iterable[int | str] | None  # try these first
    gpu_model: str | None  # part of the model name
    min_gpu_mem: str | int | None  # only GPUs with at least this much memory
    exclusive: bool
    share: str | None  # mps, mps:50 (percent of the GPU's threads) or time
    cpus: int | None  # CPU cores to reserve
    mem: str | int | None  # memory of the host to reserve: "16G", bytes, "auto"
    need: str | Iterable[str] | Mapping[str, int] | None  # counters: {"licence": 1}
    on: str | None  # name of a backend; "local": this host
    nodes: int  # of the backend; the other values are for each node
    option: str | Iterable[str] | Mapping[str, str] | None  # for the engine of the backend
    on_oom: str | None  # bigger, elsewhere, alone or fail
    name: str | None
    cwd: Path | None
    env: Mapping[str, str | int | float | os.PathLike[str]] | None
    env_file: Path | Iterable[Path] | None
    priority: int
    after: After | Iterable[After] | None  # jobs, ids, "7:any", "@", names or tags
    time_limit: str | float | timedelta | None  # seconds, "90m", "2h"
    signal: str | None  # sent before the time limit: "USR1@60"
    grace: str | float | timedelta | None
    retries: int
    restartable: bool
    preemptible: bool
    begin: str | float | datetime | timedelta | None  # seconds since the epoch, "+2h", "14:30"
    tags: str | Iterable[str] | None
    group: str | None  # fair-share group
    stdout: Path | None
    stderr: Path | None
    hold: bool
    keep_children: bool
    no_bind: bool
    snapshot: bool
    no_snapshot: bool
    warm: bool | str | Iterable[str] | None  # True, or modules to import: ["torch"]
    notify: str | Iterable[str] | bool | None  # "failure", ["end:phone"]; False: none
    conda: str | None  # name or path of an environment
    venv: Path | None
    uv: bool
    module: str | Iterable[str] | None  # environment modules, in this order
    container: str | None  # an image
    mount: str | Iterable[str] | None  # SRC:DST or SRC:DST:ro, for the container
    profile: str | Iterable[str] | None  # of the settings; the other options override it
    dedupe: str | None
