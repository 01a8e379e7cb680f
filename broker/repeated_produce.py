"""The Produce that looks like one before: appended without decoding it again.

What a producer sends to one partition differs from request to request only in the correlation id and the records:

    size int32 | key and version int32 | correlation id int32 | head | length of the records | records | empty tags

`head` is everything from the client id to the partition index: client id, transactional id, acks, time-out, one topic,
one partition. The first such request is decoded and handled in full; if it was appended and is not part of a
transaction, its head is remembered with the partition it leads to and the frame of its reply. A later request with a
remembered head goes straight to the log, and its reply is one `pack`, now or when its acknowledgement comes.

Whatever is not as simple as that takes the full path: `run` stops in front of it. That holds for a refused append too,
because a refused append changes nothing; the full path refuses it again and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.broker.dispatch import RequestContext
from pylogd.broker.handlers.produce import with_leaders
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from pylogd.broker.connection import Connection
    from pylogd.broker.dispatch import Route
    from pylogd.protocol.messages.produce import ProduceRequest
    from pylogd.replication.partition import Partition
    from pylogd.storage.log import AppendInfo

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
        "acks",
        "flexible",
        "has_log_start",
        "index",
        "key_and_version",
        "middle",
        "pack",
        "partition",
        "route",
        "size",
        "tail",
        "timeout_s",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(self, key_and_version: int, route: Route, partition: Partition, request: ProduceRequest) -> None:
        self.key_and_version = key_and_version
        self.route = route
        self.version = route.version
        self.flexible = route.request_tagged
        self.partition = partition
        self.acks = request.acks
        self.timeout_s = max(request.timeout_ms, 0) / 1000
        topic = request.topic_data[0]
        self.topic, self.topic_id = topic.name, topic.topic_id
        self.index = topic.partition_data[0].index
        # The reply's frame, cut around the numbers that change; from version 5 on it names the log's start as well.
        frame = bytearray()
        route.encode_into(frame, [], 0, self._response(PartitionProduceResponse(self.index, 0, *_SENTINELS)))
        self.has_log_start = route.version >= 5
        numbers = Struct(">qqq").pack(*_SENTINELS) if self.has_log_start else Struct(">qq").pack(*_SENTINELS[:2])
        at = frame.index(numbers)
        self.middle = bytes(frame[8:at])
        self.tail = bytes(frame[at + len(numbers) :])
        self.size = len(frame) - 4
        form = f">ii{len(self.middle)}s{'qqq' if self.has_log_start else 'qq'}{len(self.tail)}s"
        self.pack: Callable[..., bytes] = Struct(form).pack

    def _response(self, answer: PartitionProduceResponse) -> ProduceResponse:
        return ProduceResponse([TopicProduceResponse(self.topic, self.topic_id, [answer])])

    def reply(self, correlation_id: int, info: AppendInfo) -> bytes:
        numbers = (info.base_offset, info.log_append_time_ms, info.log_start_offset)
        if not self.has_log_start:
            numbers = numbers[:2]  # type: ignore[assignment]
        return self.pack(self.size, correlation_id, self.middle, *numbers, self.tail)

    def failure(self, connection: Connection, correlation_id: int, info: AppendInfo, code: ErrorCode) -> bytearray:
        """The reply to a request that was appended and then not acknowledged."""
        answer = PartitionProduceResponse(
            self.index, int(code), info.base_offset, info.log_append_time_ms, info.log_start_offset
        )
        context = RequestContext(self.version, None, correlation_id, connection, connection.dispatcher.node)
        frame = bytearray()
        self.route.encode_into(frame, [], correlation_id, with_leaders(context, self._response(answer)))
        return frame


class WaitingReply:
    """A reply with its place in the connection's order, until the acknowledgement is there."""

    __slots__ = ("_connection", "_correlation_id", "_head", "_info", "chunks", "deadline")

    def __init__(self, connection: Connection, head: _Head, correlation_id: int, info: AppendInfo) -> None:
        self._connection = connection
        self._head = head
        self._correlation_id = correlation_id
        self._info = info
        self.deadline = 0.0
        self.chunks: list[Any] | None = None

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._fill(code)
        self._connection.settled(self)

    def ready(self) -> None:
        """Nothing to wait for but the replies before it."""
        self._fill(ErrorCode.NONE)

    def expire(self) -> None:
        self.abandon()
        self._fill(ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        """Nobody waits for the acknowledgement any longer."""
        if self.chunks is None:
            self._head.partition.waiters.forget(self)

    @property
    def deferred(self) -> WaitingReply:
        """What is told when the connection has gone."""
        return self

    def _fill(self, code: ErrorCode) -> None:
        head, number, info = self._head, self._correlation_id, self._info
        self.chunks = [head.failure(self._connection, number, info, code) if code else head.reply(number, info)]


class RepeatedProduce:
    """The remembered heads of one connection; all of one length, because that is how a head is found."""

    __slots__ = ("_connection", "_head_bytes", "_heads", "_misses", "_timer", "_timer_at")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._heads: dict[bytes, _Head] = {}
        self._head_bytes = 0
        self._misses = 0
        #: One for all waiting replies of the connection: set for the earliest deadline, left alone when it is met.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def learn(
        self,
        key_and_version: int,
        route: Route,
        frame: memoryview,
        request: ProduceRequest,
        response: ProduceResponse | None,
    ) -> None:
        """Remember the head of a request that was just handled, if others like it can be appended directly. `response`
        is None when the request was appended and waits."""
        if request.transactional_id is not None or request.acks == 0 or len(request.topic_data) != 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1:
            return
        if response is not None and response.responses[0].partition_responses[0].error_code:
            return
        index, records = topic.partition_data[0].index, topic.partition_data[0].records
        by_id = route.version >= 13
        replicas = self._connection.dispatcher.node.replicas
        partition = (replicas.by_id if by_id else replicas.by_name).get(
            (topic.topic_id if by_id else topic.name, index)
        )
        if partition is None or records is None:
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
        if known is None or known.partition is not partition or known.key_and_version != key_and_version:
            self._heads[head] = _Head(key_and_version, route, partition, request)

    def run(
        self,
        view: memoryview,
        start: int,
        end: int,
        out: bytearray,
        now_ms: int,
        room: int,
        size_max: int = 0x7FFFFFFF,
    ) -> int:
        """Append the requests at the beginning of view[start:end] as long as they have remembered heads. Replies go to
        `out`, or to the connection's pending ones, of which there may be `room` more, if there are any or if they must
        wait. Returns where the first other request starts."""
        heads, records_at = self._heads, _OPENING_BYTES + self._head_bytes
        pending = self._connection.pending
        while end - start > records_at + 4:
            size, key_and_version, correlation_id = _opening(view, start)
            stop = start + 4 + size
            if stop > end or size > size_max:
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
                        while (byte := view[position]) > 127 and shift < 28:
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
                if not partition.is_leader:
                    break
                log = partition.log
                if partition.followers or log.config.flush_messages == 1:
                    info = partition.append(records, acks=head.acks, now_ms=now_ms, version=head.version)
                    waits = _must_wait(partition, head.acks, info)
                else:
                    # Alone and not bound to the disk: in the same moment acknowledged.
                    info = log.append_as_leader(records, partition.leader_epoch, now_ms=now_ms, version=head.version)
                    partition.advance()
                    waits = False
            except (KafkaError, IndexError, StructError):
                break
            start = stop
            if waits or pending:
                self._queue(head, correlation_id, info, waits)
                room -= 1
                if room <= 0:
                    break
            elif head.has_log_start:
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
            if len(out) > _REPLY_BYTES_MAX:
                break
        return start

    def _queue(self, head: _Head, correlation_id: int, info: AppendInfo, waits: bool) -> None:
        connection = self._connection
        reply = WaitingReply(connection, head, correlation_id, info)
        connection.pending.append(reply)
        if not waits:
            reply.ready()
            return
        reply.deadline = deadline = connection.loop.time() + head.timeout_s
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        partition = head.partition
        wait = partition.waiters.await_ack if head.acks == -1 else partition.waiters.await_flush
        wait(info.last_offset + 1, partition.leader_epoch, reply, 0)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._connection.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        connection = self._connection
        self._timer = None
        now = connection.loop.time()
        waiting = [reply for reply in connection.pending if isinstance(reply, WaitingReply) and reply.chunks is None]
        for reply in waiting:
            if reply.deadline <= now:
                reply.expire()
        left = [reply.deadline for reply in waiting if reply.chunks is None]
        if left:
            self._set_timer(min(left))
        if connection.pending:
            connection.settled(connection.pending[0])

    def close(self) -> None:
        self._heads.clear()
        if self._timer is not None:
            self._timer.cancel()


def _must_wait(partition: Partition, acks: int, info: AppendInfo) -> bool:
    """Whether the acknowledgement comes later: with the watermark, or with acks=1 with the flush."""
    log = partition.log
    if acks == -1:
        return log.high_watermark <= info.last_offset
    return log.config.flush_messages == 1 and log.flushed_offset <= info.last_offset


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
