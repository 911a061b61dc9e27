"""Completion in the shells themselves: keys typed in bash and zsh, `complete -C` in fish."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.cli.completion.shells import Shell, has_shell
from tests.docs import pages
from tests.docs.pages import environment
from tests.lab import Lab


@pytest.fixture
def queue(new_lab: Callable[..., Lab]) -> Lab:
    """Two held jobs, one with a name and one with a tag, and a file."""
    lab = new_lab(devices=2)
    lab.submit("--hold", "-n", "first-model", "true")
    lab.submit("--hold", "-T", "baseline", "sleep 3")
    (lab.folder / "train.py").touch()
    (lab.folder / "data").mkdir()
    return lab


@pytest.fixture(params=["bash", "zsh"])
def shell(queue: Lab, request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(queue, request.param)
    yield shell
    shell.close()


def test_tab_completes_commands_options_and_values(shell: Shell) -> None:
    for typed, completed in (
        ("stoker canc", "stoker cancel "),
        ("stoker submit --pri", "stoker submit --priority "),
        ("stoker submit --on-oom big", "stoker submit --on-oom bigger "),
        ("stoker ls --state=hel", "stoker ls --state=held"),
        ("stoker ls --tag b", "stoker ls --tag baseline "),
        ("stoker show first", "stoker show first-model "),
        ("stoker daemon dr", "stoker daemon drain "),
        ("stoker submit --env-file tr", "stoker submit --env-file train.py"),
        ("stoker submit --cwd=da", "stoker submit --cwd=data"),
        ("stoker submit python tra", "stoker submit python train.py"),
        ("stoker sweep tra", "stoker sweep train.py"),
    ):
        shell.type(f"{typed}\t")
        shell.expect(completed)
        shell.clear_line()


def test_two_tabs_list_the_newest_job_first(shell: Shell) -> None:
    shell.type("stoker release \t\t")
    listed = shell.expect("first-model").partition("stoker release ")[2].split()
    assert listed.index("2") < (listed.index("1") if "1" in listed else len(listed))


def test_tab_is_silent_when_there_is_nothing_to_complete(shell: Shell) -> None:
    shell.type("stoker status nothing\t\tstoker show 99\t\tend")
    seen = shell.expect("end")
    assert "\n" not in seen


def test_zsh_shows_descriptions(queue: Lab) -> None:
    shell = Shell(queue, "zsh")
    try:
        shell.type("stoker release \t")
        shell.expect("2  -- held sleep 3")
        shell.expect("1  -- held first-model")
    finally:
        shell.close()


def test_fish_completes_with_descriptions(queue: Lab) -> None:
    has_shell("fish")
    (queue.folder / "stoker.fish").write_text(queue.ok("completion", "fish"))
    lines = (
        "stoker canc", "stoker release ", "stoker submit --on-oom b", "stoker ls --state=hel",
        "stoker submit --env-file=tr", "stoker submit --cwd da", "stoker submit python tra",
        "stoker show first",
    )  # fmt: skip
    script = "source stoker.fish\n" + "".join(f"complete -C '{line}'; echo ==\n" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], cwd=queue.folder, capture_output=True, text=True,
        env={**environment(queue), "HOME": str(queue.folder)}, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    found = [part.strip().split("\n") for part in done.stdout.split("==\n")][:-1]
    assert found[0][0].startswith("cancel\tcancel jobs")
    assert found[1][:2] == ["2\theld sleep 3", "1\theld first-model"]
    assert found[2:] == [
        ["bigger"], ["--state=held\tjobs in state held"], ["--env-file=train.py"],
        ["data/\tDirectory"], ["train.py"], ["first-model\tjob 1"],
    ]  # fmt: skip


def test_commands_of_the_documentation_work_as_typed(queue: Lab) -> None:
    pages.run(queue, "completion.md", HOME=str(queue.folder))
    script = queue.folder / ".local/share/bash-completion/completions/stoker"
    assert "complete -F _stoker stoker" in script.read_text()
