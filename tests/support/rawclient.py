"""A blocking client that speaks through our own message classes: one socket, no retries, no opinions."""

from __future__ import annotations

import socket
import struct
from typing import Any

from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.framing import decode_response, decode_response_header, encode_request
from pylogd.protocol.schema import Message


class Closed(Exception):
    """The peer hung up."""


class Client:
    def __init__(
        self, port: int, host: str = "127.0.0.1", client_id: str | None = "raw", timeout_s: float = 30
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._next = 0
        self._asked: dict[int, tuple[int, int]] = {}
        self._buffer = bytearray()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def encode(self, request: Message, version: int) -> bytes:
        """The frame of a request, noted so that its reply can be decoded."""
        self._next += 1
        self._asked[self._next] = (request.API_KEY, version)
        chunks = encode_request(request.API_KEY, version, self._next, self.client_id, request)
        return b"".join(bytes(chunk) for chunk in chunks)

    def send(self, request: Message, version: int) -> None:
        self.socket.sendall(self.encode(request, version))

    def frame(self) -> bytes:
        """The next frame without its size."""
        buffer = self._buffer
        while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from(">i", buffer)[0]:
            part = self.socket.recv(1 << 20)
            if not part:
                raise Closed
            buffer += part
        (size,) = struct.unpack_from(">i", buffer)
        data = bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        return data

    def reply(self) -> Any:
        """The next reply, which must be to the oldest request."""
        oldest = next(iter(self._asked))
        data = memoryview(self.frame())
        key, version = self._asked.pop(oldest)
        correlation_id, position = decode_response_header(key, version, data)
        assert correlation_id == oldest, "replies out of order"
        return decode_response(key, version, data, position)

    def ask(self, request: Message, version: int | None = None) -> Any:
        if version is None:
            api = APIS[ApiKey(request.API_KEY)]
            version = api.last - 1 if api.unstable else api.last
        self.send(request, version)
        return self.reply()

    def skip_reply(self) -> None:
        """The oldest request gets none (Produce with acks=0)."""
        del self._asked[next(iter(self._asked))]

    def is_closed(self) -> bool:
        """Waits for the peer to hang up; False when it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
