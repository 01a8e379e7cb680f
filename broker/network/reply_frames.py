"""The bytes of replies as chunks for a stream: what was encoded, with data that was not copied in its places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.broker.network.dispatch import Route

#: Places in a buffer, and the data that belongs there.
Splits = list[tuple[int, Any]]


def frame_of(route: Route, correlation_id: int, response: Any, throttle_ms: int) -> list[Any]:
    """One reply."""
    out = bytearray()
    splits: Splits = []
    if throttle_ms:
        route.encode_throttled(out, splits, correlation_id, response, throttle_ms)
    else:
        route.encode_into(out, splits, correlation_id, response)
    return cut(out, splits) if splits else [out]


def cut(out: bytearray, splits: Splits) -> list[Any]:
    """The buffer with the data that was not copied put into its places."""
    view = memoryview(out)
    chunks: list[Any] = []
    start = 0
    for position, data in splits:
        if position > start:
            chunks.append(view[start:position])
            start = position
        chunks.append(data)
    if start < len(out):
        chunks.append(view[start:])
    return chunks


def joined(chunks: list[Any]) -> list[Any]:
    """Many small replies as one buffer."""
    if len(chunks) == 1 or not all(type(chunk) is bytearray for chunk in chunks):
        return chunks
    return [b"".join(chunks)]
