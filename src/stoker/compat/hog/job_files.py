"""The output folder of each job of `hog`: INFO, OUT, ERR, and SUCCESS or FAILURE."""

from __future__ import annotations

import datetime
import os

from stoker.core.formats.byte_text import to_system
from stoker.core.record import Record

SUCCESS, FAILURE = "SUCCESS", "FAILURE"


class Folder(Record):
    """The folder of one job."""

    output_dir: str
    name: str  # prefix and number

    @property
    def path(self) -> str:
        return os.path.join(self.output_dir, self.name)

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def out(self) -> str:
        return self.file(f"{self.name}.OUT")

    @property
    def err(self) -> str:
        return self.file(f"{self.name}.ERR")

    @property
    def hooks(self) -> str:
        return self.file("HOOKS")

    def begin(self, gpu: str, command: str) -> None:
        """Create the folder and INFO before the job runs; removes the markers of an earlier run."""
        os.makedirs(os.path.dirname(self.out), exist_ok=True)
        for name in (SUCCESS, FAILURE, "HOOKS"):
            try:
                os.unlink(self.file(name))
            except FileNotFoundError:
                pass
        self._write_info("wb", f"{self._header(gpu)}command: {command}\n")

    def finish(
        self, is_good: bool, code: int, began: datetime.datetime, ended: datetime.datetime
    ) -> None:
        self._write_info("ab", f"exit code: {code}\nstarted: {began}\nended: {ended}\n")
        with open(self.file(SUCCESS if is_good else FAILURE), "wb"):
            pass

    def has_succeeded(self, command: str) -> bool:
        """Whether an earlier run of the same command succeeded in this folder."""
        if not os.path.exists(self.file(SUCCESS)):
            return False
        try:
            with open(self.file("INFO"), "rb") as file:
                text = os.fsdecode(file.read())
        except OSError:
            return False
        recorded = text.partition("\ncommand: ")[2]
        return recorded == f"{command}\n" or recorded.startswith(f"{command}\nexit code: 0\n")

    def _header(self, gpu: str) -> str:
        return f"job name: {self.name}\nran on gpu: {gpu}\n"

    def _write_info(self, mode: str, text: str) -> None:
        with open(self.file("INFO"), mode) as file:
            file.write(to_system(text))
