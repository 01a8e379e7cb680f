"""Noticing at once that a broker's process has ended, instead of waiting for its session to run out.

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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.broker.network.connection import Connection
    from pylogd.metadata.registrations import Endpoint

logger = logging.getLogger(__name__)

#: Between two dials.
PAUSE_SECONDS = 0.1
#: A dial that takes longer says nothing.
DIAL_SECONDS = 1.0
#: Whoever is still there after so long lost only a connection.
PROBE_SECONDS = 1.0

Incarnation = tuple[int, int]


class FastFencing:
    """Watches the heartbeats that reach this node's controller. `node` gives controller, network and loop."""

    def __init__(self, node: Any) -> None:
        self._node = node
        #: (broker id, broker epoch) -> the connection its latest heartbeat came over.
        self._carriers: dict[Incarnation, Connection] = {}
        self._by_connection: dict[Connection, Incarnation] = {}
        self._tasks: dict[Incarnation, asyncio.Task[None]] = {}
        self._closed = False

    def heartbeat(self, connection: Connection, broker_id: int, epoch: int) -> None:
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

    def connection_closed(self, connection: Connection) -> None:
        incarnation = self._by_connection.pop(connection, None)
        if incarnation is None or self._carriers.get(incarnation) is not connection:
            return
        del self._carriers[incarnation]
        self._probe(incarnation)

    def activated(self) -> None:
        """This node's controller has become the active one."""
        node = self._node
        session_s = node.config["broker.session.timeout.ms"] / 1000
        for broker in list(node.controller.state.image.brokers.values()):
            if broker.id == node.broker_id:
                if broker.incarnation_id != node.incarnation_id and not node.driver.is_only_voter:
                    # Nobody else has this node's directories: until its new process registers, it must not be elected.
                    node.controller.broker_gone(broker.id, broker.epoch)
            elif not broker.fenced:
                self._probe((broker.id, broker.epoch), session_s)

    def _probe(self, incarnation: Incarnation, seconds: float = PROBE_SECONDS) -> None:
        if self._closed or not self._node.controller.active or incarnation in self._tasks:
            return
        task = self._node.loop.create_task(self._dial_until_refused(incarnation, seconds))
        self._tasks[incarnation] = task
        task.add_done_callback(lambda _: self._tasks.pop(incarnation, None))

    async def _dial_until_refused(self, incarnation: Incarnation, seconds: float) -> None:
        broker_id, epoch = incarnation
        controller = self._node.controller
        broker = controller.state.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or not broker.endpoints:
            return
        endpoints = self._reachable(broker.endpoints)
        refused = 0
        until = self._node.loop.time() + seconds
        while refused or self._node.loop.time() < until:
            answers = [await self._refused(endpoint.host, endpoint.port) for endpoint in endpoints]
            refused = refused + 1 if all(answers) else 0
            if refused == 2:
                # A heartbeat meanwhile would have cancelled this task.
                controller.broker_gone(broker_id, epoch)
                return
            await asyncio.sleep(PAUSE_SECONDS)
        logger.debug("broker %d of epoch %d lost a connection, but its listener is there or silent", *incarnation)

    def _reachable(self, endpoints: Mapping[str, Endpoint]) -> list[Endpoint]:
        """Where this node reaches that broker, if it is told; otherwise everywhere."""
        config = self._node.config
        if config.is_broker or config.is_set("inter.broker.listener.name"):
            between_brokers = endpoints.get(config.inter_broker_listener_name)
            if between_brokers is not None:
                return [between_brokers]
        return list(endpoints.values())

    async def _refused(self, host: str, port: int) -> bool:
        """Dials. A connection that is reset at once was still taken: the listener may be closing just now."""
        try:
            stream = await asyncio.wait_for(self._node.network.connect(host, port), DIAL_SECONDS)
        except OSError as error:  # a time-out is one, too
            return error.errno == errno.ECONNREFUSED
        stream.close()
        return False

    def close(self) -> None:
        self._closed = True
        for task in list(self._tasks.values()):
            task.cancel()
