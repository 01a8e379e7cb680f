"""One partition of an internal topic that this broker leads, and the state its log describes.

Life: loading (the log is replayed in slices, requests hear COORDINATOR_LOAD_IN_PROGRESS), active, and gone when
leadership is lost. Events run as they come; their records gather until the end of the turn of the event loop and are
appended as one batch. What an event saw is known by an offset: the log end, or the end of the batch that is being
gathered; its replies wait until the high watermark reaches it.

Crash policy: nothing but the log is kept. An append that fails leaves the state ahead of the log, so the shard starts
over by loading it again; the same happens when an event fails in a way nobody foresaw. The reply
to what failed says why; all others say NOT_COORDINATOR, which clients take as: look for the coordinator, ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from pylogd.coordinators.shard.contract import State
from pylogd.coordinators.shard.effects import WRITE_ERRORS, Answer, AwaitedReply, Effects, Event, Resolvable, plain_size
from pylogd.coordinators.shard.timers import Timers
from pylogd.protocol import batch
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.records import PLAIN_OVERHEAD_MAX, append_plain_record
from pylogd.replication.waiters import NEVER_S
from pylogd.storage.validation import Origin

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.shard.contract import RepeatedEvent
    from pylogd.coordinators.shard.marker import Marker
    from pylogd.replication.partition import Partition
    from pylogd.storage.producers.verification_guard import Guard

logger = logging.getLogger(__name__)

#: A timer that wants to write while too few replicas are in sync tries again this much later.
_RETRY_MS = 500
#: A wait that ends like this has reached its offset. The second adds that the ISR has become too small.
_COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class _Wait(NamedTuple):
    """Replies that leave when the high watermark reaches `offset`."""

    offset: int
    replies: list[Answer]
    deadline_s: float


class Shard(Generic[State]):
    """`make_state(shard)` gives the empty state; it is called again when the shard has to start over."""

    def __init__(
        self,
        host: Host,
        partition: Partition,
        epoch: int,
        make_state: Callable[[Shard[State]], State],
        reload: Callable[[Shard[State]], None],
        *,
        compression: int = 0,
        commit_timeout_ms: int = 5000,
    ) -> None:
        self._loop = host.loop
        self._clock = host.clock
        self.partition = partition
        self.index = partition.index
        self.epoch = epoch
        self.compression = compression
        self.commit_timeout_ms = commit_timeout_ms
        self.active = False
        #: Loading went wrong: this partition cannot be served until it moves or the broker restarts.
        self.failed = False
        self.closed = False
        self._starting = False
        self._make_state = make_state
        self._reload = reload
        self.state = make_state(self)
        self.timers = Timers(host.loop, self.run)
        #: Every reply that is still to be given, also those that no event has answered yet.
        self._unanswered: dict[Resolvable, AwaitedReply] = {}
        self._body = bytearray()
        self._count = 0
        self._base_ms = 0
        self._replies: list[Answer] = []
        self._flush_scheduled = False
        self._call_soon = host.loop.call_soon
        #: Events of `submit_repeated` that have not run yet: (event, given, reply).
        self._repeated: list[tuple[RepeatedEvent, Any, AwaitedReply]] = []
        #: Replies that wait for the high watermark, by the slot of their wait, and the slot of the last.
        self._waiting: dict[int, _Wait] = {}
        self._slot = 0

    # -- events

    def check(self) -> None:
        """KafkaError unless events may be submitted."""
        if self.closed or self.failed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not self.active:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def submit(
        self,
        event: Event,
        reply: AwaitedReply | None = None,
        *,
        writes: bool = True,
        producer: tuple[int, int] | None = None,
        guard: Guard | None = None,
    ) -> AwaitedReply | None:
        """Run an event now and carry out its effects; returns `reply`. While too few replicas are in sync, an event
        that `writes` is refused without being run. Any other runs, and only its records are refused. Until then it must
        have changed nothing but timers. They are set: a session goes on although what its member wants has to wait.
        `producer` is (id, epoch) of the transaction to which the event's records belong, `guard` what that
        transaction's coordinator was asked under (None: it was not asked)."""
        if not self.active:
            self.check()
        if reply is not None:
            self._unanswered[reply] = reply
        if self._repeated:
            self._run_repeated()
        if producer is not None:
            self.flush()
        if not self.active:
            return reply  # an earlier event failed, and this reply was refused with the rest
        effects = self._effects(producer)
        if writes and not effects.writable:
            self._refuse(effects, reply, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        else:
            try:
                if producer is not None and guard is not None:
                    # A refused append would make the shard start over: ask first.
                    self.partition.log.producers.check_verified(*producer, guard)
                event(effects)
            except KafkaError as refusal:
                if effects.records:
                    logger.error("an event of %s failed half-way: %s", self.partition.name, refusal)
                    self._start_over(refusal.code, [reply])
                    return reply
                self._refuse(effects, reply, refusal)
            except Exception:
                logger.exception("unexpected failure in an event of %s", self.partition.name)
                self._start_over(ErrorCode.UNKNOWN_SERVER_ERROR, [reply])
                return reply
        if not effects.records or self._gather(effects, reply):
            self._settle(effects, producer, guard)
        return reply

    def submit_repeated(self, event: RepeatedEvent, given: Any, reply: AwaitedReply) -> None:
        """Run an event that many requests repeat, at the end of this turn or before the next other event: those of one
        turn share what each would cost alone. The outcome is that of `submit`. The shard must be active."""
        self._unanswered[reply] = reply
        self._repeated.append((event, given, reply))
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._call_soon(self._flush_due)

    def _run_repeated(self) -> None:
        repeated, self._repeated = self._repeated, []
        effects = self._effects(None)
        for event, given, reply in repeated:
            try:
                event.decide(effects, reply, given)
            except KafkaError as refusal:
                if effects.records:
                    logger.error("an event of %s failed half-way: %s", self.partition.name, refusal)
                    self._start_over(refusal.code, [reply])
                    return
                self._refuse(effects, reply, refusal)
            except Exception:
                logger.exception("unexpected failure in an event of %s", self.partition.name)
                self._start_over(ErrorCode.UNKNOWN_SERVER_ERROR, [reply])
                return
            if effects.records:
                if not self._gather(effects, reply):
                    return
                effects.gathered()
        self._settle(effects, None, None)

    def _effects(self, producer: tuple[int, int] | None) -> Effects:
        log = self.partition.log
        return Effects(
            self._clock.now_ms(),
            self.state,
            log.log_end_offset + self._count,
            -1 if producer is None else producer[0],
            min(log.config.max_message_bytes, log.config.segment_bytes) - batch.HEADER_SIZE,
            self._writable(),
        )

    def run(self, name: Hashable, event: Event) -> None:
        """Run an event that nobody asked for, now or as soon as enough replicas are in sync for it to write."""
        if not self.active:
            return
        if not self._writable():
            # Under its own name, so that whoever sets or cancels that timer meanwhile is obeyed.
            self.timers.set(name, _RETRY_MS, event)
            return
        self.submit(event)

    def _writable(self) -> bool:
        partition = self.partition
        return len(partition.replica_ids) <= 1 or not partition.is_leader or len(partition.isr) >= partition.min_isr

    def _refuse(self, effects: Effects, reply: AwaitedReply | None, refusal: KafkaError) -> None:
        if reply is not None:
            code = WRITE_ERRORS.get(refusal.code)
            response = reply.refuse(refusal.code, refusal.message) if code is None else reply.refuse(code, None)
            effects.answer(reply, response)

    def _settle(self, effects: Effects, producer: tuple[int, int] | None, guard: Guard | None) -> None:
        """Set timers, and let replies wait for the records they come with."""
        if effects.timers:
            for name, timer in effects.timers.items():
                if timer is None:
                    self.timers.cancel(name)
                else:
                    self.timers.set(name, timer[0], timer[1])
        if self._count:
            self._replies += effects.replies
            if producer is not None:
                self.flush(producer, guard)
            elif not self._flush_scheduled:
                self._flush_scheduled = True
                self._call_soon(self._flush_due)
        elif effects.replies:
            self._wait_for(self.partition.log.log_end_offset, effects.replies)

    def _gather(self, effects: Effects, reply: AwaitedReply | None) -> bool:
        """Add the records of the event of `reply` to the batch of this turn; False when that failed and the shard
        starts over."""
        limit = effects.batch_bytes_max
        atomic = effects.atomic
        if atomic and len(self._body) + effects.size + PLAIN_OVERHEAD_MAX * len(effects.encoded) > limit:
            size = plain_size(effects.encoded, 0, limit)
            if size > limit:
                logger.error("an event of %s writes %d bytes, which no batch can hold", self.partition.name, size)
                self._start_over(ErrorCode.RECORD_LIST_TOO_LARGE, [reply])
                return False
            self.flush()
        for key, value in effects.encoded:
            if not atomic and len(self._body) + len(key) + len(value or b"") + PLAIN_OVERHEAD_MAX > limit:
                self.flush()
            if not self.active:
                return False
            if not self._count:
                self._base_ms = effects.now_ms
            append_plain_record(self._body, self._count, key, value)
            self._count += 1
        return True

    # -- writing

    def _flush_due(self) -> None:
        if self._repeated:
            self._run_repeated()
        self._flush_scheduled = False
        if self.active:
            self.flush()

    def flush(self, producer: tuple[int, int] | None = None, guard: Guard | None = None) -> None:
        """Append what has gathered."""
        if self._repeated:
            self._run_repeated()
        if not self._count:
            return
        body, count, replies = self._body, self._count, self._replies
        self._body, self._count, self._replies = bytearray(), 0, []
        payload: bytes | bytearray = body
        if self.compression:
            from pylogd.protocol.compression import compress

            payload = compress(self.compression, body)
        attributes = self.compression | (batch.TRANSACTIONAL_FLAG if producer is not None else 0)
        records = batch.assemble(
            payload,
            base_offset=0,
            leader_epoch=self.epoch,
            attributes=attributes,
            last_offset_delta=count - 1,
            base_timestamp=self._base_ms,
            max_timestamp=self._base_ms,
            producer_id=-1 if producer is None else producer[0],
            producer_epoch=-1 if producer is None else producer[1],
            base_sequence=-1,
            record_count=count,
        )
        try:
            info = self.partition.append(
                memoryview(records), acks=-1, now_ms=self._clock.now_ms(), origin=Origin.COORDINATOR, guard=guard
            )
        except KafkaError as failure:
            logger.warning("an append to %s failed: %s", self.partition.name, failure.message)
            self._start_over(failure.code, [reply for reply, _ in replies])
            return
        self._wait_for(info.last_offset + 1, replies)

    def end_transaction(self, marker: Marker, reply: AwaitedReply, response: Any) -> None:
        """Write the marker of a transaction that has records here, then apply it; `reply` gets `response` when the
        marker is committed. KafkaError when it is refused (a fenced epoch)."""
        self.check()
        self.flush()
        self.check()
        info = marker.append_to(self.partition, self._clock.now_ms())
        self.state.replay_end_transaction(marker.producer_id, marker.commit)
        self._unanswered[reply] = reply
        self._wait_for(info.last_offset + 1, [(reply, response)])

    # -- replies

    def _wait_for(self, offset: int, replies: list[Answer]) -> None:
        if not replies:
            return
        partition = self.partition
        if partition.log.high_watermark >= offset:
            self._resolve(replies)
            return
        last = self._waiting.get(self._slot)
        if last is not None and last.offset == offset and last.deadline_s < NEVER_S:
            last.replies.extend(replies)
            return
        self._slot += 1
        deadline_s = self._loop.time() + self.commit_timeout_ms / 1000
        self._waiting[self._slot] = _Wait(offset, replies, deadline_s)
        partition.when_committed(offset, self.epoch, deadline_s, self, self._slot)

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        """A wait for the high watermark is over. When leadership has changed, the partition's listener says what is
        next: `new_epoch`, which waits again, or `close`."""
        if code in _COMMITTED:
            self._resolve(self._waiting.pop(slot).replies)
        elif code is ErrorCode.REQUEST_TIMED_OUT:
            self._expire(slot)

    def _resolve(self, replies: list[Answer]) -> None:
        unanswered = self._unanswered
        for reply, response in replies:
            unanswered.pop(reply, None)
            reply.resolve(response)

    def _expire(self, slot: int) -> None:
        """Replies whose records did not commit in time are refused; the records stay."""
        offset, replies, _ = self._waiting.pop(slot)
        # A reply that no client waits for, such as a coordinator's own, has no deadline.
        notes = [pair for pair in replies if pair[0] not in self._unanswered]
        if notes:
            self._waiting[slot] = _Wait(offset, notes, NEVER_S)
            self.partition.when_committed(offset, self.epoch, NEVER_S, self, slot)
        for reply, _ in replies:
            awaited = self._unanswered.pop(reply, None)
            if awaited is not None:
                awaited.fail(WRITE_ERRORS[ErrorCode.REQUEST_TIMED_OUT])

    # -- life

    def activate(self) -> None:
        """The log is replayed. When the very first event fails, loading again would fail as well."""
        self.active = self._starting = True
        self.run("loaded", self.state.loaded)
        self._starting = False

    def new_epoch(self, epoch: int) -> None:
        """Leadership goes on under a new epoch: replies that wait for the high watermark wait under the new one."""
        self.epoch = epoch
        for slot, wait in tuple(self._waiting.items()):
            self.partition.when_committed(wait.offset, epoch, wait.deadline_s, self, slot)

    def _start_over(self, code: ErrorCode, culprits: Sequence[Resolvable | None]) -> None:
        """`code` is for those whose event it was."""
        self.active = False
        code = WRITE_ERRORS.get(code, code)
        for reply in culprits:
            awaited = None if reply is None else self._unanswered.pop(reply, None)
            if awaited is not None:
                awaited.fail(code)
        self._drop(ErrorCode.NOT_COORDINATOR)
        self.failed = self._starting
        if not self.closed and not self.failed:
            self.state = self._make_state(self)
            self._reload(self)

    def close(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Leadership is lost: every reply that is still to be given is refused."""
        if not self.closed:
            self.closed = True
            self._drop(code)

    def _drop(self, code: ErrorCode) -> None:
        self.active = False
        self.timers.clear()
        self._waiting.clear()
        self.partition.abandon(self)
        self._body, self._count, self._replies = bytearray(), 0, []
        self._repeated = []
        unanswered, self._unanswered = self._unanswered, {}
        for reply in unanswered.values():
            reply.fail(code)
