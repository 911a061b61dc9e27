"""Metrics as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(Record):
    """One metric with its values, each with labels; values that are None are left out."""

    name: str
    kind: str  # gauge or counter
    help: str
    values: tuple[tuple[Mapping[str, object], float | None], ...]


def format_metrics(metrics: Iterable[Metric]) -> str:
    r"""Return the text of metrics; those without values are left out.

    >>> jobs = Metric("stoker_jobs", "gauge", "Jobs by state.", (({"state": 'a"b'}, 2),))
    >>> print(format_metrics([jobs]), end="")
    # HELP stoker_jobs Jobs by state.
    # TYPE stoker_jobs gauge
    stoker_jobs{state="a\"b"} 2
    """
    lines = []
    for metric in metrics:
        values = [(labels, value) for labels, value in metric.values if value is not None]
        if values:
            lines += [
                f"# HELP {metric.name} {metric.help}",
                f"# TYPE {metric.name} {metric.kind}",
                *(f"{metric.name}{_labels(labels)} {value:.15g}" for labels, value in values),
            ]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, object]) -> str:
    words = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    text = ",".join(words)
    return f"{{{text}}}" if text else ""


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
