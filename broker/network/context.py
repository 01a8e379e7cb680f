"""What a handler knows about a request besides its body, and the one answer that is no response."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pylogd.broker.gate.gate import Gate
    from pylogd.broker.network.served import Handler
    from pylogd.broker.services import Services
    from pylogd.protocol.api import ApiKey
    from pylogd.rpc.caller import Caller


class CloseConnection(Exception):
    """The only answer is to hang up, as Kafka does for a failed Produce with acks=0. The text goes to the log."""


class ClientConnection(Protocol):
    """What a handler may ask of the connection that a request came in on."""

    loop: asyncio.AbstractEventLoop
    #: Host and port, for the log.
    peer: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    #: As the client calls itself in ApiVersions.
    client_software_name: str
    client_software_version: str
    #: Every request passes it, what an Envelope carries as well.
    gate: Gate
    #: The APIs of this listener.
    supported: Mapping[ApiKey, Handler]

    def __hash__(self) -> int:
        """It may be a key: which connection carried a broker's heartbeats?"""

    def admitted(self) -> None:
        """The request that held up everything behind it is under way: the next one may work ahead of its reply."""


class RequestContext:
    """What a handler knows about a request besides its body."""

    __slots__ = ("caller", "connection", "correlation_id", "services", "version")

    def __init__(
        self, version: int, caller: Caller, correlation_id: int, connection: ClientConnection, services: Any
    ) -> None:
        self.version = version
        self.caller = caller
        self.correlation_id = correlation_id
        self.connection = connection
        #: On a controller's listener these are its own, `ControllerServices`.
        self.services: Services = services
