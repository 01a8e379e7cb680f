"""The APIs of a controller listener (`CONTROLLER://...`): the controller's own table behind the ordinary dispatch."""

from __future__ import annotations

from collections.abc import Awaitable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from pylogd.broker.network.served import Handler
from pylogd.controller.served_apis import SERVED, ControllerContext
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.failures import error_response
from pylogd.rpc import envelope

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.services import ControllerServices
    from pylogd.protocol.messages.envelope import EnvelopeRequest


def handle(ctx: RequestContext, request: Any) -> Awaitable[Any]:
    """Requests that come in here are the client's own; what a broker passes on comes in an envelope."""
    if request.API_KEY == ApiKey.ENVELOPE:
        return _handle_envelope(ctx, request)
    context = ControllerContext(ctx.caller, forwarded=False, connection=ctx.connection)
    answer: Awaitable[Any] = _services(ctx).controller.handle(request, ctx.version, context)
    return answer


def _services(ctx: RequestContext) -> ControllerServices:
    """What the dispatcher of this table was given."""
    return cast("ControllerServices", ctx.services)


async def _handle_envelope(ctx: RequestContext, request: EnvelopeRequest) -> Any:
    from pylogd.protocol.messages.envelope import EnvelopeResponse

    controller = _services(ctx).controller
    if not controller.active:
        return EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
    try:
        forwarded = envelope.unwrap(request, SERVED, ctx.caller.listener)
    except KafkaError as refusal:
        return EnvelopeResponse(error_code=int(refusal.code))
    asked, version = forwarded.request, forwarded.version
    # The broker's gate let its client in; what the cluster's controller allows is for this one to say.
    key = ApiKey(asked.API_KEY)
    decision = ctx.connection.gate.admit(forwarded.caller, key, (), len(request.request_data))
    answer: Any
    if decision.code is ErrorCode.NONE:
        answer = await controller.handle(asked, version, ControllerContext(forwarded.caller, forwarded=True))
    else:
        answer = error_response(asked, version, decision.code, None)
    if decision.throttle_ms and answer is not None:
        answer.throttle_time_ms = decision.throttle_ms
    if not controller.active:
        # Whether it was done is not known here; the next controller tells.
        return EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
    return envelope.wrap_response(answer, version, forwarded.correlation_id)


class ControllerHandler(Handler):
    """A row of the table whose module is this one."""

    def load(self) -> ModuleType:
        from pylogd.broker.cluster import controller_listener

        return controller_listener


def supported() -> dict[ApiKey, Handler]:
    """What a controller listener serves and ApiVersions advertises there."""
    table: dict[ApiKey, Handler] = {
        key: ControllerHandler("controller_listener", first, last) for key, (first, last) in SERVED.items()
    }
    table[ApiKey.ENVELOPE] = ControllerHandler("controller_listener", 0, 0)
    # What the broker's handlers answer from the same image and configuration.
    table[ApiKey.API_VERSIONS] = Handler("api_versions", 0, 4)
    table[ApiKey.DESCRIBE_CONFIGS] = Handler("describe_configs", 1, 4)
    return table
