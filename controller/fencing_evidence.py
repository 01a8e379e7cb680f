"""The evidence that a broker's process has ended, so that it is fenced before its session runs out.

The active controller acts on three facts together: the connection that carried the heartbeats of a broker epoch broke,
two dials of the broker's registered listener, at least 100 ms apart, were refused, and no heartbeat of that epoch came
since. A refused dial means that the host is there and nobody listens. Any other outcome means nothing and is followed
by another dial: one that is taken, or reset, may have met a process that is just ending, whose sockets are closed one
after the other. A controller that has just become active has no such connections yet and dials every unfenced broker
until its first heartbeat. What it need not ask about is the broker of an earlier process of its own node.

It is the listener between brokers that is dialled: what is advertised to clients may mean nothing, or somebody else, to
other nodes (`localhost` outside of the container that says so). A controller that does not know which one it is dials
all of them, and one that is taken is enough.

A broker that stopped in good order is fenced already; the same evidence ends its session, so that it is not taken for
its own double when it comes back.

This is about liveness only. What is written are the ordinary fencing records, and a broker that was fenced by mistake
learns it from its next heartbeat.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Protocol

from pylogd.controller.state import ControllerState
from pylogd.metadata.registrations import Endpoint

logger = logging.getLogger(__name__)

#: Between two dials.
PAUSE_SECONDS = 0.1
#: A dial that takes longer says nothing.
DIAL_SECONDS = 1.0
#: Whoever is still there after so long lost only a connection.
PROBE_SECONDS = 1.0

Incarnation = tuple[int, int]


class Dialled(Protocol):
    """What a dial gives when it is taken."""

    def close(self) -> None: ...


#: Opens a connection to a host and port; OSError when it cannot.
Dial = Callable[[str, int], Awaitable[Dialled]]


class FencingSettings:
    """How this node's controller reaches the brokers, and which of them it shares its process with.

    `inter_broker_listener` is None when the controller does not know its name; `own_incarnation_id` tells the
    incarnation of the broker in this process once it has one."""

    __slots__ = ("dial", "inter_broker_listener", "own_incarnation_id")

    def __init__(
        self,
        dial: Dial,
        *,
        inter_broker_listener: str | None = None,
        own_incarnation_id: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.dial = dial
        self.inter_broker_listener = inter_broker_listener
        self.own_incarnation_id = own_incarnation_id


class FencingEvidence:
    """Watches the heartbeats that reach a controller. A connection is any token that stands for what carried them.

    `is_active` says whether the controller of `state` is the active one; `gone` hears of every (broker id, broker
    epoch) whose process has ended."""

    def __init__(
        self,
        settings: FencingSettings,
        state: ControllerState,
        loop: asyncio.AbstractEventLoop,
        *,
        is_active: Callable[[], bool],
        gone: Callable[[int, int], None],
    ) -> None:
        self._settings = settings
        self._state = state
        self._loop = loop
        self._is_active = is_active
        self._gone = gone
        #: (broker id, broker epoch) -> the connection its latest heartbeat came over.
        self._carriers: dict[Incarnation, Hashable] = {}
        self._by_connection: dict[Hashable, Incarnation] = {}
        self._tasks: dict[Incarnation, asyncio.Task[None]] = {}
        self._closed = False

    def heartbeat(self, connection: Hashable, broker_id: int, epoch: int) -> None:
        """A heartbeat arrived: that process is alive."""
        incarnation = (broker_id, epoch)
        probing = self._tasks.get(incarnation)
        if probing is not None:
            probing.cancel()
        if self._carriers.get(incarnation) is not connection:
            self._forget(self._by_connection.get(connection))
            self._carriers[incarnation] = connection
            self._by_connection[connection] = incarnation

    def _forget(self, incarnation: Incarnation | None) -> None:
        if incarnation is not None:
            connection = self._carriers.pop(incarnation, None)
            if connection is not None:
                self._by_connection.pop(connection, None)

    def connection_closed(self, connection: Hashable) -> None:
        incarnation = self._by_connection.pop(connection, None)
        if incarnation is None or self._carriers.get(incarnation) is not connection:
            return
        del self._carriers[incarnation]
        self._probe(incarnation)

    def activated(self, *, only_voter: bool) -> None:
        """The controller has become the active one; `only_voter` when nobody else could be."""
        node_id = self._state.settings.node_id
        session_s = self._state.heartbeats.session_timeout_ms / 1000
        for broker in list(self._state.image.brokers.values()):
            if broker.id == node_id:
                if broker.incarnation_id != self._settings.own_incarnation_id() and not only_voter:
                    # Nobody else has this node's directories: until its new process registers, it must not be elected.
                    self._gone(broker.id, broker.epoch)
            elif not broker.fenced:
                self._probe((broker.id, broker.epoch), session_s)

    def _probe(self, incarnation: Incarnation, seconds: float = PROBE_SECONDS) -> None:
        if self._closed or not self._is_active() or incarnation in self._tasks:
            return
        task = self._loop.create_task(self._dial_until_refused(incarnation, seconds))
        self._tasks[incarnation] = task
        task.add_done_callback(lambda _: self._tasks.pop(incarnation, None))

    async def _dial_until_refused(self, incarnation: Incarnation, seconds: float) -> None:
        broker_id, epoch = incarnation
        broker = self._state.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or not broker.endpoints:
            return
        endpoints = self._reachable(broker.endpoints)
        refused = 0
        until = self._loop.time() + seconds
        while refused or self._loop.time() < until:
            answers = [await self._refused(endpoint.host, endpoint.port) for endpoint in endpoints]
            refused = refused + 1 if all(answers) else 0
            if refused == 2:
                # A heartbeat meanwhile would have cancelled this task.
                self._gone(broker_id, epoch)
                return
            await asyncio.sleep(PAUSE_SECONDS)
        logger.debug("broker %d of epoch %d lost a connection, but its listener is there or silent", *incarnation)

    def _reachable(self, endpoints: Mapping[str, Endpoint]) -> list[Endpoint]:
        """Where this node reaches that broker, if it is told; otherwise everywhere."""
        name = self._settings.inter_broker_listener
        between_brokers = None if name is None else endpoints.get(name)
        return list(endpoints.values()) if between_brokers is None else [between_brokers]

    async def _refused(self, host: str, port: int) -> bool:
        """Dials. A connection that is reset at once was still taken: the listener may be closing just now."""
        try:
            dialled = await asyncio.wait_for(self._settings.dial(host, port), DIAL_SECONDS)
        except OSError as error:  # a time-out is one, too
            return error.errno == errno.ECONNREFUSED
        dialled.close()
        return False

    def close(self) -> None:
        self._closed = True
        for task in list(self._tasks.values()):
            task.cancel()
