"""What a handler knows about a request besides its body, and the one answer that is no response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.broker.network.connection import Connection


class CloseConnection(Exception):
    """The only answer is to hang up, as Kafka does for a failed Produce with acks=0. The text goes to the log."""


class RequestContext:
    """What a handler knows about a request besides its body."""

    __slots__ = ("client_id", "connection", "correlation_id", "services", "version")

    def __init__(
        self, version: int, client_id: str | None, correlation_id: int, connection: Connection, services: Any
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.correlation_id = correlation_id
        self.connection = connection
        self.services = services
