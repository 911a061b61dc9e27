"""Activation without a daemon: what is executed, with which words and variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.engine.job_settings import JobSettings
from stoker.engine.model import Context
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.spawn import Environment, StartFailed
from stoker.features.environments.activate import activate, warm_environment
from stoker.features.environments.conda_prefixes import conda_names, find_conda
from stoker.text.activation import Activation, activation_words, parse_activation
from tests.features.environments import layouts

# Text that an argument or a folder may have, with much of what a shell would interpret.
TEXT = st.text(st.sampled_from("ab $`\"'\\;&|<>*?[]{}()!#~=%\n\t-é\udc80"), min_size=1, max_size=12)
NAMES = TEXT.filter(lambda text: not text.startswith("-"))
_ECHO = "import os,sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"


def executed(activation: Activation, *command: str, **env: str) -> subprocess.CompletedProcess:  # type: ignore[type-arg]
    """Execute a command in its environment, as the runner does."""
    start: Environment = {os.fsencode(k): os.fsencode(v) for k, v in {**_base(), **env}.items()}
    order = order_of(activation)
    argv, made = activate(
        order, Context("/", (), 0, "/bin/sh"), start, [os.fsencode(word) for word in command], 1
    )
    return subprocess.run(argv, env=made, capture_output=True)


def order_of(activation: Activation) -> Order:
    return Order(
        attempt=1, job=1, number=1, argv=("true",), shell=False, context=1, env={}, devices=(),
        stdout=None, stderr=None, own_log=True, time_limit=None, grace=1.0,
        settings=JobSettings(activation=activation_words(activation)),
    )  # fmt: skip


def _base() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/none"}


@given(
    st.builds(
        Activation,
        conda=TEXT, venv=TEXT, uv=st.booleans(), modules=st.tuples(TEXT, TEXT), container=TEXT,
        engine=TEXT, mounts=st.tuples(TEXT), variables=st.tuples(TEXT), options=st.tuples(TEXT),
    )
)  # fmt: skip
def test_activation_is_read_as_it_was_written(activation: Activation) -> None:
    assert parse_activation(activation_words(activation)) == activation


@settings(max_examples=40, deadline=None)
@given(
    modules=st.lists(NAMES.filter(lambda text: "/" not in text), min_size=1, max_size=3),
    words=st.lists(TEXT, max_size=4),
)
def test_names_of_modules_and_words_of_the_command_are_data(
    modules: list[str], words: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        init = Path(folder, "init", "bash")
        init.parent.mkdir()
        # Prints what it was asked to load to stderr, each name with a NUL.
        init.write_text("module() { printf '%s\\0' \"$2\" >&2; LOADEDMODULES=$LOADEDMODULES:x; }\n")
        done = executed(
            Activation(modules=tuple(modules)), sys.executable, "-c", _ECHO, *words,
            MODULESHOME=folder,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == b"".join(os.fsencode(name) + b"\0" for name in modules)
    assert done.stdout == b"\0".join(os.fsencode(word) for word in words)


@settings(max_examples=25, deadline=None)
@given(name=NAMES.filter(lambda text: text not in (".", "..") and ":" not in text), words=TEXT)
def test_paths_of_environments_are_data(name: str, words: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = layouts.conda(Path(folder, name), script="OF_SCRIPT=sourced; export OF_SCRIPT\n")
        done = executed(
            Activation(conda=str(prefix)), sys.executable, "-c",
            _ECHO.replace("sys.argv[1:]", "[os.environ['OF_SCRIPT'], *sys.argv[1:]]"), words,
        )  # fmt: skip
        assert done.stdout == b"sourced\0" + os.fsencode(words), done.stderr


def test_conda_environment_sets_variables_and_sources_its_scripts(tmp_path: Path) -> None:
    prefix = layouts.conda(
        tmp_path / "envs" / "vision",
        script='export OF_SCRIPT="by script for $CONDA_DEFAULT_ENV"; set -- other; shift\n',
        variables='{"OF_STATE": "by state", "GONE": "***unset***"}',
    )
    command = ("sh", "-c", "where; echo ${GONE-unset}; echo $PATH")
    done = executed(Activation(conda=str(prefix)), *command, GONE="1", VIRTUAL_ENV="/old venv")
    lines = done.stdout.decode().splitlines()
    assert lines[:4] == [str(prefix), "by script for vision", "by state", "unset"]
    assert lines[4].startswith(f"{prefix}/bin:")


def test_conda_environment_is_found_by_name(tmp_path: Path) -> None:
    root, other = tmp_path / "conda", tmp_path / "elsewhere"
    base = layouts.conda(root)
    named = layouts.conda(root / "envs" / "a b")
    configured = layouts.conda(other / "c")
    listed = layouts.conda(tmp_path / "project" / "d")
    (tmp_path / ".condarc").write_text(f"channels:\n  - x\nenvs_dirs:\n  - {other}  # mine\n")
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{listed}\n/gone/e\n")
    env = {"HOME": str(tmp_path), "CONDA_EXE": str(root / "bin" / "conda"), "PATH": "/bin"}
    found = {name: find_conda(name, env) for name in ("base", "a b", "c", "d", "e", "..", "x/y")}
    assert found == {
        "base": str(base), "a b": str(named), "c": str(configured), "d": str(listed), "e": None,
        "..": None, "x/y": None,
    }  # fmt: skip
    assert conda_names(env) == ["a b", "base", "c", "d"]


@pytest.mark.parametrize("engine", ["conda", "mamba"])
def test_conda_environment_is_found_from_the_program_on_the_path(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "root" / "condabin").mkdir(parents=True)
    (tmp_path / "root" / "condabin" / engine).write_text("")
    (tmp_path / "root" / "condabin" / engine).chmod(0o755)
    prefix = layouts.conda(tmp_path / "root" / "envs" / "a")
    env = {"HOME": "/none", "PATH": f"/bin:{tmp_path}/root/condabin"}
    assert find_conda("a", env) == str(prefix)
    micromamba = {"HOME": "/none", "PATH": "/bin", "MAMBA_ROOT_PREFIX": str(tmp_path / "root")}
    assert find_conda("a", micromamba) == str(prefix)


def test_virtual_environment_replaces_the_one_of_the_shell(tmp_path: Path) -> None:
    new, old = layouts.venv(tmp_path / "new venv"), layouts.venv(tmp_path / "old")
    done = executed(
        Activation(venv=str(new)), "python", "-c",
        "import json, os, sys; print(json.dumps([sys.prefix, dict(os.environ)]))",
        PATH=f"{old}/bin:/bin", VIRTUAL_ENV=str(old), PYTHONHOME="/nonsense",
    )  # fmt: skip
    prefix, env = json.loads(done.stdout)
    assert (prefix, env["VIRTUAL_ENV"], env["PATH"]) == (str(new), str(new), f"{new}/bin:/bin")
    assert "PYTHONHOME" not in env


def test_interpreter_of_an_environment_comes_before_those_of_modules(tmp_path: Path) -> None:
    env = layouts.modules(tmp_path, "gcc", "python")
    venv = layouts.venv(tmp_path / "venv")
    done = executed(
        Activation(venv=str(venv), modules=("gcc", "python")), "sh", "-c",
        "tool; echo $PATH; echo $LOADEDMODULES", **env,
    )  # fmt: skip
    tool, path, loaded = done.stdout.decode().splitlines()
    assert (tool, loaded) == ("tool of python", "gcc:python")
    assert path.startswith(f"{venv}/bin:{tmp_path}/files/python/bin:{tmp_path}/files/gcc/bin:")


@pytest.mark.parametrize(("status", "why"), [("1", "failed"), ("0", "loaded nothing")])
def test_module_that_cannot_be_loaded_is_an_error(tmp_path: Path, status: str, why: str) -> None:
    env = layouts.modules(tmp_path, "gcc")
    done = executed(Activation(modules=("gcc", "cuda/99")), "true", FAKE_STATUS=status, **env)
    assert done.returncode == 126
    text = f"stoker: cannot activate the module `cuda/99`: `module load` {why}"
    assert done.stderr.decode().splitlines() == ["module: cuda/99 unknown", text]


@pytest.mark.parametrize(
    ("activation", "text"),
    [
        (Activation(conda="/gone"), "there is no conda environment `/gone`"),
        (Activation(conda="gone"), "there is no conda environment `gone`"),
        (Activation(venv="/gone"), "there is no virtual environment `/gone`"),
        (Activation(uv=True), "there is no `uv` on the PATH of the job"),
        (Activation(container="a", engine="podman"), "there is no `podman` on the PATH of the job"),
    ],
)
def test_environment_that_is_gone_at_the_start_is_an_error(
    activation: Activation, text: str
) -> None:
    with pytest.raises(StartFailed) as failed:
        executed(activation, "true", PATH="/none")
    assert (str(failed.value), failed.value.exit_code) == (text, 126)
    cause = "container_failed" if activation.container else "environment_failed"
    assert failed.value.cause == cause


def test_warm_start_uses_the_interpreter_of_the_environment(tmp_path: Path) -> None:
    venv, conda = layouts.venv(tmp_path / "venv"), layouts.conda(tmp_path / "conda")
    for activation, prefix in ((Activation(venv=str(venv)), venv),
                               (Activation(conda=str(conda)), conda)):  # fmt: skip
        found = warm_environment(order_of(activation), {b"PATH": b"/bin"})
        assert not isinstance(found, str)
        env, folder = found
        assert (env[b"PATH"], folder) == (os.fsencode(f"{prefix}/bin:/bin"), f"{prefix}/bin")


@pytest.mark.parametrize(
    ("activation", "why"),
    [
        (Activation(uv=True), "uv prepares its environment"),
        (Activation(container="a"), "it runs in a container"),
        (Activation(venv="/v", modules=("gcc",)), "it loads environment modules"),
    ],
)
def test_environment_that_needs_a_cold_start_says_why(activation: Activation, why: str) -> None:
    assert warm_environment(order_of(activation), {}) == why


def test_conda_environment_with_scripts_starts_cold(tmp_path: Path) -> None:
    prefix = layouts.conda(tmp_path / "a", script="true\n")
    why = warm_environment(order_of(Activation(conda=str(prefix))), {})
    assert why == "its conda environment has activation scripts"
