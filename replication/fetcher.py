"""A follower's side of replication from one leader: which request comes next, and what an answer means.

All partitions of the leader share one Fetch in a session (KIP-227), so that an idle partition costs nothing: a request
names only what changed since the one before. One request is on its way at a time. Answers are applied to the logs at
once, verbatim: the bytes go from the receive buffer to the file in one write.

Events come in as calls with the time; `next_request` tells what to send. No clock, no socket: the driver in the broker
owns those, and so does the simulator.

Order matters in two places. An answer counts only for the offset and leader epoch it was asked for: a partition that
was cut, removed or got a new leader meanwhile ignores it. And with `flush.messages=1` the next fetch, which tells the
leader that everything below its offset is here, waits until that is true on disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from pylogd.replication import following
from pylogd.replication.divergence import truncation_offset
from pylogd.replication.fetch_state import FetchSettings, FetchState, Key
from pylogd.replication.offset_search import OffsetSearch

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition

logger = logging.getLogger(__name__)

NEVER_MS = 1 << 62
_INT32_MAX = 0x7FFFFFFF
#: The first pause after an error of one partition; it doubles up to `replica.fetch.backoff.ms`. Most such errors mean
#: that the leader has not heard yet that it leads, which takes milliseconds.
_BACKOFF_MS_MIN = 20

_SESSION_ERRORS = frozenset(
    (
        int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        int(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    )
)


class Fetcher:
    """Fetches from one leader. `broker_epoch` is read for every request: it changes when this broker registers anew."""

    def __init__(self, broker_id: int, leader_id: int, settings: FetchSettings) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.leader_id = leader_id
        self.settings = settings
        self.states: dict[Key, FetchState] = {}
        #: Partitions that stopped: their log failed, or the leader has a newer epoch than the metadata here.
        self.failed_partitions: dict[Key, FetchState] = {}
        self._session_id = 0
        self._session_epoch = 0
        #: What the next fetch tells the leader: partitions that changed, in this order, and partitions that leave its
        #: session.
        self._changed: dict[Key, FetchState] = {}
        self._forgotten: dict[Key, None] = {}
        #: Partitions that do not fetch now: those that pause, those whose offset the leader refused, and those that
        #: wait for their own flush.
        self._delayed: dict[Key, FetchState] = {}
        self._search = OffsetSearch()
        self._flushing: dict[Key, FetchState] = {}
        self._in_flight: Any = None

    # -- which partitions

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Follow the leader of `leader_epoch` in one more partition. Nothing changes when it already does."""
        key = (partition.topic_id, partition.index)
        known = self.states.get(key)
        if known is not None and known.leader_epoch == leader_epoch and known.partition is partition:
            return
        if known is not None:
            self._drop(known)
        self.failed_partitions.pop(key, None)
        state = FetchState(partition, leader_epoch)
        self.states[key] = state
        self._changed[key] = state
        self._forgotten.pop(key, None)
        if partition.flush_gates_acks and partition.log.flushed_offset < state.offset:
            # Fetched in an earlier epoch, or written as its leader, and not on disk yet.
            self._flushing[key] = state
            partition.log.environment.request_flush(partition.log)

    def remove(self, key: Key) -> bool:
        """Stop fetching a partition; what is on its way for it will be ignored."""
        self.failed_partitions.pop(key, None)
        state = self.states.get(key)
        if state is None:
            return False
        self._drop(state)
        return True

    def _drop(self, state: FetchState) -> None:
        key = state.key
        del self.states[key]
        for table in (self._changed, self._delayed, self._flushing):
            table.pop(key, None)
        self._search.discard(key)
        if state.sent_offset >= 0:
            self._forgotten[key] = None

    def __len__(self) -> int:
        return len(self.states)

    # -- what comes next

    def next_request(self, now_ms: int) -> Any:
        """The request to send now, or None: then `wake_ms` tells when to ask again, if no other event comes first."""
        if self._in_flight is not None or self._flushing:
            return None
        if self._delayed:
            self._end_delays(now_ms)
        if self._search:
            self._in_flight = self._search.request(self.broker_id)
        elif len(self.states) > len(self._delayed):
            self._in_flight = self._fetch()
        return self._in_flight

    def wake_ms(self) -> int:
        """When a pause of some partition ends."""
        return min((state.ready_ms for state in self._delayed.values()), default=NEVER_MS)

    def _end_delays(self, now_ms: int) -> None:
        for key, state in list(self._delayed.items()):
            if state.ready_ms <= now_ms:
                del self._delayed[key]
                if key not in self._search:
                    self._changed[key] = state
                    self._forgotten.pop(key, None)

    def _fetch(self) -> FetchRequest:
        settings = self.settings
        if self._session_epoch == 0:
            # A full request: the leader knows nothing yet.
            self._forgotten.clear()
            for key, state in self.states.items():
                if key not in self._delayed:
                    self._changed[key] = state
        topics: list[FetchTopic] = []
        topic_id: bytes | None = None
        max_bytes = settings.max_bytes
        for state in self._changed.values():
            partition = state.partition
            start = partition.log.log_start_offset
            asked = FetchPartition(
                partition.index, state.leader_epoch, state.offset, state.last_epoch, start, max_bytes
            )
            state.sent_offset = state.offset
            state.sent_start = start
            if partition.topic_id != topic_id:
                topic_id = partition.topic_id
                topics.append(FetchTopic(partition.topic, topic_id, [asked]))
            else:
                topics[-1].partitions.append(asked)
        self._changed.clear()
        forgotten: list[ForgottenTopic] = []
        if self._forgotten:
            by_topic: dict[bytes, list[int]] = {}
            for forgotten_id, index in self._forgotten:
                by_topic.setdefault(forgotten_id, []).append(index)
            forgotten = [ForgottenTopic("", key, indexes) for key, indexes in by_topic.items()]
            self._forgotten.clear()
        return FetchRequest(
            replica_state=ReplicaState(self.broker_id, self.broker_epoch),
            max_wait_ms=settings.wait_ms_max,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    # -- answers

    def received(self, response: Any, now_ms: int) -> None:
        """The answer to the request on its way."""
        self._in_flight = None
        if type(response) is FetchResponse:
            self._fetched(response, now_ms)
        else:
            self._offsets_listed(response, now_ms)

    def failed(self, now_ms: int) -> None:
        """The request got no answer. The connection is new next time, and the leader may be too: start a new session.
        The driver paces connection attempts."""
        self._in_flight = None
        self._new_session(keep_id=True)

    def _new_session(self, *, keep_id: bool) -> None:
        if not keep_id:
            self._session_id = 0
        self._session_epoch = 0
        for state in self.states.values():
            state.sent_offset = -1

    def _fetched(self, response: FetchResponse, now_ms: int) -> None:
        code = response.error_code
        if code:
            self._new_session(keep_id=code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if code not in _SESSION_ERRORS:
                logger.warning("broker %d refused a fetch with %s", self.leader_id, ErrorCode(code).name)
                for state in self.states.values():
                    self._delay(state, now_ms)
            return
        states = self.states
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                found = states.get((topic_id, data.partition_index))
                if found is not None and found.sent_offset == found.offset:
                    self._apply(found, data, now_ms)
        if response.session_id == 0:
            # The leader has no room for a session: every request is a full one.
            self._new_session(keep_id=False)
        else:
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_epoch == _INT32_MAX else self._session_epoch + 1

    def _apply(self, state: FetchState, data: Any, now_ms: int) -> None:
        code = data.error_code
        if code:
            self._refused(state, code, now_ms)
            return
        try:
            if data.diverging_epoch.epoch >= 0:
                self._truncate(state, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            else:
                self._append(state, data)
            state.backoff_ms = 0
        except KafkaError as error:
            name = state.partition.name
            if error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):
                # Perhaps damaged on the way, or read while the leader truncated: ask again.
                logger.error("invalid records fetched for %s at offset %d: %s", name, state.offset, error.message)
                self._delay(state, now_ms)
            elif error.code is ErrorCode.KAFKA_STORAGE_ERROR and not state.partition.log.offline:
                # A full disk: there may be room later.
                logger.error("replication of %s waits at offset %d: %s", name, state.offset, error.message)
                self._delay(state, now_ms)
            else:
                logger.error("replication of %s stops at offset %d: %s", name, state.offset, error.message)
                self._fail(state)
        except Exception:
            logger.exception("replication of %s stops at offset %d", state.partition.name, state.offset)
            self._fail(state)

    def _append(self, state: FetchState, data: Any) -> None:
        partition = state.partition
        records = data.records
        if records:
            log = partition.log
            if state.offset != log.log_end_offset:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"fetched at offset {state.offset} but the log ends at {log.log_end_offset}",
                )
            if following.append_from_leader(partition, records, state.leader_epoch):
                state.offset = log.log_end_offset
                state.last_epoch = log.epochs.latest
                self._changed[state.key] = state
                if partition.flush_gates_acks and log.flushed_offset < state.offset:
                    self._flushing[state.key] = state
        following.take_over_offsets(partition, data.high_watermark, data.log_start_offset)
        state.lag = max(0, data.high_watermark - state.offset)
        if partition.log.log_start_offset != state.sent_start:
            self._changed[state.key] = state

    def _truncate(self, state: FetchState, epoch: int, end_offset: int) -> None:
        log = state.partition.log
        target = truncation_offset(log, epoch, end_offset)
        logger.info(
            "%s: the leader's epoch %d ends at %d: truncating to %d", state.partition.name, epoch, end_offset, target
        )
        following.truncate_to(state.partition, target)
        self._resume(state, log.log_end_offset)

    def _resume(self, state: FetchState, offset: int) -> None:
        """Fetch again, from `offset`."""
        state.offset = offset
        state.last_epoch = state.partition.log.epochs.latest
        self._changed[state.key] = state
        self._forgotten.pop(state.key, None)
        self._flushing.pop(state.key, None)

    def flushed(self, partition: Partition) -> bool:
        """The log of a partition was flushed; True when nothing holds the next fetch back any more."""
        if not self._flushing:
            return False
        key = (partition.topic_id, partition.index)
        state = self._flushing.get(key)
        if state is None or partition.log.flushed_offset < state.offset:
            return False
        del self._flushing[key]
        return not self._flushing

    # -- what goes wrong

    def _refused(self, state: FetchState, code: int, now_ms: int) -> None:
        name = state.partition.name
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            logger.info("%s: offset %d is out of the range of its leader %d", name, state.offset, self.leader_id)
            self._leave_session(state)
            self._search.add(state)
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            # The leader is ahead of our metadata, which will come.
            logger.info("%s: leader epoch %d is fenced, waiting for new metadata", name, state.leader_epoch)
            self._fail(state)
        else:
            level = logging.DEBUG if code in _TRANSIENT else logging.WARNING
            logger.log(level, "%s: broker %d answers %s", name, self.leader_id, ErrorCode(code).name)
            self._delay(state, now_ms)

    def _delay(self, state: FetchState, now_ms: int) -> None:
        state.backoff_ms = min(max(2 * state.backoff_ms, _BACKOFF_MS_MIN), self.settings.backoff_ms)
        state.ready_ms = now_ms + state.backoff_ms
        self._leave_session(state)
        self._delayed[state.key] = state

    def _leave_session(self, state: FetchState) -> None:
        self._changed.pop(state.key, None)
        if state.sent_offset >= 0:
            state.sent_offset = -1
            self._forgotten[state.key] = None

    def _fail(self, state: FetchState) -> None:
        self._drop(state)
        self.failed_partitions[state.key] = state

    # -- an offset out of range

    def _offsets_listed(self, response: Any, now_ms: int) -> None:
        for state, code, offset in self._search.answers(response):
            if code:
                self._search.discard(state.key)
                self._refused(state, code, now_ms)
                continue
            try:
                self._continue_at(state, offset)
            except KafkaError as error:
                logger.error("replication of %s stops: %s", state.partition.name, error.message)
                self._fail(state)

    def _continue_at(self, state: FetchState, offset: int) -> None:
        found = self._search.learn(state, offset)
        if found is None:
            return
        target, stale = found
        partition = state.partition
        anew = ", the log starts anew" if stale else ""
        logger.warning("%s: fetching continues at offset %d, not %d%s", partition.name, target, state.offset, anew)
        if stale:
            following.restart_at(partition, target)
        else:
            following.truncate_to(partition, target)
        self._resume(state, target)


_TRANSIENT = frozenset(
    int(code)
    for code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
