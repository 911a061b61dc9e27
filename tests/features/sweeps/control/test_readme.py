"""The sweep and Python examples of the README run as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.lab import Lab

ROOT = Path(__file__).parents[4]
README = (ROOT / "README.md").read_text()


def test_readme_sweep_gives_the_table_in_the_readme(lab: Lab) -> None:
    block = next(b for b in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if "sweep" in b)
    sweep, results, plot = (
        line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$")
    )
    python = f"{sys.executable} -m stoker"

    def shell(text: str) -> str:
        words = text.replace("stoker ", f"{python} ", 1).replace("'python ", f"'{sys.executable} ")
        done = subprocess.run(
            words, shell=True, cwd=ROOT, env=lab.env, capture_output=True, text=True, check=True
        )
        return done.stdout

    name = shell(f"{sweep} --name brave-otter").split()[1]
    assert name == "brave-otter:"
    lab.wait()
    shown = [line.split()[:5] for line in shell(results).splitlines()]
    promised = block.split("TRIAL", 1)[1].split("\n$")[0]
    wanted = [line.split()[:5] for line in f"TRIAL{promised}".strip().splitlines()]
    assert shown == wanted
    assert "best" in shell(plot.partition("#")[0])


def test_readme_python_example_prints_the_documented_output(lab: Lab) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = lab.folder / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], env=lab.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.1\n0.1\n"


def test_import_of_stoker_loads_few_modules() -> None:
    """Checks the list of imported modules; the import time depends on the machine."""
    code = (
        "import sys; before = set(sys.modules); import stoker; stoker.current(); stoker.log;"
        " print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(
        {"asyncio", "concurrent.futures", "torch", "optuna", "numpy", "pandas", "sqlite3", "typing",
         "cloudpickle", "yaml", "subprocess", "dataclasses", "re"}
    )  # fmt: skip
    assert len(loaded) < 25, loaded


def test_every_public_name_can_be_imported() -> None:
    import stoker

    assert all(getattr(stoker, name) is not None for name in stoker.__all__)
    assert {"submit", "job", "sweep", "current", "log", "Queue", "Executor"} <= set(stoker.__all__)
