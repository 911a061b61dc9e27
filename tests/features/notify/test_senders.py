"""Each kind of place, with a real receiver."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.features.notify import send_process
from stoker.features.notify.send_process import Result, read_result, send, send_now
from tests.features.notify.receivers import MailServer, WebServer, program

MESSAGE: dict[str, Any] = {
    "id": "stoker-host-1f-7",
    "at": 1.7e9,
    "subject": "train failed after 2h10m: <out of> GPU memory & more",
    "body": "job: 7 (train)\nhost: gpu1 (user ada)",
    "events": [{"when": "failure", "job": 7, "name": "train", "state": "failed", "exit_code": 1}],
    "count": 1,
    "host": "gpu1",
    "user": "ada",
}


def test_webhook_gets_the_message_as_json(web: WebServer) -> None:
    assert send(web.url("/a/b?c=d"), MESSAGE) == Result()
    assert (web.posts, web.paths) == ([MESSAGE], ["/a/b?c=d"])
    assert web.headers[0]["Idempotency-Key"] == MESSAGE["id"]
    assert web.headers[0]["Content-Type"] == "application/json"


def test_webhook_with_a_password_uses_basic_authentication(web: WebServer) -> None:
    assert send(f"http://me:p%40w@127.0.0.1:{web.port}/", MESSAGE) == Result()
    assert web.headers[0]["Authorization"] == "Basic bWU6cEB3"


@pytest.mark.parametrize(
    ("status", "is_final"), [(500, False), (503, False), (429, False), (404, True), (401, True)]
)
def test_webhook_that_refuses_is_tried_again_unless_that_is_useless(
    new_web: Callable[..., WebServer], status: int, is_final: bool
) -> None:
    web = new_web(lambda n: (status, None))
    assert send(web.url(), MESSAGE) == Result(f"the server answered HTTP {status}", is_final)


def test_webhook_follows_redirects_only_on_the_same_host(
    new_web: Callable[..., WebServer],
) -> None:
    other = new_web()
    moved = new_web(lambda n: (308, "/new") if n == 1 else (200, None))
    assert send(moved.url("/old"), MESSAGE) == Result()
    assert moved.paths == ["/old", "/new"] and moved.posts == [MESSAGE, MESSAGE]
    away = new_web(lambda n: (307, other.url()))
    assert send(away.url(), MESSAGE) == Result("the server redirects to another address", True)
    as_get = new_web(lambda n: (302, other.url()))
    assert send(as_get.url(), MESSAGE) == Result("the server answered HTTP 302", True)
    circle = new_web(lambda n: (307, "/again"))
    assert send(circle.url(), MESSAGE).is_final
    assert other.posts == []


def test_webhook_that_does_not_answer_is_tried_again(web: WebServer) -> None:
    web.close()
    result = send(web.url("/topsecret"), MESSAGE)
    assert result.error is not None and "Connection refused" in result.error
    assert not result.is_final and "topsecret" not in result.error


def test_mail_is_sent_to_a_mail_server(new_mail: Callable[..., MailServer]) -> None:
    mail = new_mail()
    url = f"smtp://me:pw@127.0.0.1:{mail.port}/?to=a@b.org,c@d.org&from=me@lab.org"
    assert send(url, MESSAGE) == Result()
    (letter,) = mail.letters
    assert letter["Subject"] == f"[stoker] {MESSAGE['subject']}"
    assert (letter["From"], letter["To"]) == ("me@lab.org", "a@b.org, c@d.org")
    assert letter["Message-ID"] == "<stoker-host-1f-7@gpu1>"
    assert "job: 7 (train)" in letter.get_payload()
    assert len(mail.recipients) == 2 and len(mail.logins) == 1


def test_mail_that_is_refused_is_not_tried_again(new_mail: Callable[..., MailServer]) -> None:
    for code, is_final in ((550, True), (450, False)):
        mail = new_mail(code)
        result = send(f"smtp://127.0.0.1:{mail.port}/?to=a@b.org", MESSAGE)
        assert result == Result(f"the mail server refused a@b.org ({code})", is_final)


def test_mail_goes_to_sendmail_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "sendmail", f'echo "$@" > {tmp_path}/args; cat > {tmp_path}/letter')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert send("mailto:a@b.org", MESSAGE) == Result()
    assert (tmp_path / "args").read_text() == "-oi -- a@b.org\n"
    assert "Subject: [stoker] train failed" in (tmp_path / "letter").read_text()


def test_desktop_is_notified_where_there_is_a_session_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "notify-send", f'printf "%s\\n" "$@" > {tmp_path}/args')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
    assert send("desktop", MESSAGE) == Result()
    _, urgency, dashes, subject, *body = (tmp_path / "args").read_text().splitlines()
    assert (urgency, dashes, subject) == ("--urgency=critical", "--", MESSAGE["subject"])
    assert body == MESSAGE["body"].splitlines()
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert send("desktop", MESSAGE) == Result("this host does not have a desktop session", True)


def test_command_gets_json_on_stdin_and_environment_variables(tmp_path: Path) -> None:
    script = program(
        tmp_path / "bin",
        "tell",
        f'cat > {tmp_path}/stdin; echo "$STOKER_NOTIFY_JOB $STOKER_NOTIFY_STATE $1" > '
        f"{tmp_path}/out; env | grep -c STOKER_NOTIFY_SUBJECT >> {tmp_path}/out",
    )
    assert send(f"command:{script} now", MESSAGE) == Result()
    assert json.loads((tmp_path / "stdin").read_text()) == MESSAGE
    assert (tmp_path / "out").read_text() == "7 failed now\n1\n"
    result = send("command:echo because >&2; exit 3", MESSAGE)
    assert result == Result("the command failed with exit code 3: because", False)


def test_apprise_sends_to_its_json_service(web: WebServer) -> None:
    assert send_now(f"json://127.0.0.1:{web.port}/path", MESSAGE) == Result()
    (post,) = web.posts
    assert (post["title"], post["type"]) == (MESSAGE["subject"], "failure")
    web.close()
    result = send_now(f"json://127.0.0.1:{web.port}/topsecret", MESSAGE)
    assert result.error is not None and result.error.startswith("Apprise could not send it")
    assert "topsecret" not in result.error


def test_apprise_that_is_not_installed_is_named_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert send("ntfy://topic", MESSAGE) == Result(
        "this place needs Apprise; install it: pip install 'stoker[notify]'", True
    )


def test_sending_process_does_not_show_the_address(web: WebServer, tmp_path: Path) -> None:
    url = f"command:tr '\\0' ' ' < /proc/$PPID/cmdline > {tmp_path}/cmdline; : SECRET"
    assert send_now(url, MESSAGE) == Result()
    assert (tmp_path / "cmdline").read_text().split()[-2:] == [
        "-m",
        "stoker.features.notify.send_process",
    ]


def test_process_that_ends_without_a_result_counts_as_failed() -> None:
    assert read_result(b"", 1) == Result("the sending process failed (exit code 1)")
    assert read_result(b"", None) == Result(f"no result within {send_process.TIMEOUT_SECONDS:g} s")
