"""The way to the active controller, on whatever node it is.

Broker and controller share no objects and talk in wire messages, even when both live in one process. When the active
controller is on another node the same messages cross the network; a client's request travels in an Envelope then.

Sending does not fail. What goes wrong on the way is tried again with whoever is the active controller by then; in the
end it becomes an error in the response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol

from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.failures import error_response
from pylogd.protocol.schema import Message
from pylogd.rpc import envelope
from pylogd.rpc.caller import Caller
from pylogd.rpc.peer import Peer, PeerError
from pylogd.runtime.network import Network

logger = logging.getLogger(__name__)

Address = tuple[str, int]

_RETRY_SECONDS = 0.02
_RETRY_SECONDS_MAX = 0.5
#: How often a request that waits looks whether the active controller is still the same.
_LOOK_SECONDS = 0.5
#: Requests of different kinds do not wait for each other: a heartbeat must not stand behind the creation of a topic.
_LANES = {
    ApiKey.BROKER_REGISTRATION: "heartbeat",
    ApiKey.BROKER_HEARTBEAT: "heartbeat",
    ApiKey.CONTROLLER_REGISTRATION: "heartbeat",
    ApiKey.ALTER_PARTITION: "alter-partition",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "directory-assignments",
}


class Channel(Protocol):
    """The way to the active controller, for those who ask it something."""

    async def send(self, request: Message, version: int | None = None) -> Any:
        """A request of this broker itself. Errors are in the response."""

    async def forward(self, request: Message, version: int, caller: Caller, correlation_id: int = 0) -> Any:
        """A client's request."""


class LocalController(Channel, Protocol):
    """The controller in this process, as the channel asks it."""

    @property
    def active(self) -> bool: ...


class RoutedChannel:
    """The channel to the active controller of the quorum, on whatever node it is.

    `find` gives its address, if this node knows it. Otherwise the nodes of `bootstrap` are asked in turn; one that is
    not active says so. `local` is the controller of this process, if it has one."""

    def __init__(
        self,
        network: Network,
        *,
        find: Callable[[], Address | None],
        bootstrap: Sequence[Address],
        local: LocalController | None = None,
        client_id: str = "",
        timeout_s: float = 30.0,
        heartbeat_timeout_s: float = 2.0,
    ) -> None:
        self._network = network
        self._find = find
        self._bootstrap = list(bootstrap)
        self._local = local
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._peers: dict[str, Peer] = {}
        self._turn = 0
        self._closed = False

    async def send(self, request: Message, version: int | None = None) -> Any:
        """A request of this broker itself: the active controller's response; an error response when none was found in
        time."""

        async def ask(peer: Peer, timeout_s: float) -> Any:
            return await peer.request(request, version=version, timeout_s=timeout_s)

        async def ask_here(local: LocalController) -> Any:
            return await local.send(request, version)

        key = ApiKey(request.API_KEY)
        newest = APIS[key].last if version is None else version
        return await self._ask(_LANES.get(key, "forwarding"), request, newest, ask, ask_here)

    async def forward(self, request: Message, version: int, caller: Caller, correlation_id: int = 0) -> Any:
        """Passes a client's request on and returns the controller's answer at the same version."""
        key = ApiKey(request.API_KEY)

        async def ask(peer: Peer, timeout_s: float) -> Any:
            wrapped = envelope.wrap(request, version, caller, correlation_id)
            answer = await peer.request(wrapped, timeout_s=timeout_s)
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return envelope.unwrap_response(answer, key, version)
            if code is ErrorCode.NOT_CONTROLLER:
                return answer
            logger.warning("the controller refused a forwarded %s: %s", key.name, code.name)
            return error_response(request, version, ErrorCode.UNKNOWN_SERVER_ERROR, None)

        async def ask_here(local: LocalController) -> Any:
            return await local.forward(request, version, caller, correlation_id)

        return await self._ask("forwarding", request, version, ask, ask_here)

    async def _ask(
        self,
        lane: str,
        request: Message,
        version: int,
        ask: Callable[[Peer, float], Awaitable[Any]],
        ask_here: Callable[[LocalController], Awaitable[Any]],
    ) -> Any:
        loop = self._network.loop
        deadline = loop.time() + self._timeout_s
        pause = _RETRY_SECONDS
        while not self._closed:
            if self._local is not None and self._local.active:
                response = await ask_here(self._local)
                if self._local.active or not _not_controller(response):
                    return response
            address = self._find() or self._next_bootstrap()
            left = deadline - loop.time()
            if left <= 0:
                break
            if address is not None:
                peer = self._peer(lane, address)
                limit = self._heartbeat_timeout_s if lane == "heartbeat" else self._timeout_s
                try:
                    response = await self._while_active(address, ask(peer, min(limit, left)))
                    if not _not_controller(response):
                        return response
                    logger.debug("%s is not the active controller", peer)
                except PeerError as failure:
                    logger.debug("the controller at %s did not answer: %s", peer, failure)
            await asyncio.sleep(min(pause, max(deadline - loop.time(), 0)))
            pause = min(2 * pause, _RETRY_SECONDS_MAX)
        return error_response(request, version, ErrorCode.REQUEST_TIMED_OUT, "No active controller answered in time.")

    async def _while_active(self, address: Address, answer: Awaitable[Any]) -> Any:
        """The answer, unless another node becomes the active controller first: the old one may be silent for ever."""
        waiting = asyncio.ensure_future(answer)
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_LOOK_SECONDS)
                if not waiting.done() and self._find() not in (None, address):
                    raise PeerError("another controller is active")
            return waiting.result()
        finally:
            waiting.cancel()

    def _next_bootstrap(self) -> Address | None:
        if not self._bootstrap:
            return None
        self._turn += 1
        return self._bootstrap[self._turn % len(self._bootstrap)]

    def _peer(self, lane: str, address: Address) -> Peer:
        peer = self._peers.get(lane)
        if peer is None or (peer.host, peer.port) != address:
            if peer is not None:
                peer.close()
            client_id = f"{self._client_id}-{lane}" if self._client_id else lane
            peer = self._peers[lane] = Peer(self._network, *address, client_id=client_id, timeout_s=self._timeout_s)
        return peer

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


class _Result(Protocol):
    error_code: int


#: What carries the errors in responses that have none for the whole.
_RESULTS: dict[int, Callable[[Any], Sequence[_Result]]] = {
    ApiKey.CREATE_TOPICS: attrgetter("topics"),
    ApiKey.CREATE_PARTITIONS: attrgetter("results"),
    ApiKey.DELETE_TOPICS: attrgetter("responses"),
    ApiKey.ALTER_CONFIGS: attrgetter("responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: attrgetter("responses"),
}


def _not_controller(response: Any) -> bool:
    """Whether the response, or the first of its results, says that another node is the active controller."""
    find = _RESULTS.get(response.API_KEY)
    if find is None:
        return bool(response.error_code == ErrorCode.NOT_CONTROLLER)
    results = find(response)
    return bool(results) and results[0].error_code == ErrorCode.NOT_CONTROLLER
