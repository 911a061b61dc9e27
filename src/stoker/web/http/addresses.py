"""Resolve a `--host` value: the addresses to listen on, and the names that mean only these.

The text alone is not reliable: `0x0`, `0` and a host name can all mean every address of the host.
So the host is resolved first, and every decision uses the addresses that are bound.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from stoker.errors import UsageError
from stoker.record import Record

_HINT = "give one address of this host, such as 127.0.0.1"
LOOPBACK = ("127.0.0.1", "::1")  # what clients resolve `localhost` to
_EVERYTHING = ("0.0.0.0", "::")


class Addresses(Record):
    """The numeric addresses of one host; an address with a scope is `fe80::1%eth0`."""

    host: str
    found: tuple[str, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this host can connect."""
        return all(is_loopback(address) for address in self.found)

    @property
    def is_everything(self) -> bool:
        """Whether one of them is a wildcard address (`0.0.0.0` or `::`)."""
        return any(address in _EVERYTHING for address in self.found)

    @property
    def others(self) -> tuple[str, ...]:
        """More addresses that the same names resolve to. The server takes its port there too, so
        that no process of another user can answer under these names."""
        for pair in (LOOPBACK, _EVERYTHING):
            if set(pair) & set(self.found):
                return tuple(address for address in pair if address not in self.found)
        return ()

    @property
    def shown(self) -> str:
        """The host part of a link: a numeric loopback address, else the host as given.

        >>> resolve("127.1").shown, Addresses("lab.example", ("192.0.2.7",)).shown
        ('127.0.0.1', 'lab.example')
        """
        return self.found[0] if self.is_loopback else self.host


def resolve(host: str) -> Addresses:
    """Resolve a host name or address; raises UsageError when that fails.

    >>> resolve("0x7f.1").found, resolve("::ffff:127.0.0.1").found
    (('127.0.0.1',), ('127.0.0.1',))
    >>> resolve("0x0").is_everything, resolve("").is_everything, resolve("::ffff:0:0").is_everything
    (True, True, True)
    """
    if host in ("", "*"):
        return Addresses(host, _EVERYTHING[:1])
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, ValueError):
        raise UsageError(f"`{host}` is not an address of this host", _HINT) from None
    found = dict.fromkeys(_plain(str(row[4][0])) for row in rows)
    if host == "localhost":  # the order in /etc/hosts varies, and links use the first
        found = dict.fromkeys(address for address in LOOPBACK if address in found) or found
    return Addresses(host, tuple(found))


def is_loopback(address: str) -> bool:
    """Whether a numeric address is a loopback address.

    >>> [is_loopback(text) for text in ("127.0.0.2", "::1", "::ffff:127.0.0.1", "10.0.0.1", "x")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(_plain(address).partition("%")[0]).is_loopback
    except ValueError:
        return False


def leads_to(name: str, held: Iterable[str]) -> bool:
    """Whether a name resolves to these addresses only; `localhost` means both of LOOPBACK."""
    if name == "localhost":
        return set(LOOPBACK) <= set(held)
    try:
        return set(resolve(name).found) <= set(held)
    except UsageError:
        return False


def host_values(names: Iterable[str], port: int) -> frozenset[str]:
    """The values of a Host header that mean one of these names on this port.

    >>> sorted(host_values(["::1", "Localhost"], 8899))
    ['[::1]:8899', 'localhost:8899']
    """
    written = {f"[{name}]" if ":" in name else name.lower() for name in names}
    found = {f"{name}:{port}" for name in written}
    return frozenset(found | (written if port == 80 else set()))  # browsers omit port 80


def _plain(address: str) -> str:
    """Turn an IPv4-mapped IPv6 address into the IPv4 address that gets bound."""
    try:
        mapped = getattr(ipaddress.ip_address(address.partition("%")[0]), "ipv4_mapped", None)
    except ValueError:
        return address
    return address if mapped is None else str(mapped)
