"""The way to the controller of this process: wire messages, although both live on one loop.

Broker and controller share no objects, so that the controller can move to another loop, process or host. The channel
encodes a request, decodes it on the other side, and does the same with the response.
"""

from __future__ import annotations

from typing import Any

from pylogd.controller.served_apis import SERVED, ControllerContext
from pylogd.controller.service import Controller
from pylogd.protocol.api import ApiKey, request_class, response_class
from pylogd.protocol.codec import decode, encode
from pylogd.protocol.schema import Message
from pylogd.rpc.caller import Caller


class LocalChannel:
    """Implements `pylogd.rpc.controller_channel.LocalController`."""

    __slots__ = ("_controller",)

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def active(self) -> bool:
        return self._controller.active

    async def send(self, request: Message, version: int | None = None) -> Any:
        """A request of this broker itself. Errors are in the controller's response."""
        if version is None:
            version = SERVED[ApiKey(request.API_KEY)][1]
        return await self._ask(request, version, ControllerContext())

    async def forward(self, request: Message, version: int, caller: Caller, correlation_id: int = 0) -> Any:
        """Passes a client's request on and returns the controller's answer at the same version."""
        return await self._ask(request, version, ControllerContext(caller, forwarded=True))

    async def _ask(self, request: Message, version: int, context: ControllerContext) -> Any:
        key = ApiKey(request.API_KEY)
        arrived, _ = decode(request_class(key), version, encode(request, version))
        response = await self._controller.handle(arrived, version, context)
        answered, _ = decode(response_class(key), version, encode(response, version))
        return answered
