"""What a guard sees of a request, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stoker.core.record import Record

CHANGES = ("POST", "PATCH", "PUT", "DELETE")


class GuardRequest(Record):
    """All of a request that decides whether it is answered. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    source: str  # the address of the other end
    uid: int | None = None  # of the process there; None where that cannot be known


class Refusal(Record):
    status: int
    code: str
    message: str
    hint: str | None = None


class Guard(Protocol):
    def refuse(self, asked: GuardRequest) -> Refusal | None:
        """Why a request is turned away; None: it may pass."""

    def is_suspect(self, asked: GuardRequest) -> bool:
        """Whether somebody there has guessed too often, and this may be another guess."""


TOO_MANY = Refusal(429, "too_many", "too many wrong tokens", "wait a minute")


def refuse_site(
    asked: GuardRequest, hosts: frozenset[str], *, opens_by_link: bool
) -> Refusal | None:
    """Turn away what other sites send through the browser of somebody who may ask."""
    refusal = Refusal(403, "other_site", "requests from other sites are refused")
    origin = asked.headers.get("origin")
    if origin is not None:
        scheme, _, place = origin.lower().partition("://")
        if scheme != "http" or place not in hosts:
            return refusal
    if asked.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return None
    # A link from elsewhere may open a page; nothing else.
    is_link = asked.headers.get("sec-fetch-mode") == "navigate" and asked.method in ("GET", "HEAD")
    return None if is_link and opens_by_link else refusal
