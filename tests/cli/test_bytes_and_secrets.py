"""Bytes that are not UTF-8 are preserved, and environments and state files stay private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.cli.helpers import as_json
from tests.lab import Lab

ODD = b"caf\xe9 \xff\xfe"
ODD_TEXT = os.fsdecode(ODD)


def test_arguments_that_are_not_utf8_reach_the_program(lab: Lab) -> None:
    done = lab.run("submit", "-q", "printf", "%s", ODD)
    job = int(done.stdout)
    assert lab.wait(job) == 0
    assert Path(lab.ok("log", "--path", str(job)).strip()).read_bytes() == ODD
    assert lab.job(job)["argv"] == ["printf", "%s", ODD_TEXT]


def test_names_tags_and_folders_that_are_not_utf8_are_kept(lab: Lab) -> None:
    place = os.path.join(os.fsencode(lab.folder), ODD)
    os.mkdir(place)
    done = lab.run(
        "submit", "-q", "-n", ODD, "-T", ODD, "-C", place, "-o", ODD + b".out", "pwd; true"
    )
    assert done.returncode == 0, done.stderr
    assert lab.run("wait", "-q", ODD).returncode == 0
    with open(os.path.join(place, ODD + b".out"), "rb") as file:
        assert file.read() == place + b"\n"
    job = lab.job(1)
    assert (job["name"], job["tags"], job["cwd"]) == (ODD_TEXT, [ODD_TEXT], os.fsdecode(place))
    path = lab.run("log", "--path", "1").stdout
    assert os.fsencode(path) == os.path.join(place, ODD + b".out\n")


def test_bytes_that_are_not_utf8_are_shown_escaped(lab: Lab) -> None:
    lab.run("submit", "--hold", "-n", b"\x1b[31mred\n\xff", "echo", "\u202etxt.exe")
    assert lab.ok("ls") == (
        "ID  STATE  TIME  GPU  NAME               COMMAND\n"
        "1   held   -     (1)  \\x1b[31mred\\n\\xff  echo '\\u202etxt.exe'\n"
    )


def test_state_folder_may_have_a_name_that_is_not_utf8(lab: Lab) -> None:
    place = os.fsdecode(os.path.join(os.fsencode(lab.folder), b"q\xff"))
    lab.env["STOKER_STATE_DIR"] = place
    lab.state_dir = Path(place)
    job = lab.submit("echo hello")
    assert lab.wait(job) == 0
    assert lab.log(job) == "hello\n"
    assert lab.run("doctor").returncode == 0


def test_terminal_without_unicode_gets_escapes(lab: Lab) -> None:
    lab.submit("--hold", "-n", "größe", "true")
    done = lab.run("ls", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "gr\\xf6\\xdfe" in done.stdout


def test_environment_is_never_shown(lab: Lab) -> None:
    secret = "correct-horse-battery"
    (lab.folder / "vars").write_text(f"FROM_FILE={secret}\n")
    job = lab.submit("--env-file", "vars", "-E", f"BY_FLAG={secret}", "true", BY_SHELL=secret)
    assert lab.wait(job) == 0
    for line in (
        "ls", "show 1", "status", "why 1", "log 1", "doctor", "daemon status",
        f"submit --dry-run -E K={secret} x",
    ):  # fmt: skip
        verb, *rest = line.split()
        for words in ([verb, *rest], [verb, "--json", *rest]):
            done = lab.run(*words)
            assert done.returncode == 0, done.stderr
            assert secret not in done.stdout + done.stderr
            assert "BY_SHELL" not in done.stdout + done.stderr


def test_all_files_in_the_state_folder_are_private(lab: Lab) -> None:
    before = os.umask(0)
    try:
        job = lab.submit("-r", "1", "echo out; exit 1", STOKER_RETRY_DELAY="0")
        assert lab.wait(job) == 1
        (lab.folder / "jobs").write_text("true\n" * 3)
        assert lab.run("run", "jobs").returncode == 0
        assert lab.run("run", "--", "true").returncode == 0
    finally:
        os.umask(before)
    seen = 0
    for folder, folders, files in os.walk(lab.state_dir):
        modes = {path: os.lstat(os.path.join(folder, path)).st_mode for path in files + folders}
        modes["."] = os.lstat(folder).st_mode
        for path, mode in modes.items():
            wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
            assert stat.S_IMODE(mode) == wanted, os.path.join(folder, path)
            seen += 1
    assert seen > 15


def test_output_file_of_the_user_has_the_umask_of_the_user(lab: Lab) -> None:
    before = os.umask(0o022)
    try:
        job = lab.submit("-o", "out", "echo x > other")
    finally:
        os.umask(before)
    assert lab.wait(job) == 0
    modes = [stat.S_IMODE((lab.folder / name).stat().st_mode) for name in ("out", "other")]
    assert [oct(mode) for mode in modes] == ["0o644", "0o644"]


def test_job_does_not_get_the_environment_of_the_daemon(lab: Lab) -> None:
    lab.ok("daemon", "start", LEAK="from the daemon")
    job = lab.submit("echo [$LEAK]")
    assert lab.wait(job) == 0
    assert lab.log(job) == "[]\n"
    assert as_json(lab.ok("ls", "--json"))["jobs"][0]["id"] == job
