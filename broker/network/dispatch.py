"""From the first eight bytes of a request to the function that answers it, and from its answer back to bytes.

A `Route` is everything one API version needs: decoder, handler, encoder. It is made on the first request of that
version and found by one dictionary lookup on the four bytes that hold key and version. Errors become responses here
and nowhere else; `protocol.failures` knows what those look like.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from struct import Struct
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pylogd.broker.network.context import CloseConnection, RequestContext
from pylogd.protocol import failures
from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.codec import decoder, encoder
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError

if TYPE_CHECKING:
    from pylogd.broker.handlers import Handler

logger = logging.getLogger(__name__)

_RESPONSE_HEADER = Struct(">ii").pack
_RESPONSE_HEADER_TAGGED = Struct(">iix").pack
_set_size = Struct(">i").pack_into
_SIZE_MAX = 0x7FFFFFFF
#: With leader epochs, and with followers that tell their broker epoch.
_FORMS_SINCE = {ApiKey.OFFSET_COMMIT: 6, ApiKey.FETCH: 15}


class Route:
    """One API at one version."""

    __slots__ = (
        "decode",
        "encode",
        "handle",
        "has_forms",
        "is_produce",
        "key",
        "request_tagged",
        "response_class",
        "response_header",
        "version",
    )

    def __init__(self, key: ApiKey, version: int, module: ModuleType | Any) -> None:
        api = APIS[key]
        self.key = key
        self.version = version
        self.handle: Callable[[RequestContext, Any], Any] = module.handle
        self.response_class = api.response
        self.decode = decoder(api.request, version)
        self.encode = encoder(api.response, version)
        self.is_produce = key is ApiKey.PRODUCE
        #: Whether requests that look like one before need not be decoded: `repeated_commit`, `repeated_fetch`.
        #: Not for the controller's: a Fetch of its quorum is answered by the quorum.
        self.has_forms = version >= _FORMS_SINCE.get(key, _SIZE_MAX) and "handlers" in module.__name__
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


class Dispatcher:
    """The APIs of one kind of listener."""

    def __init__(self, services: Any, supported: Mapping[ApiKey, Handler]) -> None:
        self.services = services
        self.supported = supported
        #: By the four bytes key << 16 | version.
        self.routes: dict[int, Route] = {}

    def route(self, key_and_version: int) -> Route:
        """Make the route of a version asked for the first time; ProtocolError when it is not served here."""
        number, version = key_and_version >> 16, key_and_version & 0xFFFF
        api = APIS.get(number)
        handler = self.supported.get(api.key) if api is not None else None
        if api is None or handler is None:
            raise ProtocolError(f"API key {number} is not enabled on this listener")
        if not handler.first <= version <= handler.last:
            raise ProtocolError(
                f"{api.name} version {version} is not enabled (supported: {handler.first} to {handler.last})"
            )
        made = self.routes[key_and_version] = Route(api.key, version, handler.load())
        return made


def error_response(route: Route, ctx: RequestContext, request: Any, code: ErrorCode, message: str | None) -> Any:
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
        return error_response(route, ctx, request, failure.code, message)
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
    return error_response(route, ctx, request, ErrorCode.UNKNOWN_SERVER_ERROR, None)
