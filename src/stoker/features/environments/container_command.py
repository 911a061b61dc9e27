"""The command that runs a job in a container.

The container sees the folder of the job, its output folder and the mounts of the user, each at the
same path, and runs with the ids of the user. It gets Stoker's variables of the job and those that
the user named; their values are in the environment of the engine's process, not in its arguments,
which other users can read.
"""

from __future__ import annotations

import os

from stoker.engine.model import SIMULATED, Context
from stoker.engine.snapshot_context import SNAPSHOT_DIR, SNAPSHOT_OF
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.process_tags import ENVIRONMENT_VARIABLE, base_of
from stoker.engine.supervisor.spawn import Environment, StartFailed
from stoker.features.environments.container_engines import QUEUE_LABEL, container_name, find_program
from stoker.text.activation import APPTAINER, DOCKER, PODMAN, Activation, parse_mount
from stoker.text.byte_text import to_system

# tini, the first process of a docker container, then signals all processes of a pipeline.
_GROUP_SIGNALS = "TINI_KILL_PROCESS_GROUP=1"
_INIT_OF_PODMAN = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
# Set for the process of the engine, or only meaningful on the host.
_NOT_PASSED = frozenset({"PATH", "NVIDIA_VISIBLE_DEVICES"})


def container_command(
    activation: Activation,
    engine: str,
    program: str,
    *,
    order: Order,
    context: Context,
    env: Environment,
    tag: int,
) -> tuple[list[bytes], Environment]:
    """The command of the engine, and the environment of its process. Raises StartFailed."""
    mounts = [
        *(f"{path}:{path}" for path in _folders(order, context)),
        *activation.mounts,
    ]
    inner = ["/bin/sh", "-c", order.argv[0]] if order.shell else list(order.argv)
    names, env = _variables(activation, order, env)
    if engine in (DOCKER, PODMAN):
        words = [program, "run", "--rm", f"--name={container_name(tag)}"]
        words += [f"--label={QUEUE_LABEL}={base_of(tag):x}", f"--label=stoker.job={order.job}"]
        words += _identity(engine, env)
        words += _gpus(engine, order)
        words += _limits(order)
        # Shared memory of the host: PyTorch's data loaders need more than the 64 MiB of docker.
        words += ["--ipc=host", f"--workdir={context.cwd}"]
        for mount in dict.fromkeys(mounts):
            words.append(f"--mount={_bind(mount)}")
        words += [f"--env={name}" for name in names if name != "HOME"]
        words.append("--env=HOME" if "HOME" in activation.variables else "--env=HOME=/tmp")
        words += [*activation.options, activation.container, *inner]
    else:
        prefix = b"APPTAINERENV_" if engine == APPTAINER else b"SINGULARITYENV_"
        env |= {prefix + key: env[key] for key in map(to_system, names) if key in env}
        words = [program, "exec", "--cleanenv", f"--pwd={context.cwd}"]
        words += ["--nv"] if _device_names(order) else []
        for mount in dict.fromkeys(mounts):
            words.append(f"--bind={_checked_bind(mount)}")
        words += [*activation.options, _apptainer_image(activation.container, context.cwd), *inner]
    return [to_system(word) for word in words], env


def _folders(order: Order, context: Context) -> list[str]:
    """The folders that every container can use: that of the job, and those of its files.

    Metrics, progress and the request to stop are files beside the output folder. A
    snapshot of code has links into the work tree that it is a copy of.
    """
    output = order.env.get("STOKER_OUTPUT_DIR", "")
    files = os.path.dirname(order.env.get("STOKER_METRICS", ""))
    if output:
        _make_private(output)
    found = [context.cwd]
    variables = dict(context.env)
    snapshot = (variables.get(name, "") for name in (SNAPSHOT_DIR, SNAPSHOT_OF))
    for path in (files, output, order.env.get("CUDA_MPS_PIPE_DIRECTORY", ""), *snapshot):
        if path and not any(path == one or path.startswith(f"{one}/") for one in found):
            found.append(path)
    return found


def _variables(
    activation: Activation, order: Order, env: Environment
) -> tuple[list[str], Environment]:
    """Names of the variables for the container, and the environment with their values."""
    devices = _device_names(order)
    changed = dict(env)
    # Inside a container, GPUs have other numbers: only their UUIDs mean the same.
    if devices and len(_uuids(order)) == len(devices):
        for key in (b"CUDA_VISIBLE_DEVICES", b"STOKER_GPUS", b"HIP_VISIBLE_DEVICES"):
            changed[key] = to_system(",".join(devices))
    # Images of CUDA set it to `all`.
    changed[b"NVIDIA_VISIBLE_DEVICES"] = to_system(",".join(devices) or "void")
    own = [*order.env, "STOKER_DEADLINE", os.fsdecode(ENVIRONMENT_VARIABLE)]
    names = [name for name in own if name not in _NOT_PASSED]
    names += ["NVIDIA_VISIBLE_DEVICES", *activation.variables]
    return [name for name in dict.fromkeys(names) if to_system(name) in changed], changed


def _uuids(order: Order) -> list[str]:
    return [uuid for uuid in order.env.get("STOKER_GPU_UUIDS", "").split(",") if uuid]


def _device_names(order: Order) -> list[str]:
    """The GPUs of a job as engines name them; none if they are simulated."""
    uuids = _uuids(order)
    if len(uuids) == len(order.devices):
        return [uuid for uuid in uuids if not uuid.startswith(SIMULATED)]
    if not os.path.exists("/dev/nvidiactl"):
        return []
    return [index for index in order.env.get("STOKER_GPUS", "").split(",") if index]


def _gpus(engine: str, order: Order) -> list[str]:
    devices = _device_names(order)
    if not devices:
        return []
    if engine == DOCKER:  # a CSV record, in which the list is one quoted field
        return [f'--gpus="device={",".join(devices)}"']
    return [f"--device=nvidia.com/gpu={device}" for device in devices]


def _identity(engine: str, env: Environment) -> list[str]:
    """Options that make files of the container belong to the user, and signals reach its command.

    In a container without root, root inside is the user outside.
    """
    user = f"--user={os.getuid()}:{os.getgid()}"
    if engine == PODMAN:
        init = [
            "--init"
            for path in (*_INIT_OF_PODMAN, find_program("catatonit", None) or "")
            if path and os.path.exists(path)
        ][:1]
        security = ["--security-opt=label=disable"]
        return [user if os.getuid() == 0 else "--userns=keep-id", *init, *security]
    is_rootless = b"/run/user/" in env.get(b"DOCKER_HOST", b"")
    groups = [f"--group-add={group}" for group in os.getgroups() if group != os.getgid()]
    return [*([] if is_rootless else [user, *groups]), "--init", f"--env={_GROUP_SIGNALS}"]


def _limits(order: Order) -> list[str]:
    words = [] if order.memory_limit is None else [f"--memory={order.memory_limit}b"]
    return words + ([f"--cpus={order.cpu_limit}"] if order.cpu_limit else [])


def _bind(mount: str) -> str:
    source, target, is_read_only = parse_mount(mount)
    fields = ["type=bind", f"source={source}", f"target={target}"]
    return ",".join(_csv_field(field) for field in fields) + (",readonly" if is_read_only else "")


def _csv_field(text: str) -> str:
    if not any(char in text for char in ',"\n\r'):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _checked_bind(mount: str) -> str:
    source, target, is_read_only = parse_mount(mount)
    for path in (source, target):
        if any(char in path for char in ":,\\"):
            raise StartFailed(
                126,
                f"apptainer cannot mount `{path}`: its path contains a colon, a comma or a"
                " backslash",
                "container_failed",
            )
    return f"{source}:{target}" + (":ro" if is_read_only else "")


def _apptainer_image(image: str, cwd: str) -> str:
    """A file or a URI; any other name is an image of a registry, as for docker."""
    if "://" in image or os.path.exists(os.path.join(cwd, image)):
        return image
    return image if image.endswith(".sif") or image[:1] in "./" else f"docker://{image}"


def _make_private(path: str) -> None:
    mask = os.umask(0o077)
    try:
        os.makedirs(to_system(path), exist_ok=True)
    finally:
        os.umask(mask)
