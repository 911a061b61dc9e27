"""Kinds of places, by their address: what it means, whether it is a secret, and how it is shown."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

from stoker.errors import UsageError
from stoker.features.notify.rules import DESKTOP
from stoker.record import Record

COMMAND, WEBHOOK, MAIL, APPRISE = "command", "webhook", "e-mail", "apprise"
_MASK = "***"
_SECRET_PARTS = 4  # characters; shorter parts of an address are not secrets
# Addresses of chat services that take their own format, which Apprise knows.
_CHAT_HOSTS = ("hooks.slack.com", "discord.com", "discordapp.com", "ntfy.sh")
_EXAMPLES = (
    "write command:PROGRAM, https://..., mailto:you@example.org, smtp://..., desktop or an address"
    " of Apprise such as ntfy://TOPIC; see docs/notifications.md"
)


class MailServer(Record):
    """Where an e-mail goes. Without a host: to the program sendmail."""

    to: tuple[str, ...]
    sender: str | None = None
    host: str | None = None
    port: int = 0
    user: str | None = None
    password: str | None = None
    is_tls: bool = False  # from the start; otherwise STARTTLS if the server offers it


def kind_of(url: str) -> str:
    """The kind of the place with this address. Raises UsageError that does not contain it."""
    scheme, colon, rest = url.strip().partition(":")
    scheme = scheme.lower()
    if scheme == DESKTOP and rest in ("", "//"):
        return DESKTOP
    if not colon or not rest.strip():
        raise UsageError("the address of the place is not complete", _EXAMPLES)
    if any(not char.isprintable() for char in url):
        raise UsageError("the address of the place contains control characters")
    if scheme == COMMAND:
        return COMMAND
    if scheme in ("http", "https"):
        return _check_webhook(url)
    if scheme in ("smtp", "smtps") or (scheme == "mailto" and not rest.startswith("//")):
        mail_server(url)
        return MAIL
    if not rest.startswith("//") or not scheme.isalnum():
        raise UsageError("the address of the place has an unknown form", _EXAMPLES)
    return APPRISE


def _check_webhook(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or " " in url:
        raise UsageError("the address of the webhook has no valid host", _EXAMPLES)
    return APPRISE if host in _CHAT_HOSTS else WEBHOOK


def mail_server(url: str) -> MailServer:
    """Parse `mailto:a@b,c@d` and `smtp[s]://[USER:PASSWORD@]HOST[:PORT]/?to=a@b[&from=c@d]`.

    Raises UsageError that does not contain the address.
    """
    scheme, _, rest = url.strip().partition(":")
    if scheme.lower() == "mailto":
        return MailServer(_addresses(unquote(rest.partition("?")[0])))
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise UsageError("the address of the mail server is not valid", _EXAMPLES) from None
    if not host or "to" not in query or set(query) - {"to", "from"}:
        raise UsageError(
            "the address of the mail server needs a host and a recipient",
            "write smtp://USER:PASSWORD@HOST:587/?to=you@example.org",
        )
    user = unquote(parts.username) if parts.username else None
    is_tls = parts.scheme.lower() == "smtps"
    senders = _addresses(query["from"][0]) if "from" in query else ()
    if not senders and user and "@" in user:
        senders = _addresses(user)
    return MailServer(
        to=_addresses(",".join(query["to"])),
        sender=senders[0] if senders else None,
        host=host,
        port=port or (465 if is_tls else 587 if user else 25),
        user=user,
        password=unquote(parts.password) if parts.password else None,
        is_tls=is_tls,
    )


def _addresses(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for one in found:
        name, at, domain = one.rpartition("@")
        plain = one.isprintable() and not any(char in " <>\"'(),;:" for char in one)
        if not plain or (at and not (name and domain)) or one.startswith("-"):
            raise UsageError(f"`{one}` is not an e-mail address", "write you@example.org")
    if not found:
        raise UsageError("the address of the place has no recipient", _EXAMPLES)
    return found


def is_secret(url: str) -> bool:
    """Whether other users must not read the address."""
    kind = kind_of(url)
    return kind in (WEBHOOK, APPRISE) or (kind == MAIL and mail_server(url).password is not None)


def masked(url: str) -> str:
    """The address as it may be shown: without anything that may be a secret.

    >>> masked("https://hooks.example.org/T0/secret?key=1"), masked("tgram://TOKEN/CHAT")
    ('https://hooks.example.org/***', 'tgram://***')
    >>> masked("smtp://me:pw@mail.example.org/?to=a@b.org"), masked("command:notify.sh --key x")
    ('smtp://***@mail.example.org to a@b.org', 'command:notify.sh ***')
    """
    kind = kind_of(url)
    if kind == DESKTOP:
        return DESKTOP
    if kind == COMMAND:
        words = url.partition(":")[2].split(None, 1)
        return f"command:{words[0]}" + (f" {_MASK}" if len(words) > 1 else "")
    if kind == APPRISE:
        return f"{url.strip().partition(':')[0].lower()}://{_MASK}"
    if kind == MAIL:
        mail = mail_server(url)
        to = ", ".join(mail.to)
        if mail.host is None:
            return f"mailto:{to}"
        scheme = "smtps" if mail.is_tls else "smtp"
        return f"{scheme}://{f'{_MASK}@' if mail.user else ''}{mail.host} to {to}"
    parts = urlsplit(url.strip())
    port = f":{parts.port}" if parts.port else ""
    has_more = parts.path.strip("/") or parts.query or parts.username
    return f"{parts.scheme}://{parts.hostname}{port}" + (f"/{_MASK}" if has_more else "")


def scrubbed(text: str, url: str) -> str:
    """An error text without any part of the address that may be a secret.

    >>> scrubbed("cannot reach tgram://TOKEN/CHAT: TOKEN is wrong", "tgram://TOKEN/CHAT")
    'cannot reach ***: *** is wrong'
    """
    kind = kind_of(url)
    if not is_secret(url) and kind != COMMAND:
        return text
    text = text.replace(url, _MASK).replace(url.strip(), _MASK)
    if kind == COMMAND:
        return text
    parts = urlsplit(url.strip())
    host = parts.netloc.rpartition("@")[2]
    shown = (parts.hostname, host, str(parts.port)) if kind in (WEBHOOK, MAIL) else ()
    if kind == MAIL:
        shown = (*shown, *mail_server(url).to)
    separators = str.maketrans("/?&=:@#,;", " " * 9)
    rest = url.strip().partition(":")[2]
    pieces = {*rest.translate(separators).split(), *parts.path.split("/"), parts.query}
    pieces |= {unquote(piece) for piece in pieces}
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) >= _SECRET_PARTS and not any(piece in str(known) for known in shown):
            text = text.replace(piece, _MASK)
    return text
