"""Connections of this broker to the others, for what coordinators and leaders ask each other.

One connection per broker, opened on first use. When a broker has registered at another address, a new one is opened.
"""

from __future__ import annotations

from typing import Any

from pylogd.rpc.peer import Handler, Peer, PeerError


class Peers:
    def __init__(self, node: Any, purpose: str) -> None:
        self._node = node
        self._purpose = purpose
        self._peers: dict[int, Peer] = {}
        self._closed = False

    def send(self, broker_id: int, request: Any, handler: Handler, *, timeout_s: float | None = None) -> None:
        """Ask a broker; `handler` is called exactly once, never before this returns."""
        peer = self._find(broker_id)
        if peer is None:
            self._node.loop.call_soon(handler, None, PeerError(f"broker {broker_id} is not available"))
        else:
            peer.send(request, handler, timeout_s=timeout_s)

    def _find(self, broker_id: int) -> Peer | None:
        node = self._node
        broker = node.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(node.config.inter_broker_listener_name)
        peer = self._peers.get(broker_id)
        if endpoint is None or self._closed:
            return None
        if peer is None or (peer.host, peer.port) != (endpoint.host, endpoint.port):
            if peer is not None:
                peer.close()
            peer = self._peers[broker_id] = Peer(
                node.network,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{node.broker_id}-{self._purpose}",
                timeout_s=node.config["request.timeout.ms"] / 1000,
            )
        return peer

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
