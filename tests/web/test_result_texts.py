"""The server sends the texts that say how jobs and attempts ended; the web UI only shows them."""

from __future__ import annotations

import pytest

from stoker.client.views.job import attempt_words
from tests.web.site import Site


@pytest.mark.parametrize(
    ("cause", "status", "text"),
    [
        (None, 3 << 8, "exit 3"),
        ("signal", 9, "killed by SIGKILL"),
        ("gpu_oom", 1 << 8, "out of GPU memory, exit 1"),
        ("gpu_oom", 9, "out of GPU memory, killed by SIGKILL"),
        ("missing_script", 2 << 8, "script not found (exit 2)"),
        (None, None, "no exit record"),
    ],
)
def test_attempt_text_has_cause_and_exit_code_or_signal(
    cause: str | None, status: int | None, text: str
) -> None:
    assert attempt_words(cause, status, None) == text


def test_api_sends_the_result_texts_of_job_and_attempts(site: Site) -> None:
    failed = site.lab.submit("--hold", "exit 3")
    after = site.lab.submit("--after", str(failed), "true")
    site.lab.ok("release", str(failed))
    site.lab.wait(failed)
    site.lab.wait_until(lambda: site.lab.state(after) == "cancelled")
    shown = site.ok(f"/api/jobs/{failed}")["job"]
    assert shown["result"] == "exit 3"
    assert [attempt["result"] for attempt in shown["history"]] == ["exit 3"]
    listed = {job["id"]: job["result"] for job in site.ok("/api/jobs")["jobs"]}
    assert listed == {failed: "exit 3", after: f"job {failed} failed"}
