"""A webhook: the message as JSON in a POST request."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from stoker.features.notify.senders import SendError

_TIMEOUT_SECONDS = 10.0
_LATER = (408, 425, 429)  # of the 4xx codes, those that ask for another try
_REDIRECTS = 3


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would repeat a POST as a GET, and on any host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def send(url: str, message: dict[str, Any]) -> None:
    """POST the message. Raises SendError.

    Redirects (307, 308) are followed on the same host only: the message may be confidential, and
    the address often contains a token.
    """
    for _ in range(_REDIRECTS + 1):
        target = _post(url, message)
        if target is None:
            return
        old, new = urlsplit(url), urlsplit(target)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise SendError("the server redirects to another address", is_final=True)
        url = target
    raise SendError(f"the server redirected more than {_REDIRECTS} times", is_final=True)


def _post(url: str, message: dict[str, Any]) -> str | None:
    """Send one request; returns the address to which the server redirects, or None."""
    from stoker import __version__

    request = urllib.request.Request(
        url,
        data=json.dumps(message).encode(),
        method="POST",
        headers={
            "Content-Type": "application/json",
            "User-Agent": f"stoker/{__version__}",
            "Idempotency-Key": message["id"],
        },
    )
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if user:
        request.full_url = parts._replace(netloc=host).geturl()
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (307, 308) and error.headers.get("Location"):
                return urljoin(url, str(error.headers["Location"]))
            is_final = 300 <= error.code < 500 and error.code not in _LATER
            raise SendError(f"the server answered HTTP {error.code}", is_final) from None
    except Exception as error:  # http.client raises its own for a malformed response
        reason = getattr(error, "reason", error)
        raise SendError(f"cannot reach the server: {reason}") from None
