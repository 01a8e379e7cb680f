"""Connections of this broker to the others, for what coordinators and leaders ask each other.

One connection per broker, opened on first use. When a broker has registered at another address, a new one is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.rpc.peer import Handler, Peer, PeerError

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.protocol.schema import Message


class Peers:
    """`find` gives the address of a broker as it is registered for a listener, or None."""

    def __init__(self, host: Host, find: Callable[[int, str], tuple[str, int] | None], purpose: str) -> None:
        self._host = host
        self._address = find
        self._purpose = purpose
        self._peers: dict[int, Peer] = {}
        self._closed = False

    def send(self, broker_id: int, request: Message, handler: Handler, *, timeout_s: float | None = None) -> None:
        """Ask a broker; `handler` is called exactly once, never before this returns."""
        peer = self._find(broker_id)
        if peer is None:
            self._host.loop.call_soon(handler, None, PeerError(f"broker {broker_id} is not available"))
        else:
            peer.send(request, handler, timeout_s=timeout_s)

    def _find(self, broker_id: int) -> Peer | None:
        config = self._host.config
        address = self._address(broker_id, config.inter_broker_listener_name)
        peer = self._peers.get(broker_id)
        if address is None or self._closed:
            return None
        if peer is None or (peer.host, peer.port) != address:
            if peer is not None:
                peer.close()
            peer = self._peers[broker_id] = Peer(
                self._host.network,
                *address,
                client_id=f"broker-{self._host.broker_id}-{self._purpose}",
                timeout_s=config["request.timeout.ms"] / 1000,
            )
        return peer

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
