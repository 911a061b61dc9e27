"""Git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}  # fmt: skip


class GitRepository:
    """A repository in a folder."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *words)

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words],
            cwd=self.folder,
            env={**os.environ, **_ENV},
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    def write(self, name: str, text: str = "x\n", mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def commit(self, **files: str) -> str:
        """Commit everything, after writing these files (`train_py` is train.py); its hash."""
        for name, text in files.items():
            self.write(name.replace("_", "."), text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")
