"""Shell completion with words of the queue, here and on a box."""

from __future__ import annotations

import subprocess
import sys

from tests.features.remote.ssh_box import SshBox


def complete(box: SshBox, *words: str) -> list[str]:
    """The completions of bash for the last word."""
    folder = box.folder / "bin"
    if not folder.exists():
        folder.mkdir()
        (folder / "stoker").write_text(f'#!/bin/sh\nexec {sys.executable} -m stoker "$@"\n')
        (folder / "stoker").chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in words)
    line = " ".join(words).replace(" = ", "=")  # bash makes = a word of its own
    script = (
        "source <(stoker completion bash)\n"
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        f"COMP_LINE='{line}'; COMP_POINT={len(line)}\n"
        '_stoker; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = {**box.here.env, "PATH": f"{folder}:{box.here.env['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=env, cwd=box.here.folder,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_jobs_of_the_box_are_completed(box: SshBox) -> None:
    box.there.submit("--hold", "--name", "on-the-box", "true")
    box.here.submit("--hold", "--name", "on-this-machine", "true")
    assert complete(box, "stoker", "--host", "box", "log", "on-") == ["on-the-box"]
    assert complete(box, "stoker", "--host", "=", "box", "log", "on-") == ["on-the-box"]
    assert complete(box, "stoker", "log", "on-") == ["on-this-machine"]
    assert "1" in complete(box, "stoker", "--json", "show", "")


def test_sweeps_of_the_box_are_completed(box: SshBox) -> None:
    box.there.ok("sweep", "--hold", "-n", "brave-otter", "echo {a}", "a=1")
    assert complete(box, "stoker", "--host", "box", "results", "br") == ["brave-otter"]
    assert complete(box, "stoker", "--host", "box", "sweep", "re") == ["resume", "rerun"]


def test_commands_options_and_hosts_are_completed(box: SshBox) -> None:
    box.here.ok("context", "add", "lab", "--host", "box")
    assert complete(box, "stoker", "--host", "box", "can") == ["cancel"]
    assert complete(box, "stoker", "--ho") == ["--host"]
    assert complete(box, "stoker", "--host", "") == ["lab", "local"]
    assert complete(box, "stoker", "context", "use", "la") == ["lab"]
    assert complete(box, "stoker", "--host", "box", "submit", "--sy") == ["--sync"]


def test_completion_without_a_connection_offers_the_fixed_words(box: SshBox) -> None:
    config = box.folder / "ssh_config"
    # An address that never answers, and a command that never ends.
    config.write_text(f"Host gone\n  ProxyCommand sleep 300\n{config.read_text()}")
    assert complete(box, "stoker", "--host", "gone", "log", "fa") == ["failed"]
    box.ok("ls")
    held = box.hold("before", "words")
    assert complete(box, "stoker", "--host", "box", "log", "fa") == ["failed"]
    held.unlink()
