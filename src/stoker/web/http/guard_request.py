"""What a guard sees of a request, and how it refuses one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stoker.record import Record

CHANGES = ("POST", "PATCH", "PUT", "DELETE")


class GuardRequest(Record):
    """The parts of a request that decide whether it is allowed. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    source: str  # the address of the client
    uid: int | None = None  # of the client process; None when it cannot be known


class Refusal(Record):
    status: int
    code: str
    message: str
    hint: str | None = None


class Guard(Protocol):
    def refuse(self, request: GuardRequest) -> Refusal | None:
        """Return why the request is refused, or None when it is allowed."""

    def is_suspect(self, request: GuardRequest) -> bool:
        """Whether this client sent too many wrong tokens and this request may be another guess."""


TOO_MANY = Refusal(429, "too_many", "too many wrong tokens", "wait a minute")


def refuse_site(
    request: GuardRequest, hosts: frozenset[str], *, opens_by_link: bool
) -> Refusal | None:
    """Refuse cross-site requests, which a browser sends with the user's cookies (CSRF)."""
    refusal = Refusal(403, "other_site", "requests from other sites are refused")
    origin = request.headers.get("origin")
    if origin is not None:
        scheme, _, host = origin.lower().partition("://")
        if scheme != "http" or host not in hosts:
            return refusal
    if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return None
    # A link on another site may open a page, but must not call the API.
    is_navigation = request.headers.get("sec-fetch-mode") == "navigate"
    is_link = is_navigation and request.method in ("GET", "HEAD")
    return None if is_link and opens_by_link else refusal
