"""Walks the batches of a `.log` file in order, reading in chunks: recovery, look-ups and replays are built on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pylogd.protocol.batch import HEADER_SIZE, BatchHeader, parse_header
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import File

CHUNK_BYTES = 1 << 20
#: Enough for the batches between two index entries of the default interval.
PEEK_BYTES = 4096 + HEADER_SIZE


class CorruptLog(KafkaError):
    """The bytes at `position` are no whole batch: recovery cuts there, a reader is told CORRUPT_MESSAGE."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"at byte {position}: {reason}")
        self.position = position


def scan_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, the whole batch) in [position, end). CorruptLog at the first bytes that are no whole batch;
    the checksum is the caller's business."""
    chunk = memoryview(b"")
    start = position
    while position < end:
        at = position - start
        if len(chunk) - at < HEADER_SIZE:
            start, at = position, 0
            chunk = memoryview(file.pread(min(CHUNK_BYTES, end - position), position))
            if len(chunk) < HEADER_SIZE:
                raise CorruptLog(position, f"{len(chunk)} bytes are too few for a batch header")
        header = _header(chunk, at, position)
        length = header.length
        if length > end - position:
            raise CorruptLog(position, f"a batch of {length} bytes with {end - position} bytes left")
        if len(chunk) - at < length:
            start, at = position, 0
            chunk = memoryview(file.pread(min(max(CHUNK_BYTES, length), end - position), position))
            if len(chunk) < length:
                raise CorruptLog(position, f"a batch of {length} bytes with {len(chunk)} bytes left")
        yield position, header, chunk[at : at + length]
        position += length


def scan_headers(
    pread: Callable[[int, int], bytes], position: int, end: int, chunk_bytes: int = PEEK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) in [position, end), skipping over the records. A torn batch at the end is left out."""
    chunk = b""
    start = position
    while end - position >= HEADER_SIZE:
        at = position - start
        if len(chunk) - at < HEADER_SIZE:
            start, at = position, 0
            chunk = pread(min(chunk_bytes, end - position), position)
            if len(chunk) < HEADER_SIZE:
                return
        header = _header(chunk, at, position)
        if header.length > end - position:
            return
        yield position, header
        position += header.length


def _header(chunk: memoryview | bytes, at: int, position: int) -> BatchHeader:
    try:
        return parse_header(chunk, at)
    except KafkaError as error:
        raise CorruptLog(position, str(error)) from None
