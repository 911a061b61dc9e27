"""What a benchmark hands back: text for people, records for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    text: str
    records: list[dict[str, Any]]

    def markdown(self) -> str:
        return f"### {self.title}\n\n{self.text}"
