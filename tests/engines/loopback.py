"""Loopback addresses and ports for clusters that run at the same time."""

from __future__ import annotations

import random
import socket


def free_address() -> str:
    """A random loopback address: all of 127.0.0.0/8 is local on Linux."""
    return ".".join(["127", *(str(random.SystemRandom().randint(1, 254)) for _ in range(3))])


def free_ports(address: str, count: int) -> list[int]:
    """Ports that no process listens on at this address, outside of the ephemeral range."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randint(20000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind((address, port))
            except OSError:
                continue
        ports += [port] if port not in ports else []
    return ports
