"""The codecs beside kafka-python's, and what they refuse."""

from __future__ import annotations

import os
import struct

import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as peer
from pylogd.protocol import compression
from pylogd.protocol.compression import CompressionError, compress, decompress

CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]
PEERS = {
    compression.GZIP: (peer.gzip_encode, peer.gzip_decode),
    compression.SNAPPY: (peer.snappy_encode, peer.snappy_decode),
    compression.LZ4: (peer.lz4_encode, peer.lz4_decode),
    compression.ZSTD: (peer.zstd_encode, peer.zstd_decode),
}

payloads = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=40), st.integers(1, 6000)),
)


@pytest.mark.parametrize("codec", CODECS)
@given(data=payloads)
@settings(max_examples=40, deadline=None)
def test_round_trip_with_ourselves_and_with_kafka_python(codec: int, data: bytes) -> None:
    encode, decode = PEERS[codec]
    packed = compress(codec, data)
    assert decompress(codec, memoryview(bytearray(packed))) == data
    if data:  # kafka-python's snappy reader stumbles over a stream without chunks
        assert bytes(decode(packed)) == data
        assert decompress(codec, bytes(encode(data))) == data


@pytest.mark.parametrize("codec", [compression.NONE, *CODECS])
def test_output_is_bounded(codec: int) -> None:
    data = bytes(5_000_000)
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(CompressionError):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
@given(data=payloads.filter(bool), cut=st.integers(1, 40), noise=st.binary(max_size=60))
@settings(max_examples=40, deadline=None)
def test_torn_and_foreign_bytes_are_refused(codec: int, data: bytes, cut: int, noise: bytes) -> None:
    packed = compress(codec, data)
    try:
        torn = decompress(codec, packed[:-cut])
        assert codec == compression.SNAPPY  # a stream may end between two chunks
        assert data.startswith(torn)
    except CompressionError:
        pass
    try:
        decompress(codec, noise, max_size=1 << 20)
    except CompressionError:
        pass


@pytest.mark.parametrize("codec", [compression.GZIP, compression.LZ4, compression.ZSTD])
def test_every_truncation_is_noticed(codec: int) -> None:
    packed = compress(codec, os.urandom(300) + b"tail" * 100)
    for size in range(1, len(packed)):
        with pytest.raises(CompressionError):
            decompress(codec, packed[:size])


def test_snappy_is_xerial_framed_in_blocks_of_32_kib() -> None:
    packed = compress(compression.SNAPPY, bytes(70_000))
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes = []
    pos = 16
    while pos < len(packed):
        (size,) = struct.unpack_from(">i", packed, pos)
        sizes.append(len(snappy.decompress(packed[pos + 4 : pos + 4 + size])))
        pos += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_snappy_without_framing_and_concatenated_streams_are_read() -> None:
    assert decompress(compression.SNAPPY, snappy.compress(b"plain" * 50)) == b"plain" * 50
    packed = compress(compression.SNAPPY, b"one")
    assert decompress(compression.SNAPPY, packed + compress(compression.SNAPPY, b"two")) == b"onetwo"


def test_snappy_claiming_gigabytes_is_refused_before_allocating() -> None:
    with pytest.raises(CompressionError, match="limit"):
        decompress(compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), max_size=1 << 20)


def test_lz4_frame_is_what_kafka_writes() -> None:
    packed = compress(compression.LZ4, bytes(200_000))
    # Version 1, independent blocks, nothing else; 64 KiB blocks.
    assert packed[:6] == b"\x04\x22\x4d\x18\x60\x40"
    dependent = bytearray(packed)
    dependent[4] &= ~0x20
    with pytest.raises(CompressionError, match="dependent"):
        decompress(compression.LZ4, bytes(dependent))


def test_gzip_members_and_zstd_frames_are_one_stream() -> None:
    assert decompress(compression.GZIP, compress(compression.GZIP, b"a") + compress(compression.GZIP, b"b")) == b"ab"
    streamed = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    first = streamed.compress(b"x" * 300_000) + streamed.flush()
    assert decompress(compression.ZSTD, first + compress(compression.ZSTD, b"y")) == b"x" * 300_000 + b"y"


@pytest.mark.parametrize(("codec", "levels"), [(codec, levels) for codec, levels in compression.LEVELS.items()])
def test_levels(codec: int, levels: tuple[int, int, int]) -> None:
    data = b"some words, some more words, " * 500
    for level in levels:
        assert decompress(codec, compress(codec, data, level)) == data


def test_names() -> None:
    assert [compression.codec_id(name) for name in ("none", "uncompressed", "gzip", "zstd")] == [0, 0, 1, 4]
    with pytest.raises(ValueError, match="tuple"):
        compression.codec_id("brotli")
