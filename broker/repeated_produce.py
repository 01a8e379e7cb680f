"""The Produce that looks like one before: appended without decoding it again.

What a producer sends to one partition differs from request to request only in the correlation id and the records:

    size int32 | key and version int32 | correlation id int32 | head | length of the records | records | empty tags

`head` is everything from the client id to the partition index: client id, transactional id, acks, time-out, one topic,
one partition. The first such request is decoded and handled in full; if it was simple (no transaction, one partition,
acknowledged at once), its head is remembered with the partition it leads to and the frame of its reply. A later
request with a remembered head goes straight to the log, and its reply is one `pack`.

Whatever is not as simple as that takes the full path: `run` stops in front of it. That holds for a refused append too,
because a refused append changes nothing; the full path refuses it again and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.protocol.errors import KafkaError
from pylogd.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from pylogd.broker.dispatch import Route
    from pylogd.protocol.messages.produce import ProduceRequest
    from pylogd.replication.partition import Partition

#: Size, key and version as one number, correlation id.
_opening = Struct(">iIi").unpack_from
_OPENING_BYTES = 12
_int32 = Struct(">i").unpack_from
#: Since version 9: no tags behind the partition, the topic and the request.
_NO_TAGS = b"\x00\x00\x00"
#: Heads remembered per connection, one for each partition it produces to.
_HEADS_MAX = 1024
#: Requests with a head of another length before the remembered ones are given up for it.
_MISSES_MAX = 16
#: Low byte of a batch's attributes, with the transactional bit.
_ATTRIBUTES_LOW = 22
_TRANSACTIONAL = 0x10
#: Replies collected before they are sent.
_REPLY_BYTES_MAX = 1 << 16
#: Base offset, append time and log start in the reply whose frame is taken as the form of all others.
_SENTINELS = (0x1122334455667788, 0x2233445566778899, 0x33445566778899AA)


class _Head:
    """What one remembered head stands for."""

    __slots__ = (
        "flexible",
        "has_log_start",
        "key_and_version",
        "middle",
        "pack",
        "partition",
        "size",
        "tail",
        "version",
    )

    def __init__(self, key_and_version: int, route: Route, partition: Partition, response: ProduceResponse) -> None:
        self.key_and_version = key_and_version
        self.version = route.version
        self.flexible = route.request_tagged
        self.partition = partition
        # The reply's frame, cut around the numbers that change; from version 5 on it names the log's start as well.
        frame = bytearray()
        route.encode_into(frame, [], 0, response)
        self.has_log_start = route.version >= 5
        numbers = Struct(">qqq").pack(*_SENTINELS) if self.has_log_start else Struct(">qq").pack(*_SENTINELS[:2])
        at = frame.index(numbers)
        self.middle = bytes(frame[8:at])
        self.tail = bytes(frame[at + len(numbers) :])
        self.size = len(frame) - 4
        form = f">ii{len(self.middle)}s{'qqq' if self.has_log_start else 'qq'}{len(self.tail)}s"
        self.pack: Callable[..., bytes] = Struct(form).pack


class RepeatedProduce:
    """The remembered heads of one connection; all of one length, because that is how a head is found."""

    __slots__ = ("_head_bytes", "_heads", "_misses")

    def __init__(self) -> None:
        self._heads: dict[bytes, _Head] = {}
        self._head_bytes = 0
        self._misses = 0

    def learn(
        self,
        key_and_version: int,
        route: Route,
        frame: memoryview,
        request: ProduceRequest,
        response: ProduceResponse,
        node: Any,
    ) -> None:
        """Remember the head of a request that was just answered, if others like it can be appended directly."""
        if request.transactional_id is not None or len(request.topic_data) != 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1 or response.responses[0].partition_responses[0].error_code:
            return
        index, records = topic.partition_data[0].index, topic.partition_data[0].records
        by_id = route.version >= 13
        hosted = node.replicas.by_id if by_id else node.replicas.by_name
        partition = hosted.get((topic.topic_id if by_id else topic.name, index))
        if partition is None or not _simple(partition):
            return
        length_bytes, tail = 4, 0
        if route.request_tagged:
            length_bytes, tail = _uvarint_size(len(records) + 1), len(_NO_TAGS)
            if frame[-tail:] != _NO_TAGS:
                return
        # The frame comes without its size.
        head = frame[_OPENING_BYTES - 4 : len(frame) - tail - len(records) - length_bytes].tobytes()
        if len(head) != self._head_bytes:
            self._misses += 1
            if self._heads and self._misses < _MISSES_MAX:
                return
            self._heads.clear()
            self._head_bytes = len(head)
        elif len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        self._misses = 0
        known = self._heads.get(head)
        if known is not None and known.partition is partition and known.key_and_version == key_and_version:
            return
        answer = PartitionProduceResponse(index, 0, *_SENTINELS)
        form = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])
        self._heads[head] = _Head(key_and_version, route, partition, form)

    def run(self, view: memoryview, start: int, end: int, out: bytearray, now_ms: int) -> int:
        """Append the requests at the beginning of view[start:end] as long as they have remembered heads; their replies
        go to `out`. Returns where the first other request starts."""
        heads, records_at = self._heads, _OPENING_BYTES + self._head_bytes
        while end - start > records_at + 4:
            size, key_and_version, correlation_id = _opening(view, start)
            stop = start + 4 + size
            if stop > end:
                break
            position = start + records_at
            head = heads.get(view[start + _OPENING_BYTES : position].tobytes())
            if head is None or head.key_and_version != key_and_version:
                break
            try:
                if head.flexible:
                    length = view[position]
                    position += 1
                    if length > 127:
                        length &= 127
                        shift = 7
                        while (byte := view[position]) > 127:
                            length |= (byte & 127) << shift
                            shift += 7
                            position += 1
                        length |= byte << shift
                        position += 1
                    records = view[position : position + length - 1]
                    if position + length + 2 != stop or view[stop - 3 : stop] != _NO_TAGS:
                        break
                else:
                    (length,) = _int32(view, position)
                    position += 4
                    if position + length != stop:
                        break
                    records = view[position:stop]
                if records[_ATTRIBUTES_LOW] & _TRANSACTIONAL:
                    break
                partition = head.partition
                log = partition.log
                if not partition.is_leader or partition.followers or log.config.flush_messages == 1:  # not _simple()
                    break
                info = log.append_as_leader(records, partition.leader_epoch, now_ms=now_ms, version=head.version)
            except (KafkaError, IndexError, StructError):
                break
            partition.advance()
            if head.has_log_start:
                out += head.pack(
                    head.size,
                    correlation_id,
                    head.middle,
                    info.base_offset,
                    info.log_append_time_ms,
                    info.log_start_offset,
                    head.tail,
                )
            else:
                out += head.pack(
                    head.size, correlation_id, head.middle, info.base_offset, info.log_append_time_ms, head.tail
                )
            start = stop
            if len(out) > _REPLY_BYTES_MAX:
                break
        return start


def _simple(partition: Partition) -> bool:
    """Whether an append is acknowledged in the same moment: no follower and no flush to wait for."""
    return partition.is_leader and not partition.followers and partition.log.config.flush_messages != 1


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
