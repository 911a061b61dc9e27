"""The options --conda, --venv, --uv, --module and --container: checked, and made into words.

What can be checked is checked here, when the job is submitted. The runner checks it again when the
job starts (features/environments/activate.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.engine.model import Context, Request
from stoker.errors import Impossible, UsageError
from stoker.settings import Settings
from stoker.text.activation import (
    ENGINES,
    EXCLUSIVE,
    Activation,
    activation_words,
    parse_activation,
    parse_mount,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from stoker.client.submit.option_values import OptionNames

KEYS = (*EXCLUSIVE, "module", "mount")
# Where Environment Modules and Lmod define `module`; the same places as in activate.py.
_MODULE_FILES = (
    "/etc/profile.d/lmod.sh",
    "/etc/profile.d/z00_lmod.sh",
    "/etc/profile.d/modules.sh",
    "/usr/share/lmod/lmod/init/bash",
    "/usr/share/modules/init/bash",
)
_MODULE_VARIABLES = ("MODULESHOME", "LMOD_PKG", "LMOD_CMD", "MODULES_CMD", "BASH_FUNC_module%%")


def environment_values(values: Mapping[str, Any], named: OptionNames) -> dict[str, Any]:
    """The options of the environment among those of a job. Raises UsageError if they contradict."""
    given = {key: values[key] for key in KEYS if values.get(key)}
    chosen = [key for key in EXCLUSIVE if key in given]
    if len(chosen) > 1:
        raise UsageError(
            f"{named(chosen[0])} and {named(chosen[1])} exclude each other",
            "use one of them",
            chosen[1],
        )
    if "mount" in given and "container" not in given:
        raise UsageError(
            f"{named('mount')} needs {named('container')}",
            f"add {named('container', 'IMAGE')}, or remove it",
            "mount",
        )
    return given


def make_activation(
    given: Mapping[str, Any],
    variables: Iterable[str],
    context: Context,
    settings: Settings,
    request: Request,
    named: OptionNames,
) -> tuple[str, ...]:
    """The activation of a job, as words. Raises UsageError if the environment does not exist.

    `variables`: names of the variables that the user set. On a backend, only the node where the job
    starts has its environments, so they are checked there.
    """
    if not given:
        return ()
    env = dict(context.env)
    is_local = not request.backend
    modules = tuple(given.get("module", ()))
    if modules:
        _check_modules(modules, env, named, is_local=is_local)
    activation = Activation(uv=bool(given.get("uv")), modules=modules)
    if "venv" in given:
        activation = activation._replace(venv=_venv(given["venv"], context, named, is_local))
    elif "conda" in given:
        activation = activation._replace(conda=_conda(given["conda"], context, env, is_local))
    elif "uv" in given:
        if is_local:
            _check_uv(context, env, named, has_modules=bool(modules))
    elif "container" in given:
        engine = _engine(settings, env, named, needs_one=is_local and not modules)
        if request.nodes > 1 and engine in ENGINES[:2]:
            raise UsageError(
                f"{named('container')} with {engine} is for jobs on one node",
                "set `engine` to apptainer under [container] in the settings",
                "container",
            )
        _check_image(given["container"], context, engine, is_local=is_local)
        mounts = dict.fromkeys((*settings.container.mounts, *given.get("mount", ())))
        activation = activation._replace(
            container=given["container"],
            engine=engine,
            mounts=tuple(_mount(text, context, is_local=is_local) for text in mounts),
            variables=_variables(variables, settings, env),
            options=settings.container.options,
        )
    return activation_words(activation)


def has_own_python(words: tuple[str, ...]) -> bool:
    """Whether a job has another `python` than the process that submitted it."""
    activation = parse_activation(words)
    return bool(activation.conda or activation.venv or activation.uv)


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def _venv(given: str, context: Context, named: OptionNames, is_local: bool) -> str:
    from stoker.features.environments.conda_prefixes import is_conda_environment
    from stoker.features.environments.venvs import venv_problem

    path = _absolute(given, context.cwd)
    problem = venv_problem(path) if is_local else None
    if problem is None:
        return path
    hint = "make one with: python -m venv PATH"
    if is_conda_environment(path):
        hint = f"it is a conda environment; use {named('conda', given)}"
    elif os.path.exists(os.path.join(path, ".venv", "pyvenv.cfg")):
        hint = f"did you mean {named('venv', os.path.join(given, '.venv'))}?"
    raise UsageError(problem, hint, "venv")


def _conda(given: str, context: Context, env: Mapping[str, str], is_local: bool) -> str:
    from stoker.features.environments import conda_prefixes

    if "/" in given or given in (".", ".."):
        path = _absolute(given, context.cwd)
        found = path if not is_local or conda_prefixes.is_conda_environment(path) else None
    else:
        found = conda_prefixes.find_conda(given, env)
        if found is None and not is_local:
            return given
    if found is not None:
        return os.path.abspath(found)
    from stoker.text.suggestions import nearest

    names = conda_prefixes.conda_names(env)
    near = nearest(given, names)
    hint = f"`{conda_prefixes.conda_program(env)} env list` shows them"
    if near is not None:
        hint = f"did you mean `{near}`? {hint}"
    raise UsageError(f"there is no conda environment `{given}`", hint, "conda")


def _check_uv(
    context: Context, env: Mapping[str, str], named: OptionNames, *, has_modules: bool
) -> None:
    from stoker.features.environments.container_engines import find_program
    from stoker.features.environments.venvs import uv_project

    if uv_project(context.cwd) is None:
        raise UsageError(
            f"{named('uv')} needs a uv project, and neither `{context.cwd}` nor a folder above it"
            " has a pyproject.toml",
            "make one with: uv init",
            "uv",
        )
    if find_program("uv", env.get("PATH")) is None and not has_modules:
        raise UsageError(f"{named('uv')} needs uv, which is not on your PATH", None, "uv")


def _check_modules(
    modules: tuple[str, ...], env: Mapping[str, str], named: OptionNames, *, is_local: bool
) -> None:
    for name in modules:
        if name.startswith("-"):
            raise UsageError(f"`{name}` is not the name of a module", None, "module")
    has_modules = any(key in env for key in _MODULE_VARIABLES) or any(
        os.path.exists(path) for path in _MODULE_FILES
    )
    if is_local and not has_modules:
        raise UsageError(
            f"{named('module')} needs environment modules (Lmod or Environment Modules), and this"
            " host has none",
            f"remove {named('module')}",
            "module",
        )


def _engine(
    settings: Settings, env: Mapping[str, str], named: OptionNames, *, needs_one: bool
) -> str:
    """The engine of the settings, or the first on the PATH; "" if it is found at the start."""
    from stoker.features.environments.container_engines import find_engine, find_program

    chosen = settings.container.engine
    if chosen:
        if needs_one and find_program(chosen, env.get("PATH")) is None:
            raise Impossible(
                f"{named('container')} needs `{chosen}`, the engine in your settings, and it is"
                " not on your PATH",
                "install it, or change `engine` under [container] in the settings",
                "container",
            )
        return chosen
    found = find_engine(env.get("PATH"))
    if found is None and needs_one:
        raise Impossible(
            f"{named('container')} needs docker, podman, apptainer or singularity, and none of"
            " them is on your PATH",
            "install one of them",
            "container",
        )
    return found or "" if needs_one else ""


def _check_image(image: str, context: Context, engine: str, *, is_local: bool) -> None:
    """Raise UsageError for an image that the engine would take for an option, or a missing file."""
    if image.startswith("-"):
        raise UsageError(f"`{image}` is not the name of an image", None, "container")
    is_file = engine in ENGINES[2:] and (image.endswith(".sif") or image[:1] in "/.~")
    if is_file and is_local and not os.path.exists(os.path.join(context.cwd, image)):
        raise UsageError(f"there is no image `{image}`", None, "container")


def _mount(text: str, context: Context, *, is_local: bool) -> str:
    """SRC:DST with absolute paths. Raises UsageError if the source does not exist."""
    source, target, is_read_only = parse_mount(text)
    has_target = target != source
    source = _absolute(source, context.cwd)
    target = target if has_target else source
    if not os.path.isabs(target):
        raise UsageError(
            f"`{text}` is not a mount: `{target}` is not an absolute path",
            "write SRC:DST, e.g. /data/imagenet:/data, or SRC:DST:ro",
            "mount",
        )
    if is_local and not os.path.exists(source):
        raise UsageError(f"cannot mount `{source}`: it does not exist", None, "mount")
    return f"{source}:{target}" + (":ro" if is_read_only else "")


def _variables(names: Iterable[str], settings: Settings, env: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the variables that a container gets: those of the job, and those of the settings."""
    found = dict.fromkeys(names)
    if settings.container.env:
        from fnmatch import fnmatchcase

        patterns = settings.container.env
        found |= dict.fromkeys(k for k in sorted(env) if any(fnmatchcase(k, p) for p in patterns))
    return tuple(found)
