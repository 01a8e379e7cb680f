"""The sockets of one process: listeners that accept, connections that this node opens.

What flows through a connected socket is the business of `sockets/`. The twin in `simulated/` has the same methods, and
its streams are queues in memory.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pylogd.runtime.sockets.socket_stream import SocketStream, socket_address
from pylogd.runtime.sockets.stream_environment import StreamEnvironment

if TYPE_CHECKING:
    from pylogd.runtime.stream import Stream
    from pylogd.runtime.workers import Workers

_ACCEPTS_PER_TURN = 64


class Listener:
    """One or more listening sockets of one configured address."""

    def __init__(self, network: Network, sockets: list[socket.socket], accepted: Callable[[Stream], None]) -> None:
        self._network = network
        self._sockets = sockets
        self._accepted = accepted
        self._accepting = False
        self._closed = False
        self.host, self.port = socket_address(sockets[0].getsockname())

    def resume(self) -> None:
        """Start, or start again, to accept."""
        if not self._accepting and not self._closed:
            self._accepting = True
            for sock in self._sockets:
                self._network.loop.add_reader(sock.fileno(), self._acceptable, sock)

    def pause(self) -> None:
        """Leave new connections in the kernel's backlog."""
        if self._accepting:
            self._accepting = False
            for sock in self._sockets:
                self._network.loop.remove_reader(sock.fileno())

    def close(self) -> None:
        self.pause()
        self._closed = True
        for sock in self._sockets:
            sock.close()

    def _acceptable(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._accepting:
                return
            try:
                sock, _ = listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # Out of descriptors: the backlog keeps them until some connection has closed.
                    self.pause()
                    self._network.loop.call_later(0.1, self.resume)
                return
            try:
                stream = self._network._adopt(sock)
            except OSError:
                # The peer hung up before its address was read.
                sock.close()
                continue
            self._accepted(stream)


class Network:
    """The sockets of one process on one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        self.loop = loop
        self.environment = StreamEnvironment(loop, workers)
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes

    def listen(self, host: str, port: int, accepted: Callable[[Stream], None], backlog: int = 50) -> Listener:
        """Bind every address of `host` (empty: every interface, both families) to one port; 0 takes a free one.

        Nothing is accepted before `resume()`. OSError when the address is taken or not ours.
        """
        sockets: list[socket.socket] = []
        try:
            for family, address in _bind_addresses(host, port):
                bound = (address[0], sockets[0].getsockname()[1] if sockets else port, *address[2:])
                try:
                    sockets.append(self._bind(family, bound, backlog, any_family=not host))
                except OSError as error:
                    # A host with several addresses may have some that this machine lacks (::1 without IPv6).
                    if not sockets or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
        return Listener(self, sockets, accepted)

    def _bind(self, family: int, address: tuple[Any, ...], backlog: int, any_family: bool) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if any_family else 1)
            if self._receive_buffer_bytes > 0:
                # Before listen, so that the window scale of accepted sockets fits it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            sock.bind(address)
            sock.listen(backlog)
        except BaseException:
            sock.close()
            raise
        return sock

    async def connect(self, host: str, port: int) -> Stream:
        """A stream to a peer, on the first of its addresses that answers."""
        found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError | None = None
        for family, kind, proto, _, address in found:
            sock = socket.socket(family, kind, proto)
            try:
                sock.setblocking(False)
                await self.loop.sock_connect(sock, address)
                return self._adopt(sock)
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
        raise failure or OSError(f"{host} has no address")

    def _adopt(self, sock: socket.socket) -> Stream:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        stream = SocketStream(self.environment, sock)
        self.environment.streams.add(stream)
        return stream

    def close(self) -> None:
        """Hang up on every peer that is left."""
        for stream in list(self.environment.streams):
            stream.close()


def _bind_addresses(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    if not host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, ("::", port, 0, 0))]
        return [(socket.AF_INET, ("0.0.0.0", port))]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses: list[tuple[int, tuple[Any, ...]]] = []
    for family, _, _, _, address in found:
        if (family, address) not in addresses:
            addresses.append((family, address))
    # IPv4 first: what a client that resolves the same name to IPv4 only needs.
    addresses.sort(key=lambda item: item[0] != socket.AF_INET)
    return addresses
