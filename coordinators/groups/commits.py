"""One partition of a commit, prepared: what does not change when a consumer commits again is made once.

The record of a commit, by far the most frequent one, is packed by hand, as the codec would write it. Key: type int16 =
1, group and topic as strings, partition int32. Value: version int16 = 4, offset int64, leader epoch int32, metadata as
compact string, commit time int64, tagged fields (0: topic id).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pylogd.protocol.messages import group_records as records
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitResponsePartition
    from pylogd.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitResponsePartition,
    )

#: Version of the value that is packed here.
VERSION = 4
_KEY_START = Struct(">hh").pack
_INT16 = Struct(">h").pack
_INT32 = Struct(">i").pack
#: Longest note whose length is one byte in the compact encoding; one that is longer the codec may write.
_NOTE_MAX = 126
#: One tagged field, number 0, of 16 bytes; and none.
_TAGGED = b"\x01\x00\x10"
_UNTAGGED = b"\x00"


class CommittedOffset(NamedTuple):
    """What is kept of a commit: the value of its record, and where that stands in the log."""

    value: records.OffsetCommitValue
    record_offset: int

    @property
    def topic_id(self) -> bytes:
        return self.value.topic_id


class Commit:
    """`partition` and `answer` are its places in request and response; the request's offset and leader epoch are read
    anew each time. `stored_id` is the topic id in the record, if not the topic's: a transactional commit has none."""

    __slots__ = ("_key_bytes", "_note", "_pack", "_tail", "answer", "key", "partition", "stored_id", "topic",
                 "topic_id")  # fmt: skip

    def __init__(
        self,
        group_id: str,
        topic: str,
        topic_id: bytes,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        answer: OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition,
        stored_id: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.stored_id = topic_id if stored_id is None else stored_id
        self.partition = partition
        self.answer = answer
        index = partition.partition_index
        self.key = records.OffsetCommitKey(group_id, topic, index)
        group, name = group_id.encode(), topic.encode()
        self._key_bytes = b"%b%b%b%b%b" % (_KEY_START(1, len(group)), group, _INT16(len(name)), name, _INT32(index))
        self._note = (partition.committed_metadata or "").encode()
        self._tail = _TAGGED + self.stored_id if self.stored_id != ZERO else _UNTAGGED
        self._pack: Callable[..., bytes] | None = None
        if len(self._note) <= _NOTE_MAX:
            self._pack = _value_pack(len(self._note), len(self._tail))

    def encode(self, value: records.OffsetCommitValue) -> tuple[bytes, bytes] | None:
        """Key and value of the record; None when that is the codec's to do."""
        if self._pack is None:
            return None
        note = self._note
        start = (VERSION, value.offset, value.leader_epoch, len(note) + 1)
        return self._key_bytes, self._pack(*start, note, value.commit_timestamp, self._tail)


@lru_cache(256)
def _value_pack(note_bytes: int, tail_bytes: int) -> Callable[..., bytes]:
    return Struct(f">hqiB{note_bytes}sq{tail_bytes}s").pack
