"""Frames: a four-byte size, a header, a body. The way in and out of the protocol for servers and clients.

A response or request leaves as a list of chunks. The first starts with the size; record data that should not be copied
(file ranges, big memoryviews) stands between the byte chunks, to be sent with sendfile or sendmsg in this order.

A request must fill its frame exactly. Kafka itself ignores bytes behind a request; no client sends any, and for us they
mean that both sides disagree about the schema, so they are refused like any other malformed bytes.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from pylogd.protocol.api import APIS, ApiKey, api
from pylogd.protocol.codec import Buffer, Splits, decoder, encoder
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.schema import Message
from pylogd.protocol.wire import skip_tags

_HEADER: Final = Struct(">hhih")
_RESPONSE_HEADER_0: Final = Struct(">ii")
_RESPONSE_HEADER_1: Final = Struct(">iix")
_SIZE: Final = Struct(">i")
_INT32: Final = Struct(">i")

Chunk = Any  # bytes-like, or a file range: anything with a `size`


def decode_request_header(view: memoryview) -> tuple[ApiKey, int, int, str | None, int]:
    """Key, version, correlation id, client id and where the body starts, of a frame without its size. The version may
    be one we do not serve; an unknown key is a ProtocolError, because even the header's format depends on it."""
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(view)
        row = APIS.get(key)
        if row is None:
            raise ProtocolError(f"unknown API key {key}")
        pos = 10
        client_id = None
        if length >= 0:
            pos += length
            if pos > len(view):
                raise ProtocolError("client id ends behind the request")
            client_id = view[10:pos].tobytes().decode()
        if version >= row.flexible:
            tags = view[pos]
            pos += 1
            if tags:
                pos = skip_tags(view, pos, len(view), tags)
    except (IndexError, error):
        raise ProtocolError("request header ends too early") from None
    except UnicodeDecodeError:
        raise ProtocolError("client id is not UTF-8") from None
    return row.key, version, correlation_id, client_id, pos


def decode_request(key: int, version: int, view: Buffer, pos: int) -> Any:
    """The request body from `pos` to the end of the frame. KafkaError if we do not know the version."""
    row = APIS[key]
    msg, end = decoder(row.request, version)(view, pos)
    if end != len(view):
        raise ProtocolError(f"{len(view) - end} bytes behind the {row.name} request")
    return msg


def decode_response_header(key: int, version: int, view: memoryview) -> tuple[int, int]:
    """Correlation id and where the body starts, of a response frame without its size."""
    try:
        (correlation_id,) = _INT32.unpack_from(view)
        pos = 4
        if version >= api(key).flexible and key != ApiKey.API_VERSIONS:
            pos = skip_tags(view, 5, len(view), view[4])
    except (IndexError, error):
        raise ProtocolError("response header ends too early") from None
    return correlation_id, pos


def decode_response(key: int, version: int, view: Buffer, pos: int) -> Any:
    """The response body from `pos` to the end of the frame."""
    row = APIS[key]
    msg, end = decoder(row.response, version)(view, pos)
    if end != len(view):
        raise ProtocolError(f"{len(view) - end} bytes behind the {row.name} response")
    return msg


def encode_response(key: int, version: int, correlation_id: int, msg: Message) -> list[Chunk]:
    """The whole response frame as chunks."""
    row = APIS[key]
    if version >= row.flexible and key != ApiKey.API_VERSIONS:
        buf = bytearray(_RESPONSE_HEADER_1.pack(0, correlation_id))
    else:
        buf = bytearray(_RESPONSE_HEADER_0.pack(0, correlation_id))
    splits: Splits = []
    encoder(type(msg), version)(msg, buf, splits)
    return _frame(buf, splits)


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, msg: Message) -> list[Chunk]:
    """The whole request frame as chunks."""
    client = b"" if client_id is None else client_id.encode()
    buf = bytearray(4)
    buf += _HEADER.pack(key, version, correlation_id, -1 if client_id is None else len(client))
    buf += client
    if version >= api(key).flexible:
        buf.append(0)
    splits: Splits = []
    encoder(type(msg), version)(msg, buf, splits)
    return _frame(buf, splits)


def _frame(buf: bytearray, splits: Splits) -> list[Chunk]:
    """Write the size into the first four bytes and cut the buffer where record data belongs."""
    if not splits:
        _SIZE.pack_into(buf, 0, len(buf) - 4)
        return [buf]
    total = len(buf) - 4
    view = memoryview(buf)
    chunks: list[Chunk] = []
    start = 0
    for position, data in splits:
        total += data.size if hasattr(data, "size") else len(data)
        chunks.append(view[start:position])
        chunks.append(data)
        start = position
    if start < len(buf):
        chunks.append(view[start:])
    if total > 0x7FFFFFFF:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a frame cannot hold {total} bytes")
    _SIZE.pack_into(buf, 0, total)
    return chunks
