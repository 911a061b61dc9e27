"""What the runner executes for a job with an environment, instead of its command alone.

A virtual environment, and a conda environment without activation scripts, only change variables.
Modules and activation scripts need a shell: a fixed script gets their names as arguments, and then
executes the command, so that PID, signals, output and exit code are those of the command.
"""

from __future__ import annotations

import json
import os
import sys

from stoker.engine.model import Context
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.spawn import Environment, StartFailed
from stoker.features.environments.conda_prefixes import find_conda, is_conda_environment
from stoker.features.environments.container_engines import find_engine, find_program
from stoker.features.environments.venvs import venv_problem
from stoker.record import Record
from stoker.text.activation import Activation, parse_activation
from stoker.text.byte_text import to_system

ENVIRONMENT_FAILED = "environment_failed"
CONTAINER_FAILED = "container_failed"
_UNSET = "***unset***"  # the value of a variable that conda removes

# Arguments: number of modules, the modules, a folder for PATH, a folder of scripts, the command.
# A sourced file could change our arguments, so it is sourced in a function, which has its own.
_SCRIPT = """\
stoker_fail() { printf 'stoker: cannot activate %s\\n' "$1" >&2; exit 126; }
stoker_source() { stoker_file=$1; set --; . "$stoker_file"; }
stoker_count=$1
shift
if [ "$stoker_count" -gt 0 ]; then
  for stoker_init in "${LMOD_PKG:-/none}/init/bash" "${MODULESHOME:-/none}/init/bash" \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
    command -v module >/dev/null 2>&1 && break
    [ -r "$stoker_init" ] && stoker_source "$stoker_init"
  done
  command -v module >/dev/null 2>&1 ||
    stoker_fail "the module \\`$1\\`: this host has no environment modules"
  while [ "$stoker_count" -gt 0 ]; do
    stoker_before=$LOADEDMODULES
    module load "$1" || stoker_fail "the module \\`$1\\`: \\`module load\\` failed"
    # Old releases of Environment Modules succeed although they loaded nothing.
    case ":$LOADEDMODULES:" in
      *":$1:"* | *":$1/"*) ;;
      *) [ "$LOADEDMODULES" != "$stoker_before" ] ||
           stoker_fail "the module \\`$1\\`: \\`module load\\` loaded nothing" ;;
    esac
    shift
    stoker_count=$((stoker_count - 1))
  done
fi
[ -z "$1" ] || export PATH="$1:$PATH"
if [ -n "$2" ]; then
  for stoker_script in "$2"/*.sh; do
    [ -r "$stoker_script" ] && stoker_source "$stoker_script"
  done
fi
shift 2
unset stoker_count stoker_init stoker_before stoker_script stoker_file
unset -f stoker_fail stoker_source
exec "$@"
"""


class _Variables(Record):
    """An environment that only changes variables, and the scripts that complete it."""

    env: Environment
    bin: str
    scripts: str = ""  # folder of scripts to source; "": none


def activate(
    order: Order, context: Context, env: Environment, argv: list[bytes], tag: int
) -> tuple[list[bytes], Environment]:
    """The command and the environment to execute. `argv`: the command of the job, with its shell.

    Raises StartFailed with a cause if the environment does not exist.
    """
    activation = parse_activation(order.settings.activation)
    found: _Variables | None = None
    if activation.venv:
        found = _venv(activation.venv, env)
    elif activation.conda:
        found = _conda(activation.conda, env)
    elif activation.uv:
        argv = [*map(to_system, _uv_start(env, bool(activation.modules))), *argv]
    elif activation.container:
        from stoker.features.environments.container_command import container_command

        engine, program = _engine(activation, env)
        argv, env = container_command(
            activation, engine, program, order=order, context=context, env=env, tag=tag
        )
    if found is not None:
        env = found.env
    if activation.modules or (found is not None and found.scripts):
        argv = [*_shell_start(activation.modules, found), *argv]
    return argv, env


def warm_environment(order: Order, env: Environment) -> tuple[Environment, str] | str:
    """The environment of a warm start and the folder of its interpreter, or why it must be cold.

    A virtual environment is not checked: its fork server cannot start if it does not exist, and
    then the cold start reports the error.
    """
    activation = parse_activation(order.settings.activation)
    if activation.modules:
        return "it loads environment modules"
    if activation.uv:
        return "uv prepares its environment"
    if activation.container:
        return "it runs in a container"
    try:
        if activation.venv:
            found = _with_venv(activation.venv, env)
        else:
            found = _conda(activation.conda, env)
    except StartFailed as failure:
        return str(failure)
    if found.scripts:
        return "its conda environment has activation scripts"
    return found.env, found.bin


def activation_paths(words: tuple[str, ...]) -> list[str]:
    """The paths that `activate` reads, which may be on a file system that hangs."""
    activation = parse_activation(words)
    paths = [activation.venv, activation.conda]
    return [path for path in paths if path.startswith("/")]


def _failed(text: str, cause: str = ENVIRONMENT_FAILED) -> StartFailed:
    return StartFailed(126, text, cause)


def _venv(path: str, env: Environment) -> _Variables:
    problem = venv_problem(path)
    if problem is not None:
        raise _failed(problem)
    return _with_venv(path, env)


def _with_venv(path: str, env: Environment) -> _Variables:
    changed = {key: value for key, value in env.items() if key != b"PYTHONHOME"}
    old = env.get(b"VIRTUAL_ENV")
    folder = os.path.join(path, "bin")
    changed[b"PATH"] = _path_with(folder, env, without=os.path.join(old, b"bin") if old else None)
    changed[b"VIRTUAL_ENV"] = to_system(path)
    changed[b"VIRTUAL_ENV_PROMPT"] = to_system(os.path.basename(path))
    return _Variables(changed, folder)


def _conda(name: str, env: Environment) -> _Variables:
    prefix: str | None = name
    if not name.startswith("/"):
        prefix = find_conda(name, {os.fsdecode(key): os.fsdecode(env[key]) for key in env})
    if prefix is None or not is_conda_environment(prefix):
        raise _failed(f"there is no conda environment `{name}`")
    changed = {key: value for key, value in env.items() if key != b"PYTHONHOME"}
    old = env.get(b"CONDA_PREFIX")
    folder = os.path.join(prefix, "bin")
    changed[b"PATH"] = _path_with(folder, env, without=os.path.join(old, b"bin") if old else None)
    outer = changed.pop(b"VIRTUAL_ENV", None)
    if outer:
        changed[b"PATH"] = _path_with("", changed, without=os.path.join(outer, b"bin"))
    is_named = os.path.basename(os.path.dirname(prefix)) == "envs"
    shown = os.path.basename(prefix) if is_named else prefix
    changed[b"CONDA_PREFIX"] = to_system(prefix)
    changed[b"CONDA_DEFAULT_ENV"] = to_system(shown)
    changed[b"CONDA_SHLVL"] = b"1"
    for key, value in _conda_variables(prefix).items():
        if value == _UNSET:
            changed.pop(to_system(key), None)
        elif "\0" not in key + value and "=" not in key:
            changed[to_system(key)] = to_system(value)
    scripts = os.path.join(prefix, "etc", "conda", "activate.d")
    has_scripts = os.path.isdir(scripts) and any(n.endswith(".sh") for n in os.listdir(scripts))
    return _Variables(changed, folder, scripts if has_scripts else "")


def _conda_variables(prefix: str) -> dict[str, str]:
    """The variables of packages, and those of `conda env config vars set`."""
    found: dict[str, str] = {}
    folder = os.path.join(prefix, "etc", "conda", "env_vars.d")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        found |= _texts(_read_json(os.path.join(folder, name)))
    state = _read_json(os.path.join(prefix, "conda-meta", "state"))
    return found | _texts(state.get("env_vars"))


def _read_json(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(key): str(text) for key, text in value.items()}


def _path_with(folder: str, env: Environment, without: bytes | None) -> bytes:
    folders = (env.get(b"PATH") or os.fsencode(os.defpath)).split(b":")
    first = [to_system(folder)] if folder else []
    return b":".join([*first, *(one for one in folders if one not in (without, *first))])


def _uv_start(env: Environment, has_modules: bool) -> list[str]:
    """The program that executes a command in the environment of a uv project."""
    uv = find_program("uv", _search_path(env))
    if uv is None and not has_modules:
        raise _failed("there is no `uv` on the PATH of the job")
    program = os.path.join(os.path.dirname(__file__), "uv_start.py")
    return [sys.executable, "-I", "-S", program, uv or "uv"]


def _engine(activation: Activation, env: Environment) -> tuple[str, str]:
    """The name and the path of the program that runs containers."""
    path = _search_path(env)
    engine = activation.engine or find_engine(path)
    if engine is None:
        raise _failed(
            "there is no docker, podman, apptainer or singularity on the PATH of the job",
            CONTAINER_FAILED,
        )
    program = find_program(engine, path)
    if program is None and not activation.modules:  # a module may bring it
        raise _failed(f"there is no `{engine}` on the PATH of the job", CONTAINER_FAILED)
    return engine, program or engine


def _search_path(env: Environment) -> str | None:
    path = env.get(b"PATH")
    return None if path is None else os.fsdecode(path)


def _shell_start(modules: tuple[str, ...], found: _Variables | None) -> list[bytes]:
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    # Modules put their own folders first; the interpreter of the environment has to be before them.
    folder = found.bin if found is not None and modules else ""
    scripts = "" if found is None else found.scripts
    words = [shell, "-c", _SCRIPT, "stoker", str(len(modules)), *modules, folder, scripts]
    return [to_system(word) for word in words]
