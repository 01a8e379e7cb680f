"""What a broken or hostile peer may send: bytes for one connection, made from a seed.

From noise that is refused at the first byte to requests that are well-formed and absurd; each kind reaches deeper into
the broker than the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from crc32c import crc32c
from pylogd.protocol import batch, compression
from pylogd.protocol.api import APIS, Api, ApiKey
from pylogd.protocol.framing import encode_request

from support.messages import random_message
from support.produce import produce_request
from support.wire import frame, header

LENGTHS = [-1, -2, 0, 1, 7, 0x7FFFFFFF, -0x80000000, 0x16030100, 100 * 1024 * 1024 + 1]


def attack(rng: Random, topics: list[str]) -> bytes:
    """One connection's worth of bytes. `topics` exist and may be written to."""
    kind = KINDS[rng.randrange(len(KINDS))]
    return kind(rng, topics)


def noise(rng: Random, topics: list[str]) -> bytes:
    return rng.randbytes(rng.randrange(1, 200))


def absurd_size(rng: Random, topics: list[str]) -> bytes:
    return struct.pack(">i", rng.choice(LENGTHS)) + rng.randbytes(rng.randrange(50))


def other_protocols(rng: Random, topics: list[str]) -> bytes:
    http, tls = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    return rng.choice([http, tls, bytes(64)])


def framed_noise(rng: Random, topics: list[str]) -> bytes:
    return frame(rng.randbytes(rng.randrange(100)))


def known_header_then_noise(rng: Random, topics: list[str]) -> bytes:
    key = rng.choice([*APIS, rng.randrange(-5, 130)])
    version = rng.choice([rng.randrange(0, 20), -1, 32767])
    return frame(header(key, version, rng.randrange(2**31)) + rng.randbytes(rng.randrange(300)))


def well_formed(rng: Random, topics: list[str]) -> bytes:
    """Random values in every field: sizes, ids and enumerations that no client sends."""
    return b"".join(_request(rng) for _ in range(rng.randrange(1, 4)))


def damaged(rng: Random, topics: list[str]) -> bytes:
    """A well-formed request with some bytes changed; its size still fits, so it reaches the decoder."""
    data = bytearray(_request(rng)[4:])
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        what = rng.randrange(4)
        if what == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif what == 2 and len(data) > 8:
            del data[at : at + rng.randrange(1, 4)]
        else:
            data[at : at + 4] = struct.pack(">i", rng.choice(LENGTHS))
    return frame(bytes(data))


def cut_short(rng: Random, topics: list[str]) -> bytes:
    whole = _request(rng)
    return whole[: rng.randrange(1, len(whole))]


def bad_batch(rng: Random, topics: list[str]) -> bytes:
    """A Produce to a topic that exists whose record batch lies: CRC, counts, lengths, codec, inner records."""
    made = [batch.Record(n, rng.randrange(-1, 2**41), b"k", rng.randbytes(rng.randrange(30)), []) for n in range(3)]
    data = bytearray(batch.build_batch(made, compression=rng.randrange(5)))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(8, len(data))
        data[at : at + 1] = rng.randbytes(1)
    if rng.randrange(2):
        # With a CRC that fits, the lie is found only by those who look inside.
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return _produce(rng, bytes(data), topics)


def compression_bomb(rng: Random, topics: list[str]) -> bytes:
    """A small batch that unpacks to a large one, sent where the broker must unpack it."""
    codec = rng.choice([compression.GZIP, compression.LZ4, compression.ZSTD])
    body = compression.compress(codec, bytes(20_000_000))
    data = bytearray(batch.build_batch([batch.Record(0, 1000, b"k", b"v", [])], compression=codec))[:61] + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return _produce(rng, bytes(data), topics)


def _produce(rng: Random, data: bytes, topics: list[str]) -> bytes:
    request = produce_request(rng.choice(topics), data, acks=rng.choice([0, 1, -1]), timeout_ms=100)
    chunks = encode_request(0, rng.randrange(3, 13), 1, "hostile", request)
    return b"".join(bytes(chunk) for chunk in chunks)


def _request(rng: Random) -> bytes:
    api: Api = rng.choice(list(APIS.values()))
    version = rng.randrange(api.first, api.last + 1)
    message = random_message(rng, api.request, version)
    for name, limit in (("max_wait_ms", 200), ("timeout_ms", 200)):
        if hasattr(message, name) and rng.randrange(10):
            setattr(message, name, rng.randrange(limit))
    if api.key is ApiKey.UNREGISTER_BROKER:
        # An administrator's right, not an attack: it would take the broker out of the cluster for a moment.
        message.broker_id = 999  # type: ignore[attr-defined]
    client_id = rng.choice([None, "", "hostile", "é" * 50])
    chunks = encode_request(api.key, version, rng.randrange(2**31), client_id, message)
    return b"".join(bytes(chunk) for chunk in chunks)


KINDS: list[Callable[[Random, list[str]], bytes]] = [
    noise,
    absurd_size,
    other_protocols,
    framed_noise,
    known_header_then_noise,
    *[well_formed] * 4,
    *[damaged] * 4,
    *[cut_short] * 2,
    *[bad_batch] * 3,
]
