"""What the server answers: dictionaries that become JSON, with the keys that clients know."""

from __future__ import annotations

from typing import Any

from stoker.store.job_queries import JobRow

Answer = dict[str, Any]


def successful(**fields: object) -> Answer:
    return {"status": "successful", **fields}


def failed(message: str) -> Answer:
    return {"status": "failed", "message": message}


def missing(id: str) -> Answer:
    return {"status": "failed", "value": {}, "message": f"Job (jobid :{id[:40]}) not found"}


def listed(value: list[Answer], hidden: int) -> Answer:
    return successful(value=value, **({"hidden": hidden} if hidden > 0 else {}))


def brief(row: JobRow) -> Answer:
    return {"jobID": row.id, "jobName": row.name, "jobCommand": command(row)}


def command(row: JobRow) -> str:
    return " ".join(row.argv)
