"""What a running job uses against its request: from the usage history, for every interface."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.boot import boot_id
from stoker.client.queue import Queue
from stoker.client.views.running_jobs import RunView, run_view
from stoker.client.views.why import why
from stoker.engine.model import Context, JobSpec, Request
from stoker.engine.store import attempts, job_queries, ready_jobs
from stoker.engine.store.submit import Submission
from stoker.engine.supervisor.logs import job_folder, progress_path
from stoker.features.history.job_usage import running_use
from stoker.features.history.store_usage import TraceWriter, TrackRow
from stoker.settings import Settings

GIB = 1 << 30
RAN = 1200.0


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue with one job that has run for twenty minutes."""
    queue = Queue(Settings(str(tmp_path / "state"), devices="2", cores=8, memory=64 * GIB))
    request = Request(2, memory=20 * GIB, cpus=8, host_memory=32 * GIB)
    context = Context(str(tmp_path), (), 0o022, "/bin/sh")
    now = time.time()
    Submission(queue.db).add([JobSpec(("train",), context, request=request)], now - RAN)
    group = ready_jobs.load_group(queue.db, ready_jobs.ready_groups(queue.db)[0])
    with queue.db.transaction():
        (job,) = ready_jobs.first(queue.db, group, 1, 0.0)
        assert attempts.claim(queue.db, attempts.Claim(1, job.id, 1, (0, 1), None, 1.0, boot_id()))
        attempts.record_start(queue.db, 1, 7, now - RAN, 1.0)
    yield queue
    queue.db.close()


def record(queue: Queue, ago: float, use: int, memory: int, cores: float, host: int) -> None:
    """One reading of the job, as the usage recorder writes it."""
    writer = TraceWriter(queue.settings.state_dir, 77)
    rows = [
        TrackRow("job_gpus", "1", (use, memory >> 20, None, None)),
        TrackRow("job_processes", "1", (round(cores * 1000), host >> 16)),
    ]
    writer.append(time.time() - ago, rows, lambda job: False)
    assert writer.error is None
    writer.close()


def test_why_and_the_web_ui_warn_about_a_job_that_uses_too_little(queue: Queue) -> None:
    record(queue, 900.0, 99, 39 * GIB, 8.0, 30 * GIB)  # before the window
    for ago in (500.0, 250.0, 5.0):
        record(queue, ago, 0, 6 * GIB, 0.4, GIB)
    row = job_queries.job(queue.db, 1)
    warnings = [
        "its 2 GPUs were at 0% for the last 10m00s: it may hang, or not use the GPU",
        "it uses 6.0 GiB of the 40 GiB of GPU memory that it requested",
        "it uses 0.4 of the 8 cores that it requested",
        "it uses 1.0 GiB of the 32 GiB of memory that it requested",
    ]
    assert why(queue.db, queue.settings, row)[1:] == warnings
    view = run_view(queue.db, queue.settings, row)
    assert view is not None
    assert list(view.warnings) == warnings
    assert view.gpu_memory_words == "6.0 GiB of 40 GiB"
    assert (view.gpu_memory, view.gpu_memory_requested) == (6 * GIB, 40 * GIB)


def test_job_of_an_earlier_attempt_is_not_judged_by_its_readings(queue: Queue) -> None:
    record(queue, 2 * RAN, 0, GIB, 0.1, GIB)
    use = running_use(queue.settings, job_queries.job(queue.db, 1))
    assert use is not None
    assert use.usage.readings == 0
    assert use.warnings == ()


def test_progress_of_a_running_job_has_a_bar_a_metric_and_an_end(queue: Queue) -> None:
    row = job_queries.job(queue.db, 1)
    path = Path(progress_path(job_folder(queue.settings.state_dir, row.id)))
    path.parent.mkdir(parents=True)
    path.write_text("step 250/1000")
    view = run_view(queue.db, queue.settings, row)
    assert view is not None and view.ends_at is not None
    assert (view.work, view.percent, view.is_reported) == ("step 250/1000 (25%)", 25.0, True)
    assert 3500 < view.ends_at - time.time() < 3700
    shown = view.as_json(view.ends_at - 60.0)
    assert (shown["ends_in"], shown["ends_by_limit"]) == (60.0, False)


def test_browser_gets_an_update_only_when_the_run_changed_visibly() -> None:
    old = RunView(work="step 1", percent=10.0, ends_at=1000.0)
    assert not old._replace(ends_at=1003.0, percent=10.4).differs(old, 0.0)
    assert old._replace(ends_at=1100.0).differs(old, 0.0)
    assert old._replace(percent=12.0).differs(old, 0.0)
    assert old._replace(warnings=("it hangs",)).differs(old, 0.0)
    assert old._replace(ends_at=None).differs(old, 0.0)
