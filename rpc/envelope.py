"""A client's request on its way through a broker to the controller: wrapped in an Envelope with who sent it.

    request data    the request as the client would have sent it, header and body, without the size in front
    principal       int16 version 0, then DefaultPrincipalData at that version
    client address  the 4 or 16 bytes of the client's IP address

The answer comes back the same way, or an error code says that the envelope itself was refused.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, NamedTuple

from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.codec import decode, encode
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
from pylogd.protocol.messages.principal import DefaultPrincipalData
from pylogd.rpc.caller import Caller

PRINCIPAL_VERSION: Final = 0


class Forwarded(NamedTuple):
    """What an envelope holds: the client's request and who the client is."""

    request: Any
    version: int
    correlation_id: int
    caller: Caller


def wrap(request: Any, version: int, caller: Caller, correlation_id: int) -> EnvelopeRequest:
    frame = b"".join(encode_request(request.API_KEY, version, correlation_id, caller.client_id, request))
    return EnvelopeRequest(
        request_data=frame[4:],
        request_principal=_principal_bytes(caller),
        client_host_address=_address_bytes(caller.host),
    )


def unwrap(envelope: EnvelopeRequest, served: dict[ApiKey, tuple[int, int]], listener: str) -> Forwarded:
    """KafkaError for what may not be forwarded. `listener` is the one that the envelope came in on."""
    principal = _principal(envelope.request_principal)
    host = _host(envelope.client_host_address)
    try:
        view = memoryview(envelope.request_data)
        key, version, correlation_id, client_id, position = decode_request_header(view)
        if not APIS[key].forwardable or key not in served:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.name} is not eligible for forwarding")
        first, last = served[key]
        if not first <= version <= last:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{key.name} version {version} is not served")
        request = decode_request(key, version, view, position)
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the forwarded request cannot be read: {problem}") from None
    caller = Caller(
        f"{principal.type}:{principal.name}", client_id, host, listener, bool(principal.token_authenticated)
    )
    return Forwarded(request, version, correlation_id, caller)


def wrap_response(response: Any, version: int, correlation_id: int) -> EnvelopeResponse:
    frame = b"".join(encode_response(response.API_KEY, version, correlation_id, response))
    return EnvelopeResponse(response_data=frame[4:])


def unwrap_response(envelope: EnvelopeResponse, key: ApiKey, version: int) -> Any:
    view = memoryview(envelope.response_data or b"")
    _, position = decode_response_header(key, version, view)
    return decode_response(key, version, view, position)


# -- the client


def _principal_bytes(caller: Caller) -> bytes:
    kind, _, name = caller.principal.partition(":")
    principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=caller.token_authenticated)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + encode(principal, PRINCIPAL_VERSION)


def _principal(data: bytes | None) -> DefaultPrincipalData:
    view = memoryview(data or b"")
    if int.from_bytes(view[:2], "big") == PRINCIPAL_VERSION:
        try:
            return decode(DefaultPrincipalData, PRINCIPAL_VERSION, view[2:])[0]
        except ProtocolError:
            pass
    raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)


def _address_bytes(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def _host(data: bytes) -> str:
    """The address as a connection shows it. An IPv4 address may come mapped into IPv6."""
    try:
        address = ipaddress.ip_address(bytes(data))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client's address cannot be read") from None
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or address)
