"""The owner of the other end of a connection, as the kernel reports it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stoker.web.http import peers
from stoker.web.http.peers import UNKNOWN, TableScan, listener_uid, peer_uid
from tests.other_user import OTHER, need_ipv6, other_user_listens

KINDS = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


class Pair:
    """A connection, and its ends as the server sees them."""

    def __init__(self, stack: ExitStack, address: str) -> None:
        is_ipv6 = ":" in address
        at = "::1" if address == "::1" else "127.0.0.1"
        family = socket.AF_INET6 if at == "::1" else socket.AF_INET
        self.listener = stack.enter_context(socket.create_server((at, 0), family=family))
        client = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
        self.client = stack.enter_context(client)
        self.client.connect((address, self.listener.getsockname()[1]))
        accepted, there = self.listener.accept()
        stack.enter_context(accepted)
        self.ends = there[:2], accepted.getsockname()[:2]


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if ":" in request.param:
        need_ipv6()
    with ExitStack() as stack:
        yield Pair(stack, request.param)


def test_owner_of_a_connection_is_found(pair: Pair) -> None:
    assert peer_uid(*pair.ends) == os.geteuid()
    assert TableScan().uid(*pair.ends) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a socket")
def test_socket_of_another_user_is_not_taken_for_ours(pair: Pair) -> None:
    os.fchown(pair.client.fileno(), OTHER, -1)
    assert peer_uid(*pair.ends) == OTHER
    assert TableScan().uid(*pair.ends) == OTHER


def test_closed_connection_belongs_to_no_known_user(pair: Pair) -> None:
    pair.client.close()
    assert peer_uid(*pair.ends) == UNKNOWN
    assert TableScan().uid(*pair.ends) == UNKNOWN


def test_listener_on_the_port_of_a_closed_client_is_not_that_client(pair: Pair) -> None:
    """The kernel returns a listener when it finds no connection."""
    address, port = pair.listener.getsockname()[:2]
    assert peers.find_socket((address, port), (address, 1)) is not None
    assert peer_uid((address, port), (address, 1)) == UNKNOWN
    assert TableScan().uid((address, port), (address, 1)) == UNKNOWN


def test_connection_that_does_not_exist_belongs_to_no_known_user() -> None:
    assert peer_uid(("127.0.0.1", 1), ("127.0.0.1", 2)) == UNKNOWN


def test_owner_of_a_listener_is_found_at_its_own_address_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        assert listener_uid("127.0.0.1", port) == os.geteuid()
        assert listener_uid("127.0.0.2", port) is None
        need_ipv6()
        assert listener_uid("::1", port) is None
        with other_user_listens("::1", port):
            assert listener_uid("::1", port) == OTHER
            assert listener_uid("127.0.0.1", port) == os.geteuid()
    with socket.create_server(("", 0)) as everywhere:
        assert listener_uid("127.0.0.1", everywhere.getsockname()[1]) == os.geteuid()
