"""Free ports below the range the kernel gives to outgoing connections, so that no client socket takes one first."""

from __future__ import annotations

import random
import socket


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports
