"""Limits on the connections of each peer."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from stoker.web.http.connection import (
    MAX_CONNECTIONS,
    MAX_OF_MACHINE,
    MAX_OF_OTHERS,
    Limits,
    Peer,
    peer_of,
)
from stoker.web.http.peers import UNKNOWN

OWN = Peer("127.0.0.1", os.geteuid())


def count(limits: Limits, peer: Peer, first: int = 1) -> int:
    """How many connections of this peer are admitted."""
    for number in range(1000):
        if not limits.admit(first + number, peer):
            return number
    raise AssertionError("no limit")


def test_other_users_share_a_few_connections_and_the_owner_may_open_the_rest() -> None:
    limits = Limits()
    others = [Peer("127.0.0.1", uid) for uid in (12345, 12346, UNKNOWN)]
    assert sum(count(limits, other, 1 + 1000 * n) for n, other in enumerate(others)) == (
        MAX_OF_OTHERS
    )
    assert count(limits, OWN, 9000) == MAX_CONNECTIONS - MAX_OF_OTHERS


def test_one_machine_cannot_open_all_connections() -> None:
    limits = Limits()
    assert count(limits, Peer("192.0.2.1", None)) == MAX_OF_MACHINE
    assert count(limits, Peer("192.0.2.2", None)) == MAX_OF_MACHINE


def test_closed_connection_no_longer_counts() -> None:
    limits = Limits()
    other = Peer("127.0.0.1", UNKNOWN)
    assert count(limits, other) == MAX_OF_OTHERS
    assert limits.take(1) == other
    assert limits.take(1) is None
    limits.leave(other)
    assert limits.admit(1, other)
    assert not limits.admit(2, other)


@pytest.mark.parametrize("is_reset", [False, True])
def test_connection_that_was_reset_belongs_to_no_known_user(is_reset: bool) -> None:
    """Its port can already belong to another socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        address = client.getsockname()
        client.connect(listener.getsockname())
        client.sendall(b"from one user")
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with socket.socket() as next_one:
            if is_reset:
                next_one.bind(address)
                next_one.connect(listener.getsockname())
            accepted, there = listener.accept()
            with accepted:
                expected = UNKNOWN if is_reset else os.geteuid()
                assert peer_of(accepted, there).uid == expected
