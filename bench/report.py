"""The result of a benchmark: Markdown for readers, records for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.conditions import Conditions, conditions_text


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    text: str
    records: Sequence[dict[str, Any]] = ()
    conditions: Sequence[Conditions] = ()

    def markdown(self) -> str:
        parts = [f"### {self.title}", self.text]
        if self.conditions:
            parts.append(conditions_text(self.conditions))
        return "\n\n".join(parts)

    def data(self) -> dict[str, Any]:
        return {"runs": self.records, "conditions": [asdict(one) for one in self.conditions]}
