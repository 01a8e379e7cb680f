"""From the first eight bytes of a request to the function that answers it, and from its answer back to bytes.

A `Route` is everything one API version needs: decoder, handler, encoder. It is made on the first request of that
version and found by one dictionary lookup on the four bytes that hold key and version. Errors become responses here
and nowhere else; `protocol.failures` knows what those look like.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from struct import Struct
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from pylogd.broker.network.context import CloseConnection, RequestContext
from pylogd.protocol import failures
from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.codec import decoder, encoder
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError

if TYPE_CHECKING:
    from pylogd.broker.gate.gate import Gate, Resource
    from pylogd.broker.network.served import Handler

logger = logging.getLogger(__name__)

_RESPONSE_HEADER = Struct(">ii").pack
_RESPONSE_HEADER_TAGGED = Struct(">iix").pack
_set_size = Struct(">i").pack_into
_SIZE_MAX = 0x7FFFFFFF


class Route:
    """One API at one version."""

    __slots__ = (
        "decode",
        "encode",
        "handle",
        "key",
        "load_templates",
        "request_tagged",
        "resources",
        "response_class",
        "response_header",
        "version",
        "works_ahead",
    )

    def __init__(self, key: ApiKey, version: int, module: ModuleType | SimpleNamespace, row: Handler) -> None:
        api = APIS[key]
        self.key = key
        self.version = version
        self.handle: Callable[[RequestContext, Any], Any] = module.handle
        self.resources: Callable[[Any], tuple[Resource, ...]] = vars(module).get("resources", _nothing)
        self.response_class = api.response
        self.decode = decoder(api.request, version)
        self.encode = encoder(api.response, version)
        self.works_ahead = row.works_ahead
        #: What may answer requests that look like one before; None where nothing does.
        repeats = row.repeats
        self.load_templates = repeats.load if repeats is not None and version >= repeats.since else None
        self.request_tagged = version >= api.flexible
        tagged = version >= api.flexible and key is not ApiKey.API_VERSIONS
        self.response_header = _RESPONSE_HEADER_TAGGED if tagged else _RESPONSE_HEADER

    def encode_into(self, buffer: bytearray, splits: list[tuple[int, Any]], correlation_id: int, response: Any) -> None:
        """Append the whole frame; data that is not to be copied is noted in `splits` by its place in `buffer`."""
        start = len(buffer)
        before = len(splits)
        buffer += self.response_header(0, correlation_id)
        self.encode(response, buffer, splits)
        size = len(buffer) - start - 4
        if len(splits) > before:
            for _, data in splits[before:]:
                size += len(data)
            if size > _SIZE_MAX:
                del buffer[start:], splits[before:]
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a frame cannot hold {size} bytes")
        _set_size(buffer, start, size)

    def encode_throttled(
        self, buffer: bytearray, splits: list[tuple[int, Any]], correlation_id: int, response: Any, throttle_ms: int
    ) -> None:
        """As `encode_into`, with a throttle time where the response has one."""
        kept = getattr(response, "throttle_time_ms", None)
        if kept is not None:
            response.throttle_time_ms = max(kept, throttle_ms)
        self.encode_into(buffer, splits, correlation_id, response)
        if kept is not None:
            # Who gave the response may give it again.
            response.throttle_time_ms = kept


def _nothing(request: Any) -> tuple[Resource, ...]:
    return ()


class Dispatcher:
    """The APIs of one kind of listener."""

    def __init__(self, services: Any, supported: Mapping[ApiKey, Handler], gate: Gate) -> None:
        self.services = services
        self.supported = supported
        self.gate = gate
        #: APIs that start before earlier requests of theirs are answered.
        self.works_ahead = frozenset(int(key) for key, row in supported.items() if row.works_ahead)
        #: By the four bytes key << 16 | version.
        self.routes: dict[int, Route] = {}

    def route(self, key_and_version: int) -> Route:
        """Make the route of a version asked for the first time; ProtocolError when it is not served here. A client that
        asks for a newer version of ApiVersions than this broker knows is told in version 0 which there are."""
        number, version = key_and_version >> 16, key_and_version & 0xFFFF
        api = APIS.get(number)
        handler = self.supported.get(api.key) if api is not None else None
        if api is None or handler is None:
            raise ProtocolError(f"API key {number} is not enabled on this listener")
        if not handler.first <= version <= handler.last:
            if api.key is ApiKey.API_VERSIONS:
                return Route(api.key, 0, handler.load().of_unknown_version(handler), handler)
            raise ProtocolError(
                f"{api.name} version {version} is not enabled (supported: {handler.first} to {handler.last})"
            )
        made = self.routes[key_and_version] = Route(api.key, version, handler.load(), handler)
        return made


def error_response(route: Route, request: Any, code: ErrorCode, message: str | None) -> Any:
    """The response that carries an error which concerns the whole request."""
    response = failures.error_response(request, route.version, code, message)
    if response is None:
        raise CloseConnection(f"{route.key.name} failed with {code.name}: {message}")
    return response


def failure_response(route: Route, ctx: RequestContext, request: Any, failure: BaseException) -> Any:
    """What a handler's exception becomes. Unexpected ones are logged with their traceback."""
    if isinstance(failure, KafkaError):
        # Only a message that says more than the code reaches the client.
        message = None if failure.message == failure.code.message else failure.message
        return error_response(route, request, failure.code, message)
    if isinstance(failure, CloseConnection | ProtocolError):
        raise failure
    logger.error(
        "unexpected failure handling %s version %d from client %s at %s",
        route.key.name,
        route.version,
        ctx.caller.client_id,
        ctx.connection.peer,
        exc_info=failure,
    )
    return error_response(route, request, ErrorCode.UNKNOWN_SERVER_ERROR, None)
