"""A peer in a loop of garbage must not fill the log."""

from __future__ import annotations

import socket
from collections.abc import Callable

from support.broker import Pylogd


def test_repeated_garbage_from_one_host_is_counted_and_not_written_each_time(new_pylogd: Callable[..., Pylogd]) -> None:
    node = new_pylogd()
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", node.port), 10) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert peer.recv(100) == b""
    node.stop()
    lines = [line for line in node.log_text().splitlines() if "closing connection" in line]
    assert 10 <= len(lines) < 100
