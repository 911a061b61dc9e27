"""The texts of messages."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.features.notify.message import (
    Notice,
    Sender,
    compose,
    masked_command,
    sentence,
    subject_of,
)

SENDER = Sender("gpu1", "ada")


def ended(job: int, state: str = "done", **data: Any) -> Notice:
    return Notice("end", job, {"title": f"job {job}", "state": state, **data})


@pytest.mark.parametrize(
    ("kind", "job", "data", "text"),
    [
        ("end", 7, {"title": "a", "state": "done", "seconds": 75}, "a finished after 1m15s"),
        ("failure", 7, {"title": "a", "state": "lost", "result": "no exit record"},
         "a was lost: no exit record"),
        ("end", 7, {"title": "a", "state": "cancelled", "result": "by the user"},
         "a was cancelled: by the user"),
        ("first-failure", 7, {"title": "a lr=1", "state": "failed", "result": "exit 1",
                              "group": "sweep x"},
         "first failure of sweep x: a lr=1 failed: exit 1"),
        ("sweep-end", None, {"title": "sweep x", "counts": {"failed": 2, "done": 35},
                             "seconds": 7260}, "sweep x finished after 2h01m: 35 done, 2 failed"),
        ("sweep-end", None, {"title": "sweep x", "counts": {"cancelled": 1}, "stopped": "by user"},
         "sweep x was stopped: 1 cancelled"),
        ("gpu-lost", 7, {"title": "train", "seconds": 30}, "train lost its GPU after 30s"),
        ("gpu-lost", None, {"gpu": "3 (H200)", "why": "the driver reported Xid 79"},
         "GPU 3 (H200) is not used any more: the driver reported Xid 79"),
    ],
)  # fmt: skip
def test_event_is_one_sentence(kind: str, job: int | None, data: dict[str, Any], text: str) -> None:
    assert sentence(Notice(kind, job, data)) == text


def test_many_ends_are_counted() -> None:
    notices = [ended(n, "failed" if n in (3, 9) else "done") for n in range(1, 38)]
    message = compose(notices, SENDER)
    assert message["subject"] == "37 jobs ended: 35 done, 2 failed"
    lines = message["body"].splitlines()
    assert lines[:3] == ["job 3: job 3 failed", "job 9: job 9 failed", "job 1: job 1 finished"]
    assert "and 17 more" in lines
    assert message["count"] == 37 and len(message["events"]) == 37


def test_different_events_are_named_in_one_subject() -> None:
    sweep = Notice("sweep-end", None, {"title": "sweep x", "counts": {"done": 2}})
    assert subject_of([ended(1), ended(2), sweep]) == (
        "2 jobs ended: 2 done; sweep x finished: 2 done"
    )
    gpus = [Notice("gpu-lost", n, {"title": f"job {n}"}) for n in range(4)]
    assert subject_of([ended(1), *gpus]) == (
        "job 1 finished; job 0 lost its GPU; job 1 lost its GPU; 2 more events"
    )


def test_control_characters_and_long_titles_do_not_reach_the_receiver() -> None:
    title = "x\r\nBcc: a@b.org\x1b[2J" + "y" * 500
    message = compose([ended(1, title=title)], SENDER)
    assert message["subject"].isprintable() and len(message["subject"]) <= 160
    assert "Bcc" in message["subject"] and "\n" not in message["subject"]


def test_details_of_one_job_are_in_the_body() -> None:
    facts: dict[str, Any] = {
        "name": "train", "command": "python t.py", "cwd": "/home/ada", "place": "GPU 0",
        "log": "/x/1.log", "link": "http://gpu1/#/jobs/7", "log_lines": ["a", "b"],
    }  # fmt: skip
    assert compose([ended(7, **facts)], SENDER)["body"].splitlines() == [
        "job: 7 (train)", "host: gpu1 (user ada)", "runs on: GPU 0", "folder: /home/ada",
        "command: python t.py", "log: /x/1.log", "link: http://gpu1/#/jobs/7", "",
        "last lines of its log:", "a", "b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("HF_TOKEN=abc python t.py", "HF_TOKEN=*** python t.py"),
        ("t.py --api-key 'a b' --lr 1", "t.py --api-key *** --lr 1"),
        ("t.py --password=x", "t.py --password=***"),
        ("psql postgres://me:pw@db/x", "psql postgres://***@db/x"),
        (
            "t.py --author me --num_tokens 5 --passes 2",
            "t.py --author me --num_tokens 5 --passes 2",
        ),
    ],
)
def test_secrets_with_a_telling_name_are_masked(command: str, shown: str) -> None:
    assert masked_command(command) == shown
