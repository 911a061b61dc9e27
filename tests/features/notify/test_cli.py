"""`stoker notify` and `--notify` on the command line."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.helpers import Terminal, as_json, refused
from tests.features.notify.receivers import WebServer, program
from tests.lab import Lab


def test_places_are_added_listed_tested_and_removed(lab: Lab, web: WebServer) -> None:
    path = lab.folder / "settings.toml"
    text = lab.ok("notify", "add", "hook", web.url("/topsecret"))
    assert text == (
        f"added the place hook (http://127.0.0.1:{web.port}/***) in {path}\n"
        "notifications that do not name a place go to: hook\n"
        "try it with: stoker notify test hook\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600
    lab.ok("notify", "add", "mail", "mailto:a@b.org")
    lab.ok("notify", "add", "--force", "--default", "hook", web.url("/topsecret"))
    listed = as_json(lab.ok("notify", "--json"))
    assert listed["places"][1:] == [
        {"name": "mail", "kind": "e-mail", "url": "mailto:a@b.org", "default": False},
        {"name": "hook", "kind": "webhook", "url": f"http://127.0.0.1:{web.port}/***",
         "default": True},
    ]  # fmt: skip
    assert lab.ok("notify", "test") == "ok      hook\n"
    assert web.posts[0]["subject"].startswith("test message from ")
    for words in (["ls"], ["ls", "--json"], ["log"], ["log", "--json"]):
        assert "topsecret" not in lab.ok("notify", *words)
    assert lab.ok("notify", "rm", "hook") == "removed the place hook\n"
    assert "topsecret" not in path.read_text()


def test_address_can_be_given_without_the_command_line(lab: Lab) -> None:
    lab.ok("notify", "add", "a", "-", input="https://example.org/x\n")
    terminal = Terminal(lab, "notify", "add", "b")
    terminal.read_until("address of b (not shown): ")
    terminal.write(b"https://example.org/topsecret\n")
    assert terminal.close() == 0
    assert "topsecret" not in terminal.text
    assert "example.org/topsecret" in (lab.folder / "settings.toml").read_text()


def test_place_that_does_not_work_is_reported_by_its_test(lab: Lab, web: WebServer) -> None:
    lab.ok("notify", "add", "hook", web.url("/topsecret"))
    web.close()
    done = lab.run("notify", "test", "hook")
    assert done.returncode == 1
    assert done.stdout.startswith("failed  hook: cannot reach the server: ")
    result = as_json(lab.run("notify", "test", "--json").stdout)
    assert result["ok"] is False and result["results"][0]["place"] == "hook"


def test_mistakes_are_explained(lab: Lab) -> None:
    refused(
        lab.run("notify", "ad"), 2, "`ad` is not an action of `stoker notify`",
        "actions: ls, add, rm, test, log, retry",
    )  # fmt: skip
    refused(lab.run("notify", "rm"), 2, "NAME is missing", "usage: stoker notify rm NAME")
    refused(
        lab.run("notify", "rm", "x"), 1, "there is no place `x` for notifications",
        "`stoker notify ls` shows the places",
    )  # fmt: skip
    refused(
        lab.run("notify", "add", "desktop", "mailto:a@b"), 2,
        "`desktop` cannot be the name of a place",
        "use letters, digits, `-` and `_`; `desktop` is there already",
    )  # fmt: skip
    refused(
        lab.run("submit", "--notify", "end", "true"), 2,
        "`--notify`: there is no place for notifications yet",
        "add one: stoker notify add NAME URL; or name this desktop: end:desktop",
    )  # fmt: skip
    refused(
        lab.run("submit", "--notify", "ended", "true"), 2,
        "`--notify`: `ended` is not an event that notifies", "did you mean `end`?",
    )  # fmt: skip
    refused(
        lab.run("run", "--notify", "time-limit:desktop", "true"), 2,
        "`--notify`: `time-limit` needs the daemon; a foreground run notifies when it ends",
        "submit the job, or remove it",
    )  # fmt: skip
    done = lab.run("notify", "add", "x", "nosuchservice://y")
    assert (done.returncode, "Apprise does not know" in done.stderr) == (2, True)


def test_secrets_are_not_written_to_a_file_that_others_can_read(lab: Lab) -> None:
    path = lab.folder / "settings.toml"
    path.write_text("")
    path.chmod(0o644)
    refused(
        lab.run("notify", "add", "x", "https://example.org/topsecret"), 77,
        f"the settings file `{path}` contains secrets and can be read by other users (mode 644)",
        f"make it private: chmod 600 {path}",
    )  # fmt: skip
    assert path.read_text() == ""


def test_option_is_shown_edited_copied_and_read_from_files(lab: Lab, tmp_path: Path) -> None:
    job = lab.submit(
        "--hold", "--notify", "failure:desktop", "--notify", "gpu-lost:desktop", "true"
    )
    rules = ["failure:desktop", "gpu-lost:desktop"]
    assert lab.job(job)["notify"] == rules
    assert "notifies    failure:desktop, gpu-lost:desktop\n" in lab.ok("show", str(job))
    lab.ok("edit", str(job), "--notify", "end:desktop")
    assert lab.job(job)["notify"] == ["end:desktop"]
    lab.ok("cancel", str(job))
    (copy,) = as_json(lab.ok("rerun", "--hold", "--json", str(job)))["jobs"]
    assert lab.job(copy)["notify"] == ["end:desktop"]
    lab.ok("edit", str(copy), "--notify", "none")
    assert lab.job(copy)["notify"] == []
    (tmp_path / "jobs").write_text("#stoker --hold --notify failure:desktop\ntrue\n")
    (one,) = as_json(lab.ok("submit", "--json", "--dry-run", "-f", str(tmp_path / "jobs")))[
        "dry_run"
    ]
    assert one["notify"] == ["failure:desktop"]
    assert "notifies end:desktop" in lab.ok(
        "submit", "--dry-run", "--notify", "end:desktop", "true"
    )


def test_wait_notifies_the_desktop_when_the_jobs_finished(lab: Lab, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    program(programs, "notify-send", f'printf "%s\\n" "$@" >> {tmp_path}/shown')
    lab.env |= {"PATH": f"{programs}:{os.environ['PATH']}", "DBUS_SESSION_BUS_ADDRESS": "unix:x"}
    job = lab.submit("--name", "train", "exit 3")
    assert lab.run("wait", "--notify", str(job)).returncode == 3
    assert "train failed after" in (tmp_path / "shown").read_text()
    lab.submit("exit 4")
    assert lab.run("wait", "--notify").returncode == 1
    assert "all jobs finished: 1 failed" in (tmp_path / "shown").read_text()


def test_wait_notifies_a_place_and_after_a_timeout(lab: Lab, web: WebServer) -> None:
    lab.ok("notify", "add", "hook", web.url())
    refused(
        lab.run("wait", "--notify=hoko"), 2, "there is no place `hoko` for notifications",
        "did you mean `hook`?",
    )  # fmt: skip
    job = lab.submit("--hold", "true")
    assert lab.run("wait", "--notify=hook", "--timeout", "0.1s", str(job)).returncode == 124
    assert [post["subject"] for post in web.posts] == ["1 job has not finished after 0.1s"]


def test_wait_notifies_the_terminal_without_a_desktop(lab: Lab) -> None:
    lab.env |= {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(lab.folder)}
    lab.env.pop("DBUS_SESSION_BUS_ADDRESS", None)
    job = lab.submit("--name", "a\x1b[2Jb", "true")
    terminal = Terminal(lab, "wait", "--notify", str(job))
    assert terminal.close() == 0
    assert "\x1b]9;a\\x1b[2Jb finished after" in terminal.text and "\a" in terminal.text
