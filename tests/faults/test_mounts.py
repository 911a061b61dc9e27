"""Paths that may hang are found from the mount table."""

from __future__ import annotations

import os
from pathlib import Path

from stoker.engine.supervisor.mounts import Mounts

TABLE = b"""\
22 1 254:0 / / rw - ext4 /dev/root rw
23 22 0:5 / /home rw - nfs4 server:/home rw
24 22 0:6 / /mnt/with\\040blank rw - fuse.sshfs host rw
25 23 0:7 / /home/me/local rw - xfs /dev/sdb rw
26 22 0:8 / /srv rw - nfs4 server:/srv rw
27 22 0:9 / /srv rw - ext4 /dev/sdc rw
"""


def test_paths_that_lead_to_a_network_file_system_may_hang(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE)
    mounts = Mounts(str(table))
    folder = os.fsencode(tmp_path)
    (tmp_path / "direct").symlink_to("/home/me")
    (tmp_path / "chain").symlink_to("direct/project")
    (tmp_path / "up").symlink_to("../../../../../../../../../../home")
    (tmp_path / "loop").symlink_to("loop")
    hang = (
        b"/home", b"/home/me/file", b"/mnt/with blank/x", b"//home//x", b"/tmp/../home/x",
        b"/home/me/local/x", folder + b"/direct/x", folder + b"/chain", folder + b"/up/x",
    )  # fmt: skip
    for path in hang:
        assert mounts.may_hang(path), path
    for path in (b"/", b"/homes/x", b"/srv/x", b"/mnt/with", folder + b"/loop", folder + b"/none"):
        assert not mounts.may_hang(path), path


def test_script_whose_interpreter_is_on_a_network_file_system_may_hang(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE)
    mounts = Mounts(str(table))
    script = tmp_path / "script"
    script.write_text("#! /home/me/venv/bin/python -u\n")
    assert mounts.any_may_hang([], [os.fsencode(script)])
    script = tmp_path / "other"
    script.write_text("#!/bin/sh\n")
    assert not mounts.any_may_hang([], [os.fsencode(script)])


def test_host_without_network_file_systems_follows_no_links(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE.splitlines(keepends=True)[0])
    mounts = Mounts(str(table))
    assert not mounts.may_hang(b"/home/me")
