"""The Produce that looks like one before: appended without decoding it again.

What a producer sends to one partition differs from request to request only in the correlation id and the records:

    size int32 | key and version int32 | correlation id int32 | name | length of the records | records | empty tags

The name is everything from the client id to the partition index: client id, transactional id, acks, time-out, one
topic, one partition. The first such request is decoded and handled in full. If it was appended and is not part of a
transaction, a form is remembered under its name: the partition it leads to and the frame of its reply. A later request
of that name goes straight to the log, and its reply is one `pack`, now or when its acknowledgement comes.

Whatever is not as simple as that takes the full path: `run` stops in front of it. That holds for a refused append too,
because a refused append changes nothing; the full path refuses it again and says why.
"""

from __future__ import annotations

from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.broker.network.templates import OPENING_BYTES, RepeatingConnection, Templates, opening
from pylogd.broker.produce.produce_form import NO_TAGS, ProduceForm, records_of
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.produce import ProduceResponse
from pylogd.storage.log.log import AppendInfo

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Route
    from pylogd.protocol.messages.produce import ProduceRequest
    from pylogd.storage.log.placing import Placement

#: Forms remembered per connection, one for each partition it produces to.
_FORMS_MAX = 1024
#: Requests with a name of another length before the known ones are given up for it.
_MISSES_MAX = 16
#: Replies collected before they are sent.
_REPLY_BYTES_MAX = 1 << 16
#: Requests up to this size are written together with others, and bytes of them that are looked at together.
_SMALL_BYTES = 1 << 11
_TOGETHER_BYTES = 1 << 14
#: It pays when about so many more are there.
_WORTHWHILE = 4
_NOT_WRITTEN = AppendInfo(-1, -1, -1, -1)


class PendingProduce:
    """A reply with its place in the connection's order, until the acknowledgement is there."""

    __slots__ = ("_connection", "_correlation_id", "_form", "_info", "_throttle_ms", "chunks")

    def __init__(
        self,
        connection: RepeatingConnection,
        form: ProduceForm,
        correlation_id: int,
        info: AppendInfo,
        throttle_ms: int,
    ) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._form = form
        self._info = info
        self._throttle_ms = throttle_ms
        self.chunks: list[Any] | None = None

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._fill(code)
        self._connection.settled(self)

    def ready(self) -> None:
        """Nothing to wait for but the replies before it."""
        self._fill(ErrorCode.NONE)

    def abandon(self) -> None:
        if self.chunks is None:
            self._form.partition.abandon(self)

    def _fill(self, code: ErrorCode) -> None:
        form, number, info = self._form, self._correlation_id, self._info
        if code or self._throttle_ms:
            self.chunks = form.full_reply(self._connection, number, info, code, self._throttle_ms)
        else:
            self.chunks = [form.reply(number, info)]


class _Group:
    """Small requests of one turn to one partition, which are written at once."""

    __slots__ = ("_form", "_placed", "batches", "numbers", "positions")

    def __init__(self, form: ProduceForm) -> None:
        self._form = form
        self._placed: Placement | None = None
        self.batches: list[memoryview] = []
        #: Their correlation ids, and where each stands in the turn.
        self.numbers: list[int] = []
        self.positions: list[int] = []

    def place(self, now_ms: int, count: int) -> int:
        """How many of the turn's `count` requests stand before the first one here that cannot be appended like this."""
        placed = self._placed = self._form.partition.place(self.batches, now_ms)
        taken = 0 if placed is None else len(placed.bases)
        return count if taken == len(self.batches) else self.positions[taken]

    def write(self, now_ms: int, replies: list[bytes], connection: RepeatingConnection) -> None:
        """Append those that get a reply; the others are left as they came."""
        placed, count = self._placed, len(replies)
        if placed is not None and self.positions[len(placed.bases) - 1] >= count:
            placed.forget()
            self.batches = [batch for batch, position in zip(self.batches, self.positions) if position < count]
            self.place(now_ms, count)
            placed = self._placed
        if placed is None:
            return
        form = self._form
        partition = form.partition
        answered = zip(self.positions, self.numbers, placed.bases)
        try:
            partition.write(placed)
        except KafkaError as refusal:
            for position, number, _ in answered:
                replies[position] = b"".join(form.full_reply(connection, number, _NOT_WRITTEN, refusal.code, 0))
            return
        log_start = partition.log.log_start_offset
        pack, size, middle, tail = form.pack, form.size, form.middle, form.tail
        for position, number, base in answered:
            replies[position] = pack(size, number, middle, base, -1, log_start, tail)


class RepeatedProduce(Templates):
    """The forms of one connection. Their names are of one length, because that is how a name is found."""

    works_ahead = True

    __slots__ = ("_clock", "_forms", "_misses", "_name_bytes")

    def __init__(self, connection: RepeatingConnection, route: Route) -> None:
        super().__init__(connection, route)
        self._clock = connection.dispatcher.services.clock
        self._forms: dict[bytes, ProduceForm] = {}
        self._name_bytes = 0
        self._misses = 0

    def learn(
        self,
        context: RequestContext,
        frame: memoryview,
        position: int,
        request: ProduceRequest,
        answer: Any,
    ) -> None:
        """Remember a request that was appended, if others like it can be appended directly."""
        self.outdated()
        route = self._route
        if request.transactional_id is not None or request.acks == 0 or len(request.topic_data) != 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1:
            return
        if isinstance(answer, ProduceResponse) and answer.responses[0].partition_responses[0].error_code:
            return
        index, records = topic.partition_data[0].index, topic.partition_data[0].records
        replicas = context.services.replicas
        if route.version >= 13:
            partition = replicas.by_id.get((topic.topic_id, index))
        else:
            partition = replicas.by_name.get((topic.name, index))
        if partition is None or records is None:
            return
        name = _name_of(frame, len(records), route.request_tagged)
        if name is not None and self._makes_room(len(name)):
            known = self._forms.get(name)
            if known is None or known.partition is not partition:
                self._forms[name] = ProduceForm(context.caller, route, partition, request)

    def _makes_room(self, name_bytes: int) -> bool:
        """Whether a name of this length is to be remembered; those of another length are given up for it."""
        if name_bytes != self._name_bytes:
            self._misses += 1
            if self._forms and self._misses < _MISSES_MAX:
                return False
            self._forms.clear()
            self._name_bytes = name_bytes
        elif len(self._forms) >= _FORMS_MAX:
            self._forms.clear()
        self._misses = 0
        return True

    def run(self, view: memoryview, start: int, end: int, out: bytearray, room: int, size_max: int) -> int:
        """Append the requests at the beginning whose names are known."""
        connection, gate = self._connection, self._gate
        if gate.generation != self._generation and self.outdated():
            return start
        forms, records_at = self._forms, OPENING_BYTES + self._name_bytes
        pending, meters = connection.pending, gate.meters
        now_ms = self._clock.now_ms()
        begin, count, throttle_ms = start, 0, 0
        while end - start > records_at + 4 and room > 0 and len(out) <= _REPLY_BYTES_MAX:
            size, key_and_version, correlation_id = opening(view, start)
            stop = start + 4 + size
            if stop > end or size > size_max:
                break
            position = start + records_at
            form = forms.get(view[start + OPENING_BYTES : position].tobytes())
            if form is None or key_and_version != self._key_and_version:
                break
            try:
                if (
                    size < _SMALL_BYTES
                    and end - stop > _WORTHWHILE * size
                    and not pending
                    and not meters
                    and form.alone
                ):
                    done, together = self._append_together(view, start, end, out, now_ms)
                    if together:
                        start = done
                        count += together
                        continue
                records = records_of(view, position, stop, form.flexible)
                if records is None:
                    break
                info = form.partition.append(records, acks=form.acks, now_ms=now_ms, version=form.version)
            except (KafkaError, IndexError, StructError):
                break
            start = stop
            count += 1
            if meters:
                throttle_ms = gate.admit_again(form.caller, self._route.key, size)
            waits = form.partition.must_wait(form.acks, info.last_offset)
            if waits or pending:
                self._queue(form, correlation_id, info, waits, throttle_ms)
                room -= 1
            elif throttle_ms:
                out += b"".join(form.full_reply(connection, correlation_id, info, ErrorCode.NONE, throttle_ms))
            else:
                out += form.reply(correlation_id, info)
        if count and not meters:
            gate.admit_again(connection.caller, self._route.key, start - begin - 4 * count, count)
        return start

    def _append_together(self, view: memoryview, start: int, end: int, out: bytearray, now_ms: int) -> tuple[int, int]:
        """Append small requests that came together with one write for each partition. Returns where the first request
        starts that was not appended, and how many were."""
        forms, records_at, known = self._forms, OPENING_BYTES + self._name_bytes, self._key_and_version
        groups: dict[ProduceForm, _Group] = {}
        stops: list[int] = []
        at, enough = start, start + _TOGETHER_BYTES
        while at < enough and end - at > records_at + 4:
            size, key_and_version, correlation_id = opening(view, at)
            stop = at + 4 + size
            position = at + records_at
            form = forms.get(view[at + OPENING_BYTES : position].tobytes())
            if stop > end or size > _SMALL_BYTES or form is None or key_and_version != known:
                break
            records = records_of(view, position, stop, form.flexible)
            if records is None:
                break
            group = groups.get(form)
            if group is None:
                if not form.alone:
                    break
                group = groups[form] = _Group(form)
            group.batches.append(records)
            group.numbers.append(correlation_id)
            group.positions.append(len(stops))
            stops.append(stop)
            at = stop
        # Each group up to its first request that is not as simple as it looked; all up to the first of those.
        count = len(stops)
        for group in groups.values():
            count = min(count, group.place(now_ms, len(stops)))
        replies = [b""] * count
        for group in groups.values():
            group.write(now_ms, replies, self._connection)
        out += b"".join(replies)
        return (stops[count - 1] if count else start), count

    def _queue(self, form: ProduceForm, correlation_id: int, info: AppendInfo, waits: bool, throttle_ms: int) -> None:
        connection = self._connection
        reply = PendingProduce(connection, form, correlation_id, info, throttle_ms)
        connection.pending.append(reply)
        if not waits:
            reply.ready()
            return
        partition = form.partition
        when = partition.when_committed if form.acks == -1 else partition.when_flushed
        when(info.last_offset + 1, partition.leader_epoch, connection.loop.time() + form.timeout_s, reply)

    def forget(self) -> None:
        self._forms.clear()


def _name_of(frame: memoryview, records_bytes: int, flexible: bool) -> bytes | None:
    """The name of a request with so many bytes of records; None when something else follows them. The frame comes
    without its size."""
    length_bytes, tail = 4, 0
    if flexible:
        length_bytes, tail = _uvarint_size(records_bytes + 1), len(NO_TAGS)
        if frame[-tail:] != NO_TAGS:
            return None
    return frame[OPENING_BYTES - 4 : len(frame) - tail - records_bytes - length_bytes].tobytes()


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
