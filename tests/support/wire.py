"""Kafka frames by hand, for tests that trust no client library, and for what no library would send."""

from __future__ import annotations

import socket
import struct

METADATA, API_VERSIONS = 3, 18


def header(key: int, version: int, correlation_id: int = 1, client_id: bytes | None = b"tests") -> bytes:
    """A request header of version 1 (before flexible versions)."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation_id) + name


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def read_frame(sock: socket.socket) -> bytes:
    """The next reply without its size; empty when the peer closed the connection."""
    size = _read_exactly(sock, 4)
    return _read_exactly(sock, struct.unpack(">i", size)[0]) if size else b""


def _read_exactly(sock: socket.socket, count: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = sock.recv(count - len(chunks))
        if not chunk:
            return b""
        chunks += chunk
    return bytes(chunks)


def call(sock: socket.socket, key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """Sends one request and returns the reply's body; the correlation id must match."""
    sock.sendall(frame(header(key, version, correlation_id) + body))
    reply = read_frame(sock)
    if not reply:
        raise ConnectionError("the connection was closed instead of answered")
    assert struct.unpack_from(">i", reply)[0] == correlation_id
    return reply[4:]


def broker_count(host: str, port: int, timeout_s: float = 5) -> int:
    """How many brokers this one lists in Metadata; raises OSError while it does not serve."""
    with socket.create_connection((host, port), timeout_s) as sock:
        # Version 1 with an empty list of topics: brokers, controller id, no topics.
        reply = call(sock, METADATA, 1, struct.pack(">i", 0))
    return int(struct.unpack_from(">i", reply)[0])


def api_versions(host: str, port: int, timeout_s: float = 5) -> dict[int, tuple[int, int]]:
    with socket.create_connection((host, port), timeout_s) as sock:
        reply = call(sock, API_VERSIONS, 0, b"")
    error, count = struct.unpack_from(">hi", reply)
    assert error == 0
    rows = struct.iter_unpack(">hhh", reply[6 : 6 + count * 6])
    return {key: (low, high) for key, low, high in rows}
