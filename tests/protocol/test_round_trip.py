"""Random messages of every class and version come back equal, and no damaged one does anything but raise."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pylogd.protocol.codec import decode, encode
from pylogd.protocol.errors import ProtocolError
from pylogd.protocol.schema import Message
from support.messages import all_messages, all_versions, random_message
from support.scale import scaled

RELAXED = settings(max_examples=scaled(test=10, soak=1000), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
@RELAXED
@given(rng=st.randoms(use_true_random=False), data=st.data())
def test_round_trip(cls: type[Message], rng: Random, data: st.DataObject) -> None:
    version = data.draw(st.integers(*cls.VERSIONS), label="version")
    message = random_message(rng, cls, version)
    encoded = encode(message, version)
    before = b"abc"  # decoding starts anywhere
    decoded, end = decode(cls, version, before + encoded, len(before))
    assert end == len(before) + len(encoded)
    assert decoded == message
    assert encode(decoded, version) == encoded


def test_every_version_decodes_from_any_buffer() -> None:
    rng = Random(1)
    for cls, version in all_versions():
        message = random_message(rng, cls, version)
        encoded = encode(message, version)
        for buffer in (encoded, bytearray(encoded), memoryview(encoded), memoryview(bytearray(encoded))):
            assert decode(cls, version, buffer) == (message, len(encoded))


def test_every_prefix_is_refused() -> None:
    rng = Random(2)
    for cls, version in all_versions():
        encoded = encode(random_message(rng, cls, version), version)
        ends = range(len(encoded)) if len(encoded) < 300 else sorted(rng.sample(range(len(encoded)), 100))
        for end in ends:
            with pytest.raises(ProtocolError):
                decode(cls, version, encoded[:end])


def test_flipped_bytes_decode_or_are_refused() -> None:
    rng = Random(3)
    refused = 0
    for cls, version in all_versions():
        encoded = bytearray(encode(random_message(rng, cls, version), version))
        for _ in range(min(scaled(test=40, soak=2000), len(encoded) * 10)):
            damaged = bytearray(encoded)
            for _ in range(1 + rng.randrange(3)):
                damaged[rng.randrange(len(damaged))] = (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))[rng.randrange(6)]
            try:
                decode(cls, version, damaged)
            except ProtocolError:
                refused += 1
    assert refused > 1000


@RELAXED
@given(version=st.integers(0, 20), garbage=st.binary(max_size=200), data=st.data())
def test_garbage_decodes_or_is_refused(version: int, garbage: bytes, data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(all_messages()))
    first, last = cls.VERSIONS
    try:
        decode(cls, first + version % (last - first + 1), garbage)
    except ProtocolError:
        pass
