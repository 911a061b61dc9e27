"""Jobs in virtual environments, conda environments, uv projects and modules, with a real daemon."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from tests.features.environments import layouts
from tests.lab import Lab

PREFIX = "import sys; print(sys.prefix)"


def refused(lab: Lab, *words: str) -> tuple[str, ...]:
    done = lab.run("submit", *words, "true", HOME=str(lab.folder))
    assert done.returncode == 2, done.stderr
    return tuple(done.stderr.splitlines())


def test_environment_that_does_not_exist_is_refused_at_submit(lab: Lab) -> None:
    layouts.conda(lab.folder / "miniconda3" / "envs" / "vision")
    layouts.venv(lab.folder / "project" / ".venv")
    assert refused(lab, "--conda", "visoin") == (
        "error: there is no conda environment `visoin`",
        "hint: did you mean `vision`? `conda env list` shows them",
    )
    assert refused(lab, "--venv", "gone") == (
        f"error: there is no virtual environment `{lab.folder}/gone`",
        "hint: make one with: python -m venv PATH",
    )
    assert refused(lab, "--venv", "project") == (
        f"error: `{lab.folder}/project` is not a virtual environment: it has no pyvenv.cfg",
        "hint: did you mean --venv project/.venv?",
    )
    (error, _) = refused(lab, "--uv")
    assert error.startswith("error: `--uv` needs a uv project, and neither")
    (error, _) = refused(lab, "--conda", "a", "--container", "b")
    assert error == "error: `--conda` and `--container` exclude each other"
    (error, _) = refused(lab, "--mount", "/a:/b")
    assert error == "error: `--mount` needs `--container`"


def test_job_runs_in_its_virtual_environment(lab: Lab) -> None:
    venv = layouts.venv(lab.folder / "my $(venv)")
    cold = lab.submit("--venv", "my $(venv)", "python", "-c", PREFIX)
    shell = lab.submit("--venv", str(venv), "echo $VIRTUAL_ENV; exit 3")
    lab.wait(cold, shell)
    assert lab.log(cold) == lab.log(shell) == f"{venv}\n"
    assert lab.job(shell)["exit_code"] == 3
    assert lab.job(cold)["venv"] == str(venv)
    assert f"venv        {venv}" in lab.ok("show", str(cold))


def test_warm_job_uses_the_interpreter_of_its_virtual_environment(lab: Lab) -> None:
    venv = layouts.venv(lab.folder / "venv")
    warm = lab.submit("--warm", "--venv", str(venv), "python", "-c", PREFIX)
    lab.wait(warm)
    assert lab.log(warm) == f"{venv}\n"
    assert "cold_start" not in lab.ok("show", str(warm))


def test_virtual_environment_that_is_gone_at_the_start_is_the_cause(lab: Lab) -> None:
    venv = layouts.venv(lab.folder / "venv")
    job = lab.submit("--hold", "--retries", "3", "--venv", str(venv), "echo ran")
    shutil.rmtree(venv)
    lab.ok("release", str(job))
    lab.wait(job)
    facts = lab.job(job)
    text = f"there is no virtual environment `{venv}`"
    assert (facts["cause"], facts["result"], facts["attempts"]) == ("environment_failed", text, 1)
    assert lab.log(job) == f"stoker: {text}\n"


def test_job_runs_in_its_conda_environment(lab: Lab) -> None:
    root = lab.folder / "miniconda3"
    prefix = layouts.conda(root / "envs" / "vision", script="export OF_SCRIPT=sourced\n")
    job = lab.submit("--conda", "vision", "where; echo pid $$", HOME=str(lab.folder))
    lab.wait(job)
    assert lab.log(job).splitlines()[:2] == [str(prefix), "sourced"]
    assert lab.job(job)["conda"] == str(prefix)


def test_signals_reach_a_job_that_a_script_activates(lab: Lab) -> None:
    prefix = layouts.conda(lab.folder / "env", script="true\n")
    text = 'trap "echo got it; exit 5" USR1; echo ready; while :; do sleep 0.05; done'
    job = lab.submit("--conda", str(prefix), "sh", "-c", text)
    lab.wait_until(lambda: "ready" in lab.run("log", str(job)).stdout)
    lab.wait_until(lambda: lab.job(job)["pid"])
    os.kill(lab.job(job)["pid"], 10)
    lab.wait(job)
    assert (lab.job(job)["exit_code"], lab.log(job)) == (5, "ready\ngot it\n")


def test_job_loads_modules_in_order(new_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = new_lab(devices=1, **layouts.modules(tmp_path / "modules", "gcc", "cuda"))
    job = lab.submit("--module", "gcc", "--module", "cuda", "tool; echo $LOADEDMODULES")
    bad = lab.submit("--module", "gone", "true")
    lab.wait(job, bad)
    assert lab.log(job) == "tool of cuda\ngcc:cuda\n"
    facts = lab.job(bad)
    assert (facts["cause"], facts["exit_code"]) == ("environment_failed", 126)
    assert facts["result"] == "cannot activate the module `gone`: `module load` failed"


def test_job_runs_in_the_environment_of_its_uv_project(lab: Lab) -> None:
    project = lab.folder / "project"
    (project / "sub").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = []\n'
    )
    programs = Path(sys.executable).parent  # uv is there
    path = os.pathsep.join((str(programs), lab.env["PATH"]))
    env = {"UV_PYTHON": sys.executable, "UV_OFFLINE": "1", "PATH": path}
    words = ("--uv", "-C", str(project / "sub"))
    job = lab.submit(*words, "python", "-c", f"{PREFIX}; sys.exit(4)", **env)
    lab.wait(job)
    assert (lab.log(job), lab.job(job)["exit_code"]) == (f"{project}/.venv\n", 4)
    (project / "pyproject.toml").write_text("not TOML")
    broken = lab.submit(*words, "true", **env)
    lab.wait(broken)
    facts = lab.job(broken)
    assert facts["cause"] == "environment_failed"
    assert facts["detail"] == "cannot activate the uv environment: `uv run` exited with 2"


def test_dry_run_shows_the_environment(lab: Lab) -> None:
    venv = layouts.venv(lab.folder / "venv")
    shown = lab.ok("submit", "--dry-run", "--venv", "venv", "true")
    assert f"venv {venv}" in shown


def test_function_is_called_by_the_python_of_its_environment(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stoker has to be installed there; here, a path file shows where it is."""
    venv = layouts.venv(lab.folder / "venv")
    packages = venv / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    paths = {Path(stoker.__file__).parents[1], *map(Path, sys.path[1:])}
    (packages / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(lab.folder)
    job = stoker.job(_prefix, venv=venv).submit()
    assert job.result() == str(venv)
    engine = lab.folder / "docker"
    engine.write_text("")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lab.folder}:{os.environ['PATH']}")
    with pytest.raises(stoker.Error, match="a function cannot run in a container"):
        stoker.job(_prefix, container="image").submit()


def _prefix() -> str:
    return sys.prefix
