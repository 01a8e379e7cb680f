"""The four codecs of record batches, byte for byte as Kafka's Java client writes and reads them.

Every decompressor takes a bound on its output, because a produced batch of a few kilobytes may unpack to gigabytes.
The libraries are imported on first use: a broker that never unpacks a batch never loads them.

gzip    RFC 1952; several members one after another are one stream.
snappy  xerial framing: `82 53 4e 41 50 50 59 00`, version int32, lowest compatible version int32, then chunks: int32
        length and a raw snappy block of at most 32 KiB. Input without that magic is one raw snappy block: Kafka's
        reader accepts it, and old clients write it.
lz4     frame format, independent 64 KiB blocks, no content size, no checksums. Dependent blocks are refused, as in
        Kafka.
zstd    one or more frames.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's levels for `compression.<codec>.level`: (lowest, highest, default).
LEVELS = {GZIP: (1, 9, -1), LZ4: (1, 17, 9), ZSTD: (-131072, 22, 3)}

OUTPUT_BYTES_MAX = 256 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 << 10
_INT32 = Struct(">i")

Buffer = bytes | bytearray | memoryview


class CompressionError(Exception):
    """The bytes are not what the codec says they are, or unpack to more than the caller allows."""


def codec_id(name: str) -> int:
    """The attribute bits of a codec named as in configurations (`none`, `gzip`, ...); ValueError when there is no such
    codec."""
    return NAMES.index("none" if name == "uncompressed" else name)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        import zlib

        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _xerial_compress(data)
    if codec == LZ4:
        return _lz4_compress(data, level)
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise CompressionError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, max_size: int = OUTPUT_BYTES_MAX) -> bytes:
    if codec == NONE:
        if len(data) > max_size:
            raise CompressionError(f"{len(data)} bytes exceed the limit of {max_size}")
        return bytes(data)
    if codec == GZIP:
        return _gzip_decompress(data, max_size)
    if codec == SNAPPY:
        return _xerial_decompress(data, max_size)
    if codec == LZ4:
        return _lz4_decompress(data, max_size)
    if codec == ZSTD:
        return _zstd_decompress(data, max_size)
    raise CompressionError(f"unknown compression codec {codec}")


def _too_large(max_size: int) -> CompressionError:
    return CompressionError(f"decompressed data exceed the limit of {max_size} bytes")


def _gzip_decompress(data: Buffer, max_size: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    room = max_size
    rest: Buffer = data
    while True:
        unpacker = zlib.decompressobj(31)
        try:
            part = unpacker.decompress(rest, room + 1)
        except zlib.error as error:
            raise CompressionError(f"gzip: {error}") from None
        room -= len(part)
        if room < 0:
            raise _too_large(max_size)
        parts.append(part)
        if not unpacker.eof:
            raise CompressionError("gzip: stream ended prematurely")
        rest = unpacker.unused_data
        # Anything but a further member after the trailer is ignored, as java.util.zip does.
        if rest[:2] != b"\x1f\x8b":
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial_compress(data: Buffer) -> bytes:
    import snappy

    out = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _xerial_decompress(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, max_size)
    if len(view) < 16:
        raise CompressionError("snappy: stream ended prematurely")
    if _INT32.unpack_from(view, 8)[0] < 1:
        raise CompressionError("snappy: unsupported framing version")
    parts: list[bytes] = []
    room = max_size
    pos, end = 16, len(view)
    while pos < end:
        if end - pos < 4:
            raise CompressionError("snappy: stream ended prematurely")
        if bytes(view[pos : pos + 8]) == _XERIAL_MAGIC:  # streams may be concatenated
            pos += 16
            continue
        (size,) = _INT32.unpack_from(view, pos)
        pos += 4
        if size < 0 or size > end - pos:
            raise CompressionError(f"snappy: invalid chunk length {size}")
        block = _snappy_block(view[pos : pos + size], room)
        room -= len(block)
        parts.append(block)
        pos += size
    return b"".join(parts)


def _snappy_block(block: memoryview, max_size: int) -> bytes:
    import snappy

    # A raw block opens with its unpacked length as a varint; it is checked before the library allocates that much.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CompressionError("snappy: invalid block length")
    if size > max_size:
        raise _too_large(max_size)
    try:
        return bytes(snappy.decompress(bytes(block)))
    except Exception as error:  # the binding's exception type differs between its releases
        raise CompressionError(f"snappy: {error}") from None


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Kafka's default level 9 means the fast compressor; any other level means high compression at that level.
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None or level == 9 else max(level, 3),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return packed


def _lz4_decompress(data: Buffer, max_size: int) -> bytes:
    import lz4.frame

    if len(data) < 7:
        raise CompressionError("lz4: stream ended prematurely")
    if not data[4] & 0x20:
        raise CompressionError("lz4: dependent block stream is unsupported")
    unpacker: Any = lz4.frame.LZ4FrameDecompressor()
    try:
        out: bytes = unpacker.decompress(data, max_length=max_size + 1)
    except (RuntimeError, EOFError, ValueError) as error:
        raise CompressionError(f"lz4: {error}") from None
    if len(out) > max_size:
        raise _too_large(max_size)
    if not unpacker.eof:
        raise CompressionError("lz4: stream ended prematurely")
    return out


def _zstd_decompress(data: Buffer, max_size: int) -> bytes:
    import zstandard

    parts: list[bytes] = []
    room = max_size
    try:
        _zstd_check_whole(memoryview(data))
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while part := reader.read(256 << 10):
                room -= len(part)
                if room < 0:
                    raise _too_large(max_size)
                parts.append(part)
    except zstandard.ZstdError as error:
        raise CompressionError(f"zstd: {error}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_check_whole(data: memoryview) -> None:
    """The streaming reader ends quietly where its input ends, so the chain of block headers tells whether a frame was
    cut."""
    import zstandard

    pos, end = 0, len(data)
    if not end:
        raise CompressionError("zstd: stream ended prematurely")
    while pos < end:
        skippable = data[pos] & 0xF0 == 0x50 and bytes(data[pos + 1 : pos + 4]) == b"\x2a\x4d\x18"
        if skippable and end - pos >= 8:
            pos += 8 + int.from_bytes(data[pos + 4 : pos + 8], "little")
            continue
        has_checksum = zstandard.get_frame_parameters(data[pos:]).has_checksum
        pos += zstandard.frame_header_size(data[pos:])
        last = False
        while not last:
            if end - pos < 3:
                break
            header = int.from_bytes(data[pos : pos + 3], "little")
            last = bool(header & 1)
            pos += 3 + (1 if header & 6 == 2 else header >> 3)  # a run-length block carries one byte
        pos += 4 if has_checksum else 0
        if not last or pos > end:
            raise CompressionError("zstd: stream ended prematurely")
