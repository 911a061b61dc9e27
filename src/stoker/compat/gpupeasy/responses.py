"""JSON responses of the server, with the keys and messages of the original."""

from __future__ import annotations

from typing import Any

from stoker.store.job_queries import JobRow

Response = dict[str, Any]


def successful(**fields: object) -> Response:
    return {"status": "successful", **fields}


def failed(message: str) -> Response:
    return {"status": "failed", "message": message}


def missing(id: str) -> Response:
    return {"status": "failed", "value": {}, "message": f"Job (jobid :{id[:40]}) not found"}


def listed(value: list[Response], hidden: int) -> Response:
    return successful(value=value, **({"hidden": hidden} if hidden > 0 else {}))


def brief(row: JobRow) -> Response:
    return {"jobID": row.id, "jobName": row.name, "jobCommand": command(row)}


def command(row: JobRow) -> str:
    return " ".join(row.argv)
