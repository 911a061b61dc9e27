"""Delivery by the real daemon and notifier, also when they are killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.features.notify.receivers import WebServer
from tests.lab import Lab, wait_until


def settle(lab: Lab, when: str = "", **places: str) -> None:
    """Write settings with these places, without pauses between messages."""
    lines = ["[notify]", "interval = 0", f"when = '{when}'"]
    for name, url in places.items():
        lines += [f"[notify.places.{name}]", f"url = '{url}'"]
    path = lab.folder / "settings.toml"
    path.write_text("\n".join(lines))
    path.chmod(0o600)


def messages(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lab.ok("notify", "log", "--json"))["messages"]
    return found


def wait_for_sent(lab: Lab, number: int) -> list[dict[str, Any]]:
    wait_until(lambda: [one["state"] for one in messages(lab)] == ["sent"] * number)
    return messages(lab)


def fail_once(lab: Lab, point: str) -> Callable[[], bool]:
    """Kill a process when it passes a failpoint; returns whether that has happened."""
    once = lab.folder / "once"
    once.touch()
    lab.env |= {"STOKER_FAILPOINT": point, "STOKER_FAILPOINT_ONCE": str(once)}
    return lambda: not once.exists()


def test_jobs_of_the_queue_notify_by_option_and_by_default(lab: Lab, web: WebServer) -> None:
    settle(lab, when="failure:hook", hook=web.url())
    first = lab.submit("--notify", "end", "--name", "train", "true")
    lab.wait()
    wait_until(lambda: len(web.posts) == 1)
    assert web.posts[0]["subject"].startswith("train finished after")
    assert web.posts[0]["events"][0]["job"] == first
    lab.submit("true")
    lab.submit("--notify", "none", "false")
    last = lab.submit("exit 3")
    lab.wait()
    sent = wait_for_sent(lab, 2)
    assert [one["jobs"] for one in sent] == [[first], [last]]
    assert web.posts[1]["subject"] == sent[1]["subject"]
    assert len({post["id"] for post in web.posts}) == 2


def test_sweep_announces_its_first_failure_and_its_end(lab: Lab, web: WebServer) -> None:
    settle(lab, hook=web.url())
    lab.ok("sweep", "--name", "otter", "--notify", "first-failure,sweep-end", "-G0", "-q",
           "exit {code}", "code=0,1,2")  # fmt: skip
    lab.wait()
    wait_until(lambda: any("otter finished" in post["subject"] for post in web.posts))
    events = [event for post in web.posts for event in post["events"]]
    assert sorted(event["when"] for event in events) == ["first-failure", "sweep-end"]
    assert next(e for e in events if e["when"] == "sweep-end")["counts"] == {"done": 1, "failed": 2}


def test_failed_delivery_is_repeated_until_the_receiver_accepts_it(
    new_lab: Callable[..., Lab], new_web: Callable[..., WebServer]
) -> None:
    lab = new_lab(STOKER_RETRY_DELAY="0.01")
    web = new_web(lambda n: (503 if n < 3 else 200, None))
    settle(lab, hook=web.url("/topsecret"))
    lab.submit("--notify", "end", "true")
    (message,) = wait_for_sent(lab, 1)
    assert (message["tries"], message["error"]) == (3, None)
    assert web.posts[0] == web.posts[1] == web.posts[2]


def test_refused_delivery_is_given_up_shown_and_retried_on_request(
    new_lab: Callable[..., Lab], new_web: Callable[..., WebServer]
) -> None:
    lab = new_lab()
    web = new_web(lambda n: (404 if n == 1 else 200, None))
    settle(lab, hook=web.url("/topsecret"))
    lab.submit("--notify", "end", "true")
    wait_until(lambda: [one["state"] for one in messages(lab)] == ["failed"])
    text = lab.ok("notify", "log", "--failed")
    assert "message 1: the server answered HTTP 404" in text and "topsecret" not in text
    assert lab.ok("notify", "retry") == "1 message will be sent again\n"
    wait_for_sent(lab, 1)
    log = (lab.state_dir / "daemon.log").read_text()
    assert "topsecret" not in log


def test_hanging_receiver_delays_neither_jobs_nor_other_places(
    lab: Lab, new_web: Callable[..., WebServer]
) -> None:
    hanging, other = new_web(), new_web()
    hanging.hangs = True
    settle(lab, slow=hanging.url(), fast=other.url())
    lab.submit("--notify", "end:slow", "true")
    wait_until(lambda: len(hanging.posts) == 1)
    lab.submit("--notify", "end:fast", "true")
    assert lab.wait() == 0
    wait_until(lambda: [one["state"] for one in messages(lab)] == ["waiting", "sent"])
    assert len(other.posts) == 1


@pytest.mark.parametrize("point", ["daemon.before_commit:3", "daemon.after_commit:3"])
def test_event_is_sent_once_when_the_daemon_dies_around_its_commit(
    lab: Lab, web: WebServer, point: str
) -> None:
    settle(lab, hook=web.url())
    has_died = fail_once(lab, point)
    for _ in range(3):
        lab.wait(lab.submit("--notify", "end", "-G0", "true"))
    wait_until(lambda: sum(post["count"] for post in web.posts) >= 3)
    assert has_died()
    events = [event["job"] for post in web.posts for event in post["events"]]
    assert sorted(events) == [1, 2, 3]
    assert len({post["id"] for post in web.posts}) == len(web.posts)


def test_event_is_sent_once_when_the_notifier_dies_before_sending(lab: Lab, web: WebServer) -> None:
    settle(lab, hook=web.url())
    has_died = fail_once(lab, "notifier.after_collect:1")
    lab.submit("--notify", "end", "true")
    wait_for_sent(lab, 1)
    assert has_died()
    assert len(web.posts) == 1


def test_message_is_repeated_with_the_same_id_when_the_notifier_dies_before_recording_it(
    lab: Lab, web: WebServer
) -> None:
    settle(lab, hook=web.url())
    has_died = fail_once(lab, "notifier.after_send:1")
    lab.submit("--notify", "end", "true")
    (message,) = wait_for_sent(lab, 1)
    assert has_died()
    assert len(web.posts) == 2 and web.posts[0] == web.posts[1]
    assert message["tries"] == 1


def test_foreground_run_notifies_when_it_ends_without_a_daemon(lab: Lab, web: WebServer) -> None:
    settle(lab, when="end", hook=web.url())
    assert lab.run("run", "-G0", "--notify", "failure", "sh", "-c", "exit 4").returncode == 4
    wait_until(lambda: len(web.posts) == 1)
    assert "failed after" in web.posts[0]["subject"]
    assert lab.ok("run", "-G0", "true") == ""  # the default is for jobs in the queue
    lines = "true\nfalse\n"
    done = lab.run("run", "-q", "-G0", "--notify", "sweep-end", "-", input=lines)
    assert done.returncode == 1
    wait_until(lambda: len(web.posts) == 2)
    assert web.posts[1]["events"][0]["counts"] == {"done": 1, "failed": 1}
    assert lab.daemon_pid() is None
    wait_for_sent(lab, 2)
