"""Marker for tests that mount file systems."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def _can_mount() -> bool:
    """Whether we can mount file systems in a new mount namespace."""
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    if not all(map(shutil.which, ("unshare", "mount"))):
        return False
    return subprocess.call(words, stderr=subprocess.DEVNULL) == 0


needs_mount = pytest.mark.skipif(not _can_mount(), reason="needs to mount file systems")
