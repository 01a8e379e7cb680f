"""Free ports below the range the kernel gives to outgoing connections, so that no client socket takes one first."""

from __future__ import annotations

import random
import socket

#: Whoever was given a port may not listen on it yet.
_given: set[int] = set()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(15_000, 32_000)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        _given.add(port)
        ports.append(port)
    return ports
