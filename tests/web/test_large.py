"""The web API with a million jobs in the database."""

from __future__ import annotations

import pytest

from tests.web.site import Site

_JOBS = 1_000_000


@pytest.mark.timeout(600)
def test_api_works_with_a_million_jobs_in_the_database(site: Site) -> None:
    lines = "".join(f"python train.py --seed {n}\n" for n in range(_JOBS))
    site.lab.ok("submit", "-q", "--hold", "--file", "-", input=lines)
    running = site.lab.submit("sleep 1000")
    site.lab.wait_until(lambda: site.lab.state(running) == "running")

    seen = site.ok("/api/overview")
    assert isinstance(seen, dict)
    assert seen["counts"] == {"held": _JOBS, "running": 1}
    assert [job["id"] for job in seen["queue"]] == list(range(1, 201))
    site.ok("/api/jobs?limit=100")
    site.ok("/api/jobs?state=held&limit=100&before=500000")
    site.ok("/api/jobs?q=nothing")
    site.ok(f"/api/jobs/{_JOBS // 2}")
