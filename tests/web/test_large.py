"""The web API with many jobs in the database."""

from __future__ import annotations

import pytest

from tests.web.site import Site


@pytest.mark.timeout(600)
@pytest.mark.parametrize("jobs", [50_000, pytest.param(1_000_000, marks=pytest.mark.release)])
def test_api_works_with_many_jobs_in_the_database(site: Site, jobs: int) -> None:
    lines = "".join(f"python train.py --seed {n}\n" for n in range(jobs))
    site.lab.ok("submit", "-q", "--hold", "--file", "-", input=lines)
    running = site.lab.submit("sleep 1000")
    site.lab.wait_until(lambda: site.lab.state(running) == "running")

    seen = site.ok("/api/overview")
    assert isinstance(seen, dict)
    assert seen["counts"] == {"held": jobs, "running": 1}
    assert [job["id"] for job in seen["queue"]] == list(range(1, 201))
    site.ok("/api/jobs?limit=100")
    site.ok(f"/api/jobs?state=held&limit=100&before={jobs // 2}")
    site.ok("/api/jobs?q=nothing")
    site.ok(f"/api/jobs/{jobs // 2}")
