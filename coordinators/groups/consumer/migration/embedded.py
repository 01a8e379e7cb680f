"""Subscription and assignment as consumers of the classic protocol put them into JoinGroup and SyncGroup: an int16
version, then the message. A version that is newer than ours reads like our newest."""

from __future__ import annotations

from struct import Struct

from pylogd.protocol.codec import decode, encode
from pylogd.protocol.errors import ProtocolError
from pylogd.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

_INT16 = Struct(">h")
_NEWEST = 3


def subscription_version(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise ProtocolError("a consumer's metadata has no version")
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise ProtocolError(f"version {version} of a consumer's metadata")
    return min(int(version), _NEWEST)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    message, _ = decode(ConsumerProtocolSubscription, subscription_version(data), data[_INT16.size :])
    return message


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    message, _ = decode(ConsumerProtocolAssignment, subscription_version(data), data[_INT16.size :])
    return message


def encode_assignment(partitions: dict[str, list[int]], version: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic, indexes) for topic, indexes in partitions.items()]
    )
    return _INT16.pack(version) + encode(message, version)
