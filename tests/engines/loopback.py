"""Loopback addresses and ports for clusters that run at the same time."""

from __future__ import annotations

import random
import socket

LOCALHOST = "127.0.0.1"


def free_network() -> str:
    """The first three numbers of random addresses: all of 127.0.0.0/8 is loopback on Linux."""
    return ".".join(["127", *(str(random.SystemRandom().randint(1, 254)) for _ in range(2))])


class ClaimedPorts:
    """Ports on one address that no process listens on, and that no other test process claims.

    They are outside of the ranges that the kernel takes ports of clients from, and Ray those of
    workers.
    """

    def __init__(self, address: str, count: int) -> None:
        self.ports: list[int] = []
        self._claims: list[socket.socket] = []
        while len(self.ports) < count:
            port = random.SystemRandom().randint(20000, 32000)
            if not _listens(address, port) and self._claim(port):
                self.ports.append(port)

    def _claim(self, port: int) -> bool:
        """Claim a port until this process ends, by an abstract socket: it leaves no file."""
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0stoker-test-port-{port}")
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def release(self) -> None:
        for claim in self._claims:
            claim.close()


def _listens(address: str, port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind((address, port))
        except OSError:
            return True
    return False
