"""A client's request on its way through a broker to the controller: wrapped in an Envelope with who sent it.

    request data    the request as the client would have sent it, header and body, without the size in front
    principal       int16 version 0, compact string type, compact string name, int8 token authenticated, no tags
    client address  the 4 or 16 bytes of the client's IP address

The answer comes back the same way, or an error code says that the envelope itself was refused.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.framing import (
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_response,
)
from pylogd.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse


def wrap(
    request: Any, version: int, *, client_id: str | None, correlation_id: int, principal: str, host: str
) -> EnvelopeRequest:
    """`principal` as `Type:name`, `host` the client's IP address."""
    frame = b"".join(encode_request(request.API_KEY, version, correlation_id, client_id, request))
    kind, _, name = principal.partition(":")
    return EnvelopeRequest(
        request_data=frame[4:], request_principal=_principal(kind, name), client_host_address=_address(host)
    )


def unwrap(envelope: EnvelopeRequest, served: dict[ApiKey, tuple[int, int]]) -> tuple[Any, int, int, str | None]:
    """(request, version, correlation id, client id). KafkaError for what may not be forwarded."""
    try:
        view = memoryview(envelope.request_data)
        key, version, correlation_id, client_id, position = decode_request_header(view)
        if not APIS[key].forwardable or key not in served:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.name} is not eligible for forwarding")
        first, last = served[key]
        if not first <= version <= last:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{key.name} version {version} is not served")
        return decode_request(key, version, view, position), version, correlation_id, client_id
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the forwarded request cannot be read: {problem}") from None


def wrap_response(response: Any, version: int, correlation_id: int) -> EnvelopeResponse:
    frame = b"".join(encode_response(response.API_KEY, version, correlation_id, response))
    return EnvelopeResponse(response_data=frame[4:])


def unwrap_response(envelope: EnvelopeResponse, key: ApiKey, version: int) -> Any:
    view = memoryview(envelope.response_data or b"")
    _, position = decode_response_header(key, version, view)
    return decode_response(key, version, view, position)


def _principal(kind: str, name: str) -> bytes:
    return b"\x00\x00" + _compact(kind) + _compact(name) + b"\x00\x00"


def _compact(text: str) -> bytes:
    data = text.encode()
    length = len(data) + 1
    varint = bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return bytes(varint) + data


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)
