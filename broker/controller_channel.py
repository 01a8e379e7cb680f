"""How the broker talks to the controller: wire messages, even when both live in one process.

Broker and controller share no objects, so that the controller can move to another loop, process or host. The channel
inside one process encodes a request, decodes it on the other side, and does the same with the response; the stream of
committed metadata crosses as the bytes of its batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.controller.service import SERVED, Controller, ControllerContext
from pylogd.protocol.api import ApiKey, request_class, response_class
from pylogd.protocol.codec import decode, encode

if TYPE_CHECKING:
    from pylogd.broker.dispatch import RequestContext
    from pylogd.controller.driver import MetadataSubscriber


class LocalChannel:
    """The channel to the controller of this process."""

    __slots__ = ("_controller",)

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def send(self, request: Any, version: int | None = None, context: ControllerContext | None = None) -> Any:
        """The controller's response. Errors are in it: the channel itself does not fail."""
        key = ApiKey(request.API_KEY)
        if version is None:
            version = SERVED[key][1]
        arrived, _ = decode(request_class(key), version, encode(request, version))
        response = await self._controller.handle(arrived, version, context or ControllerContext())
        answered, _ = decode(response_class(key), version, encode(response, version))
        return answered

    async def forward(self, ctx: RequestContext, api_key: ApiKey, version: int, request: Any) -> Any:
        """Passes a client's request on and returns the controller's answer at the same version."""
        context = ControllerContext(ctx.client_id, forwarded=True, listener=ctx.connection.listener_name)
        return await self.send(request, version, context)

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Hands `subscriber` the committed metadata, from the latest snapshot on."""
        self._controller.driver.subscribe(subscriber)
