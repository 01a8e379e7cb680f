"""The controller of a node put together, where `process.roles` asks for one and the node is formatted.

It takes part in the quorum, and registers with the active controller, which it may be itself. What its listeners serve
with is there before: the other controllers ask a node that is not formatted yet, too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.broker.cluster.controller_assembly import build_controller, controller_endpoints
from pylogd.broker.cluster.local_channel import LocalChannel
from pylogd.broker.cluster.registration import register_controller
from pylogd.protocol import uuids

if TYPE_CHECKING:
    from pylogd.broker.network.server import Server
    from pylogd.broker.services import ControllerServices
    from pylogd.config.host import Host
    from pylogd.controller.quorum.driver import QuorumDriver
    from pylogd.rpc.controller_channel import Channel

logger = logging.getLogger(__name__)

#: How long a controller that has just joined waits for its place among the voters before it says that it is ready.
_VOTE_WAIT_S = 15


class ControllerRole:
    """`own_incarnation_id` is that of the broker in this process."""

    def __init__(
        self,
        host: Host,
        services: ControllerServices,
        server: Server,
        *,
        cluster_id: str,
        directory_id: bytes,
        on_failure: Callable[[BaseException], None],
        own_incarnation_id: Callable[[], bytes | None],
    ) -> None:
        self._host = host
        bound = {name: listener.port for name, listener in server.listeners.items()}
        self._endpoints = controller_endpoints(host.config, socket.gethostname(), bound)
        self._controller = build_controller(
            host,
            cluster_id=cluster_id,
            directory_id=directory_id,
            endpoints=self._endpoints,
            new_uuid=self._new_uuid,
            on_failure=on_failure,
            own_incarnation_id=own_incarnation_id,
        )
        self.driver: QuorumDriver = self._controller.driver
        self.channel = LocalChannel(self._controller)
        self._registering: asyncio.Task[None] | None = None
        services.controller = self._controller
        server.connection_listeners.append(self._controller.connection_closed)

    async def start(self) -> None:
        """It takes part in the quorum, and becomes active if it is the only voter."""
        await self._controller.start()

    async def register(self, channel: Channel) -> None:
        """Returns when it is registered if it is active; otherwise it goes on meanwhile."""
        registering = register_controller(channel, self._host.config.node_id, self._new_uuid(), self._endpoints)
        if self.driver.is_leader:
            await registering
        else:
            self._registering = self._host.loop.create_task(registering)

    async def await_vote(self) -> None:
        """A new controller is ready when it votes: until then the cluster cannot do without those that already do."""
        for _ in range(_VOTE_WAIT_S * 20):
            if self.driver.is_voter:
                return
            await asyncio.sleep(0.05)
        logger.warning("this controller does not vote yet; the quorum is %s", self.driver.voter_ids)

    async def stop(self) -> None:
        """It hands over if it is active."""
        if self._registering is not None:
            self._registering.cancel()
        await self._controller.stop()

    def _new_uuid(self) -> bytes:
        """A random (version 4) id that is not one of Kafka's reserved ones."""
        return uuids.version_4(self._host.chance.randbytes(16))
