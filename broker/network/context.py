"""What a handler knows about a request besides its body, and the one answer that is no response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.broker.network.connection import Connection
    from pylogd.broker.services import Services
    from pylogd.rpc.caller import Caller


class CloseConnection(Exception):
    """The only answer is to hang up, as Kafka does for a failed Produce with acks=0. The text goes to the log."""


class RequestContext:
    """What a handler knows about a request besides its body."""

    __slots__ = ("caller", "connection", "correlation_id", "services", "version")

    def __init__(
        self, version: int, caller: Caller, correlation_id: int, connection: Connection, services: Any
    ) -> None:
        self.version = version
        self.caller = caller
        self.correlation_id = correlation_id
        self.connection = connection
        #: On a controller's listener these are its own, `ControllerServices`.
        self.services: Services = services
