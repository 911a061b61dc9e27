"""`stoker context`: names for boxes, and the one that commands use."""

from __future__ import annotations

import json

import pytest

from tests.cli.helpers import refused
from tests.features.remote.ssh_box import SshBox


def test_context_has_a_host_a_folder_and_a_program(box: SshBox) -> None:
    (box.home / "my work").mkdir()
    program = box.folder / "there" / "bin" / "stoker"
    program.rename(box.home / "its stoker")
    box.here.ok(
        "context", "add", "lab", "--host", "gpu-box", "--dir", "~/my work",
        "--stoker", "~/its stoker", "--ssh-option", "ConnectTimeout=5",
    )  # fmt: skip
    job = int(box.here.ok("--host", "lab", "submit", "-q", "pwd"))
    assert box.there.wait(job) == 0
    assert box.there.log(job) == f"{box.home}/my work\n"
    done = box.here.run("--host", "gpu-box", "ls")
    assert "no `stoker` in the PATH" in done.stderr


def test_missing_folder_of_a_context_is_an_error(box: SshBox) -> None:
    box.here.ok("context", "add", "lab", "--host", "box", "--dir", "/no such/folder")
    hint = "create it there, or name another: stoker context add lab --host box --dir DIR"
    done = box.here.run("--host", "lab", "ls")
    refused(done, 69, "there is no folder `/no such/folder` on lab", hint)


def test_context_in_use_gets_all_commands(box: SshBox) -> None:
    box.here.ok("context", "add", "lab", "--host", "box")
    assert box.here.ok("context", "use", "lab") == "commands now run on lab\n"
    job = int(box.here.ok("submit", "-q", "true"))
    assert box.here.run("wait", str(job)).returncode == 0
    assert box.there.states() == {job: "done"}
    assert json.loads(box.here.ok("--host", "local", "ls", "--json"))["jobs"] == []
    assert json.loads(box.here.ok("ls", "--json", STOKER_CONTEXT="local"))["jobs"] == []
    box.here.ok("context", "use", "local")
    assert box.here.states() == {}
    box.here.ok("context", "use", "lab")
    box.here.ok("context", "rm", "lab")
    assert box.here.states() == {}


def test_context_list_marks_the_one_in_use(box: SshBox) -> None:
    box.here.ok("context", "add", "lab", "--host", "me@gpu-box", "--dir", "/data")
    assert box.here.ok("context") == (
        "   NAME   HOST            DIR\n*  local  (this machine)\n   lab    me@gpu-box      /data\n"
    )
    box.here.ok("context", "use", "lab")
    found = json.loads(box.here.ok("context", "ls", "--json"))["contexts"]
    assert [(one["name"], one["host"], one["current"]) for one in found] == [
        ("local", None, False), ("lab", "me@gpu-box", True)]  # fmt: skip


def test_files_of_contexts_are_private(box: SshBox) -> None:
    box.here.ok("context", "add", "lab", "--host", "box")
    box.here.ok("context", "use", "lab")
    for name in ("contexts.json", "current-context"):
        assert (box.here.folder / name).stat().st_mode & 0o777 == 0o600


def test_job_on_the_box_does_not_use_the_context_of_the_box(box: SshBox) -> None:
    """A user whose box has a context of its own in use still gets the box."""
    box.there.ok("context", "add", "elsewhere", "--host", "nowhere.invalid")
    box.there.ok("context", "use", "elsewhere")
    job = int(box.ok("submit", "-q", f"{' '.join(box.there.command)} ls --json"))
    assert box.run("wait", str(job)).returncode == 0
    assert [one["id"] for one in json.loads(box.ok("log", str(job)))["jobs"]] == [job]


def test_mistakes_are_usage_errors(box: SshBox) -> None:
    run = box.here.run
    refused(run("context", "add", "lab"), 2, "`stoker context add` needs `--host`",
            "example: stoker context add lab --host user@gpu-box")  # fmt: skip
    refused(run("context", "use", "lab"), 1, "there is no context `lab`",
            "`stoker context ls` lists them")  # fmt: skip
    refused(run("ls", STOKER_CONTEXT="lab"), 1, "there is no context `lab`",
            "`stoker context ls` lists them")  # fmt: skip
    refused(run("context", "start"), 2, "`start` is not an action of `stoker context`",
            "actions: ls, add, use, rm")  # fmt: skip
    refused(run("context", "add", "lab", "--host", "x", "--ssh-option", "Port"), 2,
            "`--ssh-option Port` is not KEY=VALUE", "example: Port=2222")  # fmt: skip
    refused(run("context", "ls", "--host", "x"), 2,
            "`--host` is an option of `stoker context add`, not of `ls`")  # fmt: skip


@pytest.mark.parametrize("name", ["local", "a b", "-x", "a/b"])
def test_name_with_special_characters_is_refused(box: SshBox, name: str) -> None:
    done = box.here.run("context", "add", "--host", "box", "--", name)
    assert done.returncode == 2
    assert f"`{name}` is not a name of a context" in done.stderr


def test_damaged_file_is_named(box: SshBox) -> None:
    (box.here.folder / "contexts.json").write_text("{")
    done = box.here.run("context", "ls")
    assert done.returncode == 2
    assert "contexts.json" in done.stderr
