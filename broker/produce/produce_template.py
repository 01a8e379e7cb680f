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

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.broker.produce.produce_head import NO_TAGS, Head, records_of
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage.log.log import AppendInfo

if TYPE_CHECKING:
    from pylogd.broker.network.connection import Connection
    from pylogd.broker.network.dispatch import Route
    from pylogd.protocol.messages.produce import ProduceRequest, ProduceResponse
    from pylogd.storage.log.placing import Placement

#: Size, key and version as one number, correlation id.
_opening = Struct(">iIi").unpack_from
_OPENING_BYTES = 12
#: Heads remembered per connection, one for each partition it produces to.
_HEADS_MAX = 1024
#: Requests with a head of another length before the remembered ones are given up for it.
_MISSES_MAX = 16
#: Replies collected before they are sent.
_REPLY_BYTES_MAX = 1 << 16
#: Requests up to this size are written together with others, and bytes of them that are looked at together.
_SMALL_BYTES = 1 << 11
_TOGETHER_BYTES = 1 << 14
#: It pays when about so many more are there.
_WORTHWHILE = 4


class WaitingReply:
    """A reply with its place in the connection's order, until the acknowledgement is there."""

    __slots__ = ("_connection", "_correlation_id", "_head", "_info", "chunks")

    def __init__(self, connection: Connection, head: Head, correlation_id: int, info: AppendInfo) -> None:
        self._connection = connection
        self._head = head
        self._correlation_id = correlation_id
        self._info = info
        self.chunks: list[Any] | None = None

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._fill(code)
        self._connection.settled(self)

    def ready(self) -> None:
        """Nothing to wait for but the replies before it."""
        self._fill(ErrorCode.NONE)

    def abandon(self) -> None:
        """Nobody waits for the acknowledgement any longer."""
        if self.chunks is None:
            self._head.partition.abandon(self)

    @property
    def deferred(self) -> WaitingReply:
        """What is told when the connection has gone."""
        return self

    def _fill(self, code: ErrorCode) -> None:
        head, number, info = self._head, self._correlation_id, self._info
        self.chunks = [head.failure(self._connection, number, info, code) if code else head.reply(number, info)]


class _Group:
    """Small requests of one turn to one partition, which are written at once."""

    __slots__ = ("_head", "_placed", "batches", "numbers", "places")

    def __init__(self, head: Head) -> None:
        self._head = head
        self._placed: Placement | None = None
        self.batches: list[memoryview] = []
        #: Their correlation ids, and where each stands in the turn.
        self.numbers: list[int] = []
        self.places: list[int] = []

    def place(self, now_ms: int, count: int) -> int:
        """How many of the turn's `count` requests stand before the first one here that cannot be appended like this."""
        partition = self._head.partition
        placed = self._placed = partition.log.place(self.batches, partition.leader_epoch, now_ms)
        taken = 0 if placed is None else len(placed.bases)
        return count if taken == len(self.batches) else self.places[taken]

    def write(self, now_ms: int, replies: list[bytes | bytearray], connection: Connection) -> None:
        """Append those that get a reply; the others are left as they came."""
        placed, count = self._placed, len(replies)
        if placed is not None and self.places[len(placed.bases) - 1] >= count:
            placed.forget()
            self.batches = [batch for batch, place in zip(self.batches, self.places) if place < count]
            self.place(now_ms, count)
            placed = self._placed
        if placed is None:
            return
        head = self._head
        answered = zip(self.places, self.numbers, placed.bases)
        try:
            placed.write()
        except KafkaError as refusal:
            for place, number, _ in answered:
                replies[place] = head.failure(connection, number, AppendInfo(-1, -1, -1, -1), refusal.code)
            return
        partition = head.partition
        partition.advance()
        log_start = partition.log.log_start_offset
        pack, size, middle, tail = head.pack, head.size, head.middle, head.tail
        for place, number, base in answered:
            replies[place] = pack(size, number, middle, base, -1, log_start, tail)


class RepeatedProduce:
    """The remembered heads of one connection; all of one length, because that is how a head is found."""

    __slots__ = ("_connection", "_head_bytes", "_heads", "_misses")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._heads: dict[bytes, Head] = {}
        self._head_bytes = 0
        self._misses = 0

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
        replicas = self._connection.dispatcher.services.replicas
        partition = (replicas.by_id if by_id else replicas.by_name).get(
            (topic.topic_id if by_id else topic.name, index)
        )
        if partition is None or records is None:
            return
        length_bytes, tail = 4, 0
        if route.request_tagged:
            length_bytes, tail = _uvarint_size(len(records) + 1), len(NO_TAGS)
            if frame[-tail:] != NO_TAGS:
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
            self._heads[head] = Head(key_and_version, route, partition, request)

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
                records = records_of(view, position, stop, head.flexible)
                partition = head.partition
                if records is None or not partition.is_leader:
                    break
                log = partition.log
                if partition.followers or log.config.flush_messages == 1:
                    info = partition.append(records, acks=head.acks, now_ms=now_ms, version=head.version)
                    waits = partition.must_wait(head.acks, info.last_offset)
                else:
                    # Alone and not bound to the disk: in the same moment acknowledged.
                    if head.plain and end - stop > _WORTHWHILE * size and size < _SMALL_BYTES and not pending:
                        done = self._append_together(view, start, end, out, now_ms)
                        if done > start:
                            start = done
                            if len(out) > _REPLY_BYTES_MAX:
                                break
                            continue
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

    def _append_together(self, view: memoryview, start: int, end: int, out: bytearray, now_ms: int) -> int:
        """Append small requests that came together with one write for each partition. Returns where the first request
        starts that was not appended."""
        heads, records_at = self._heads, _OPENING_BYTES + self._head_bytes
        groups: dict[Head, _Group] = {}
        stops: list[int] = []
        at, enough = start, start + _TOGETHER_BYTES
        while at < enough and end - at > records_at + 4:
            size, key_and_version, correlation_id = _opening(view, at)
            stop = at + 4 + size
            position = at + records_at
            head = heads.get(view[at + _OPENING_BYTES : position].tobytes())
            if stop > end or size > _SMALL_BYTES or head is None or head.key_and_version != key_and_version:
                break
            records = records_of(view, position, stop, head.flexible)
            if records is None:
                break
            group = groups.get(head)
            if group is None:
                if not head.alone:
                    break
                group = groups[head] = _Group(head)
            group.batches.append(records)
            group.numbers.append(correlation_id)
            group.places.append(len(stops))
            stops.append(stop)
            at = stop
        # Each group up to its first request that is not as simple as it looked; all up to the first of those.
        count = len(stops)
        for group in groups.values():
            count = min(count, group.place(now_ms, len(stops)))
        replies: list[bytes | bytearray] = [b""] * count
        for group in groups.values():
            group.write(now_ms, replies, self._connection)
        out += b"".join(replies)
        return stops[count - 1] if count else start

    def _queue(self, head: Head, correlation_id: int, info: AppendInfo, waits: bool) -> None:
        connection = self._connection
        reply = WaitingReply(connection, head, correlation_id, info)
        connection.pending.append(reply)
        if not waits:
            reply.ready()
            return
        partition = head.partition
        when = partition.when_committed if head.acks == -1 else partition.when_flushed
        when(info.last_offset + 1, partition.leader_epoch, connection.loop.time() + head.timeout_s, reply)

    def close(self) -> None:
        self._heads.clear()


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
