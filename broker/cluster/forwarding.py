"""Handlers of APIs that only the controller can answer: the request goes there and its answer comes back.

A handler module of such an API opens with its versions and takes `handle` from here.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.protocol.schema import Message


def handle(ctx: RequestContext, request: Message) -> Awaitable[Any]:
    answer: Awaitable[Any] = ctx.services.channel.forward(request, ctx.version, ctx.caller, ctx.correlation_id)
    return answer
