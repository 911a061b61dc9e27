"""`stoker notify`: places for notifications, a test message, and what was sent."""

from __future__ import annotations

import sys
import time
from typing import Any

from stoker.cli.output import notice, plural, print_change, print_json, table
from stoker.errors import UsageError
from stoker.features.notify.notify_settings import NotifySettings, default_places
from stoker.features.notify.rules import DESKTOP
from stoker.features.notify.store import NotifyMessage
from stoker.text.command_line import Option, Parsed, Verb, check_action, positive

_ACTIONS = {
    "ls": (0, 0, "ls"),
    "add": (1, 2, "add NAME [URL]"),
    "rm": (1, 1, "rm NAME"),
    "test": (0, 1, "test [NAME]"),
    "log": (0, 0, "log"),
    "retry": (0, 0, "retry"),
}  # the numbers of arguments, and the usage
_SHOWN = 20

VERB = Verb(
    "notify",
    "notify [OPTIONS] [ls | add NAME [URL] | rm NAME | test [NAME] | log | retry]",
    "Manage places for notifications, and see what was sent (`submit --notify WHEN[:WHERE]`).",
    (
        Option("--default", "add: a place for notifications that name none"),
        Option("--force", "add: replace the place with this name"),
        Option("-n --lines", f"log: number of messages (default: {_SHOWN})", "N", positive),
        Option("--failed", "log: only messages that were not sent"),
    ),
    (
        ("stoker notify add phone ntfy://my-topic", "through Apprise: stoker[notify]"),
        ("stoker notify add lab https://example.org/hook", "POST as JSON"),
        ("stoker notify add mail mailto:you@example.org", "by sendmail; also smtp://"),
        ("stoker notify add beep 'command:~/bin/beep'", "facts in STOKER_NOTIFY_*"),
        ("stoker notify test phone", ""),
        ("stoker submit --notify failure:phone python train.py", ""),
        ("stoker notify log --failed", ""),
    ),
    """Addresses are secrets: they are stored in the settings file, which only you may read, and
never shown. `add NAME` without URL asks for it, or reads it from stdin, so that it is not in the
history of your shell. `retry` sends messages again that were given up.""",
    words="actions",
)


def run(parsed: Parsed) -> int:
    action, *words = parsed.words or ["ls"]
    check_action("notify", action, _ACTIONS)
    least, most, usage = _ACTIONS[action]
    if len(words) > most:
        raise UsageError(f"unexpected argument `{words[most]}`", f"usage: stoker notify {usage}")
    if len(words) < least:
        raise UsageError("NAME is missing", f"usage: stoker notify {usage}")
    if action == "add":
        return _add(parsed, words[0], words[1] if len(words) > 1 else "-")
    if action == "rm":
        return _remove(parsed, words[0])
    if action == "test":
        return _test(parsed, words)
    if action == "log":
        return _log(parsed)
    return _retry(parsed) if action == "retry" else _list(parsed)


def _settings() -> NotifySettings:
    from stoker.settings import load_settings

    return load_settings().notify or NotifySettings()


def _add(parsed: Parsed, name: str, url: str) -> int:
    from stoker.features.notify.place_kinds import APPRISE, kind_of, masked
    from stoker.features.notify.places_file import add_place
    from stoker.settings import settings_path

    if url == "-":
        url = _asked(name)
    if kind_of(url) == APPRISE:
        _check_apprise(url)
    _settings()  # refuse to add to settings that no command can read
    was_known = add_place(
        name, url, replaces=bool(parsed["force"]), is_default=bool(parsed["default"])
    )
    verb = "replaced" if was_known else "added"
    places = default_places(_settings())
    words = f"{verb} the place {name} ({masked(url)}) in {settings_path()}"
    if name in places:
        words += f"\nnotifications that do not name a place go to: {', '.join(places)}"
    return print_change(
        parsed,
        f"{words}\ntry it with: stoker notify test {name}",
        place={"name": name, "kind": kind_of(url), "url": masked(url)},
    )


def _asked(name: str) -> str:
    """The address from stdin; on a terminal, without showing it."""
    if not sys.stdin.isatty():
        url = sys.stdin.readline().strip()
    else:
        import getpass

        url = getpass.getpass(f"address of {name} (not shown): ").strip()
    if not url:
        raise UsageError("no address given", "usage: stoker notify add NAME URL")
    return url


def _check_apprise(url: str) -> None:
    from stoker.features.notify.senders.by_apprise import INSTALL_HINT, is_installed, is_valid

    if not is_installed():
        from stoker.errors import Unavailable

        scheme = url.partition(":")[0].lower()
        raise Unavailable(f"`{scheme}://` needs Apprise, which is not installed", INSTALL_HINT)
    if not is_valid(url):
        raise UsageError(
            "Apprise does not know this form of address",
            "its documentation has the form for each service",
        )


def _remove(parsed: Parsed, name: str) -> int:
    from stoker.features.notify.places_file import remove_place

    remove_place(name)
    if name in _settings().where:
        notice(f"warning: `where` under [notify] in the settings file still names {name}")
    return print_change(parsed, f"removed the place {name}", removed=name)


def _list(parsed: Parsed) -> int:
    from stoker.features.notify.place_kinds import kind_of, masked
    from stoker.features.notify.places_file import load_places
    from stoker.features.notify.senders.desktop import is_available

    settings = _settings()
    defaults = default_places(settings)
    places = [
        {"name": name, "kind": kind_of(url), "url": masked(url), "default": name in defaults}
        for name, url in load_places().items()
    ]
    if parsed["json"]:
        print_json(places=places, when=settings.when.split(",") if settings.when else [])
        return 0
    rows = []
    for place in places:
        note = "default" if place["default"] else ""
        if place["name"] == DESKTOP and not is_available():
            note = "not available here"
        rows.append((place["name"], place["kind"], place["url"], note))
    print(table(("NAME", "KIND", "ADDRESS", ""), rows))
    if settings.when:
        print(f"jobs without --notify: {settings.when}")
    if len(places) == 1:
        notice("to add a place: stoker notify add NAME URL")
    return 0


def _test(parsed: Parsed, words: list[str]) -> int:
    from stoker.features.notify.collect import sender
    from stoker.features.notify.message import Notice, compose
    from stoker.features.notify.notify_settings import unknown_place
    from stoker.features.notify.places_file import load_places
    from stoker.features.notify.send_process import send_now

    places = load_places()
    names = words or list(default_places(_settings())) or [one for one in places if one != DESKTOP]
    for name in names:
        if name not in places:
            raise unknown_place(name, tuple(places))
    if not names:
        raise UsageError("there is no place to test", "add one: stoker notify add NAME URL")
    who = sender()
    data = {"title": "a test of notifications", "state": "done"}
    content = compose([Notice("test", None, data)], who)
    content |= {"subject": f"test message from {who.user}@{who.host}", "at": time.time()}
    content["events"] = [{"when": "test", "job": None, "text": content["subject"]}]
    content["id"] = f"stoker-{who.host}-test-{time.time_ns():x}"
    results = []
    for name in names:
        result = send_now(places[name], content)
        results.append({"place": name, "ok": result.error is None, "error": result.error})
        if not parsed["json"]:
            print(f"ok      {name}" if result.error is None else f"failed  {name}: {result.error}")
            sys.stdout.flush()
    is_ok = all(result["ok"] for result in results)
    if parsed["json"]:
        print_json(ok=is_ok, results=results)
    return 0 if is_ok else 1


def _log(parsed: Parsed) -> int:
    from stoker.cli.open_queue import open_queue
    from stoker.features.notify import store as notify_outbox

    queue = open_queue()
    limit = parsed["lines"] or _SHOWN
    messages = notify_outbox.newest(queue.db, 10**9 if parsed["failed"] else limit)
    if parsed["failed"]:
        messages = [one for one in messages if one.error is not None][-limit:]
    if parsed["json"]:
        print_json(messages=[_message_json(one) for one in messages])
        return 0
    if not messages:
        notice("no messages yet" if not parsed["failed"] else "no messages failed")
        return 0
    rows = [
        (one.id, _clock(one.created_at), one.place, _state(one), one.content["subject"])
        for one in messages
    ]
    print(table(("ID", "MADE", "PLACE", "STATE", "SUBJECT"), rows))
    for one in messages:
        if one.error is not None:
            from stoker.text.terminal import printable

            print(f"message {one.id}: {printable(one.error)}")
    return 0


def _state(message: NotifyMessage) -> str:
    if message.state != "waiting" or not message.tries:
        return message.state
    return f"retry at {_clock(message.due_at)}"


def _clock(at: float) -> str:
    from stoker.client.views.job import clock_words

    return clock_words(at, time.time())


def _message_json(message: NotifyMessage) -> dict[str, Any]:
    from stoker.client.views.job import iso

    content = message.content
    return {
        "id": message.id,
        "place": message.place,
        "state": message.state,
        "subject": content["subject"],
        "body": content["body"],
        "jobs": [event["job"] for event in content["events"] if event["job"] is not None],
        "count": content["count"],
        "tries": message.tries,
        "error": message.error,
        "created_at": iso(message.created_at),
        "next_try_at": iso(message.due_at) if message.state == "waiting" else None,
        "ended_at": iso(message.ended_at),
    }


def _retry(parsed: Parsed) -> int:
    from stoker.cli.open_queue import open_queue
    from stoker.features.notify import store as notify_outbox

    queue = open_queue()
    with queue.db.transaction():
        number = notify_outbox.retry_failed(queue.db, time.time())
    if number:
        queue.ensure_daemon()
    return print_change(parsed, f"{plural(number, 'message')} will be sent again", retried=number)
