"""Addresses of places: kinds, masks, and the settings file that keeps them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stoker.cli.verbs.doctor import examine
from stoker.errors import Conflict, Error, NoPermission, NotFound, UsageError
from stoker.features.notify.place_kinds import is_secret, kind_of, mail_server, masked, scrubbed
from stoker.features.notify.places_file import add_place, load_places, remove_place
from stoker.settings import load_settings

SECRET = some.from_regex(r"[A-Z][A-Za-z0-9]{7,20}", fullmatch=True)


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("STOKER_SETTINGS", str(path))
    return path


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("desktop", "desktop"),
        ("desktop://", "desktop"),
        ("command:notify.sh", "command"),
        ("https://example.org/hook", "webhook"),
        ("mailto:a@b.org", "e-mail"),
        ("smtp://mail.example.org/?to=a@b.org", "e-mail"),
        ("mailto://user:pw@gmail.com", "apprise"),
        ("ntfy://topic", "apprise"),
        ("https://hooks.slack.com/services/T/B/C", "apprise"),
    ],
)
def test_address_has_a_kind(url: str, kind: str) -> None:
    assert kind_of(url) == kind


@pytest.mark.parametrize(
    "url",
    ["", "phone", "http://", "https:///x", "command:", "mailto:", "mailto:-x@b", "smtp://h/",
     "smtp://h/?to=a b", "x:y", "https://a b/", "ntfy://a\nb", "http://h:port/"],
)  # fmt: skip
def test_malformed_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError) as error:
        kind_of(url)
    assert url not in error.value.message or len(url) < 3 or "@" in url


@pytest.mark.parametrize(
    "form",
    ["https://example.org/{}", "https://user:{}@example.org/x", "https://example.org/?key={}",
     "tgram://{}/chat", "slack://a/{}/c", "smtp://me:{}@mail.example.org/?to=a@b.org",
     "command:send --key {}"],
)  # fmt: skip
@settings(max_examples=20, deadline=None)
@given(secret=SECRET)
def test_masked_addresses_and_errors_contain_no_secret(form: str, secret: str) -> None:
    url = form.format(secret)
    assert secret not in masked(url)
    if not form.startswith("command"):
        assert is_secret(url)
        assert secret not in scrubbed(f"failed: {url} and {secret}.", url)


def test_mail_server_is_parsed() -> None:
    mail = mail_server("smtps://me%40lab.org:p%3Aw@mail.lab.org/?to=a@b.org,c@d.org")
    assert (mail.host, mail.port, mail.is_tls) == ("mail.lab.org", 465, True)
    assert (mail.user, mail.password, mail.sender) == ("me@lab.org", "p:w", "me@lab.org")
    assert mail.to == ("a@b.org", "c@d.org")
    assert mail_server("smtp://h/?to=a@b").port == 25
    assert mail_server("smtp://u:p@h/?to=a@b").port == 587


def test_added_places_are_private_and_keep_the_rest_of_the_file(settings_file: Path) -> None:
    settings_file.write_text("# my settings\ngrace = 5 # seconds\n")
    settings_file.chmod(0o600)
    assert add_place("lab", "https://example.org/x") is False
    add_place("beep", "command:echo 'a \"b\"' # c", is_default=True)
    assert settings_file.stat().st_mode & 0o777 == 0o600
    assert settings_file.read_text().startswith("# my settings\ngrace = 5 # seconds\n")
    assert load_places() == {
        "desktop": "desktop",
        "lab": "https://example.org/x",
        "beep": "command:echo 'a \"b\"' # c",
    }
    notify = load_settings().notify
    assert notify is not None
    assert (notify.places, notify.where) == (("lab", "beep"), ("beep",))
    assert "example.org" not in repr(load_settings())


def test_removed_place_leaves_the_file_as_it_was(settings_file: Path) -> None:
    before = "# my settings\ngrace = 5\n\n[notify]\nwhen = 'failure' # rare\n"
    settings_file.write_text(before)
    settings_file.chmod(0o600)
    add_place("lab", "https://example.org/x")
    add_place("mail", "mailto:a@b.org")
    remove_place("lab")
    remove_place("mail")
    assert settings_file.read_text().rstrip() == before.rstrip()
    with pytest.raises(NotFound, match="there is no place `lab`"):
        remove_place("lab")


def test_place_is_replaced_only_on_request(settings_file: Path) -> None:
    add_place("lab", "https://example.org/x")
    with pytest.raises(Conflict, match="there is a place `lab` already"):
        add_place("lab", "https://example.org/y")
    assert add_place("lab", "https://example.org/y", replaces=True) is True
    assert load_places()["lab"] == "https://example.org/y"


def test_secret_in_a_file_that_others_can_read_is_refused(settings_file: Path) -> None:
    settings_file.write_text("grace = 5\n")
    settings_file.chmod(0o644)
    with pytest.raises(NoPermission) as error:
        add_place("lab", "https://example.org/x")
    assert error.value.hint == f"make it private: chmod 600 {settings_file}"
    settings_file.chmod(0o600)
    add_place("lab", "https://example.org/x")
    settings_file.chmod(0o640)
    with pytest.raises(NoPermission, match="can be read by other users"):
        load_places()


def test_file_in_another_form_is_not_damaged(settings_file: Path) -> None:
    text = 'notify = { places = { lab = { url = "https://example.org/x" } } }\n'
    settings_file.write_text(text)
    settings_file.chmod(0o600)
    for change in (lambda: remove_place("lab"), lambda: add_place("b", "mailto:a@b.org")):
        with pytest.raises(Conflict):
            change()
    assert settings_file.read_text() == text
    assert os.listdir(settings_file.parent) == ["settings.toml"]


def test_doctor_names_places_that_need_apprise_if_it_is_missing(
    settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_file.write_text('[notify.places.phone]\nurl = "ntfy://SECRET"\n')
    settings_file.chmod(0o600)
    settings = load_settings()._replace(state_dir=str(settings_file.parent / "queue"))

    def found() -> list[tuple[str, str]]:
        return [(one.what, one.hint) for one in examine(settings) if "notifications" in one.what]

    assert found() == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    hint = "install it: pip install 'stoker[notify]'"
    assert found() == [("the place `phone` for notifications needs Apprise", hint)]
    settings_file.write_text('[notify.places.phone]\nurl = "SECRET"\n')
    assert [what for what, _ in found()] == [
        "notifications: the address of the place is not complete"
    ]


@pytest.mark.parametrize(
    "text",
    ["[notify]\nwhn = 1", "[notify]\nwhen = 'x'", "[notify.places.a]\nuri = ''", "notify = 1",
     "[notify]\ninterval = 'x'", "[notify]\nlog_lines = 'x'", "[notify]\ncommand = 'yes'",
     "[notify.places.a]\nurl = 'SECRET'\nx = 1", "[notify]\nplaces = 3"],
)  # fmt: skip
def test_invalid_settings_are_refused_without_secrets(settings_file: Path, text: str) -> None:
    settings_file.write_text(text)
    with pytest.raises(Error) as error:
        load_settings()
    assert str(settings_file) in error.value.message
    assert "SECRET" not in str(error.value)
