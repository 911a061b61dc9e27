"""The changes that `why` suggests, made in a real database: the next decision starts the job."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from stoker.boot import boot_id
from stoker.client.queue import Queue
from stoker.client.submit.job_options import as_keyword
from stoker.client.submit.option_values import MEMORY
from stoker.client.submit.request_edits import changed_request
from stoker.client.views.why import QueueView
from stoker.engine.daemon.queue_snapshot import load_snapshot
from stoker.engine.daemon.status import known_resources
from stoker.engine.model import Context, JobSpec, Request
from stoker.engine.policy.decide import MAX_JOBS_PER_GROUP, decide, limit_waiting_jobs
from stoker.engine.policy.what_if import WhatIf
from stoker.engine.store import attempts, job_queries, ready_jobs
from stoker.engine.store.submit import Submission
from stoker.settings import Settings

GPUS = 4


def make_queue(folder: Path, seed: int) -> Queue:
    """A queue with some running jobs on four GPUs and many waiting ones."""
    choose = random.Random(seed)
    settings = Settings(str(folder / f"state{seed}"), devices=str(GPUS), cores=16, cpu_slots=4)
    queue = Queue(settings)
    context = Context(str(folder), (), 0o022, "/bin/sh")
    busy = choose.randint(1, GPUS - 1)
    running = [JobSpec(("run",), context, request=Request(1), time_limit=3600.0)] * busy
    now = time.time()
    Submission(queue.db).add(running, now - 60.0)
    group = ready_jobs.load_group(queue.db, ready_jobs.ready_groups(queue.db)[0])
    with queue.db.transaction():
        for gpu, job in enumerate(ready_jobs.first(queue.db, group, busy, 0.0)):
            claim = attempts.Claim(gpu + 1, job.id, 1, (gpu,), None, 1.0, boot_id())
            assert attempts.claim(queue.db, claim)
            attempts.record_start(queue.db, gpu + 1, 7, now - 60.0, time.monotonic() - 60.0)
    waiting = [
        JobSpec(
            ("wait", str(number)),
            context,
            request=Request(choose.choice((0, 1, 2, 3, 4, 4)), cpus=choose.choice((0, 0, 2, 12))),
            time_limit=choose.choice((None, None, 7200.0)),
            priority=choose.choice((0, 0, 1)),
        )
        for number in range(choose.randint(3, 40))
    ]
    Submission(queue.db).add(waiting, now - 30.0)
    return queue


def apply(queue: Queue, job: int, what_if: WhatIf) -> None:
    fields = dict(what_if.change.fields)
    limit = fields.pop("time_limit", None)
    if "mem" in fields:
        fields["mem"] = MEMORY.parse(str(fields["mem"]))
    request = changed_request(job_queries.job(queue.db, job).request, fields, as_keyword)
    queue.edit(job, {} if limit is None else {"time_limit": limit}, request)


def started(queue: Queue) -> set[int]:
    """The jobs that the daemon would start now."""
    now = time.monotonic()
    snapshot, _ = load_snapshot(
        queue.db, now, time.time() - now, queue.devices(), {}, 4, MAX_JOBS_PER_GROUP,
        known_resources(queue.db, queue.settings),
    )  # fmt: skip
    return {start.job for start in decide(limit_waiting_jobs(snapshot)).starts}


@pytest.mark.parametrize("seed", range(12))
def test_suggested_edit_starts_the_job(tmp_path: Path, seed: int) -> None:
    queue = make_queue(tmp_path, seed)
    view = QueueView(queue.db, queue.settings)
    found = [
        (row.id, what_if)
        for row in job_queries.jobs_in_states(queue.db, ("queued",), 100)
        for what_if in view.what_ifs(row)
        if row.id not in started(queue) and not what_if.starts_in
    ]
    if found:
        job, what_if = random.Random(seed).choice(found)
        apply(queue, job, what_if)
        assert job in started(queue), what_if
    queue.db.close()


def test_some_of_these_queues_have_suggestions(tmp_path: Path) -> None:
    counts = []
    for seed in range(4):
        queue = make_queue(tmp_path, seed)
        view = QueueView(queue.db, queue.settings)
        rows = job_queries.jobs_in_states(queue.db, ("queued",), 100)
        counts.append(sum(len(view.what_ifs(row)) for row in rows))
        queue.db.close()
    assert sum(counts) > 0
