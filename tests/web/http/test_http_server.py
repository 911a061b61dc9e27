"""The addresses that a server binds, and the names under which it answers."""

from __future__ import annotations

import socket

import pytest

from stoker.errors import Conflict, UsageError
from stoker.web.http.addresses import Addresses, host_values, resolve
from stoker.web.http.http_server import listen
from tests.other_user import need_ipv6


def test_server_binds_both_loopback_addresses_when_given_either() -> None:
    need_ipv6()
    for host in ("127.0.0.1", "::1", "localhost"):
        listening = listen(resolve(host), [0], "")
        try:
            found = {one.getsockname()[:2] for one in listening.sockets}
            assert found == {("127.0.0.1", listening.port), ("::1", listening.port)}
            assert listening.names() == {"127.0.0.1", "::1", "localhost"}
        finally:
            listening.close()


def test_failed_bind_leaves_no_address_bound() -> None:
    need_ipv6()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Conflict, match=r"\[::1\]:"):
            listen(resolve("127.0.0.1"), [port], "")
    listen(resolve("127.0.0.1"), [port], "").close()


def test_wildcard_of_one_family_blocks_the_port_in_the_other_family() -> None:
    need_ipv6()
    listening = listen(resolve("0.0.0.0"), [0], "")
    try:
        with pytest.raises(OSError), socket.create_connection(("::1", listening.port)):
            pass  # nothing answers there
        for address in ("::1", "::"):
            with pytest.raises(OSError):
                socket.create_server((address, listening.port), family=socket.AF_INET6).close()
        assert {"127.0.0.1", "localhost", "0.0.0.0"} <= listening.names()
    finally:
        listening.close()


def test_name_is_accepted_only_if_the_server_holds_all_of_its_addresses() -> None:
    listening = listen(Addresses("localhost", ("127.0.0.9",)), [0], "")
    try:
        assert listening.names() == {"127.0.0.9"}
        assert listening.names("lab.example") == {"127.0.0.9", "lab.example"}
    finally:
        listening.close()


def test_host_header_contains_name_and_port() -> None:
    assert host_values(["127.0.0.1", "::1"], 8899) == {"127.0.0.1:8899", "[::1]:8899"}
    assert host_values(["Lab.example"], 80) == {"lab.example:80", "lab.example"}


@pytest.mark.parametrize("host", ["256.1.1.1", "a b", "\udcff", "x" * 300, "[::1]", "1.2.3.4.5"])
def test_text_that_is_not_an_address_is_a_usage_error(host: str) -> None:
    with pytest.raises(UsageError):
        resolve(host)


@pytest.mark.parametrize("port", [-1, 65536])
def test_number_that_is_not_a_port_is_a_usage_error(port: int) -> None:
    with pytest.raises(UsageError, match="is not a port"):
        listen(resolve("127.0.0.1"), [port], "")
