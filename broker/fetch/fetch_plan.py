"""Which bytes answer a Fetch: limits, ceilings and errors of every partition, decided without reading the data itself.

A plan holds file ranges. It is cheap to make and to throw away: a long poll plans again when something moved. Nothing
is pinned before the reply is handed to the stream, which happens in the same turn.

Where a read starts in an old segment is found on disk. If that is not in memory the plan is not made (ColdRead from
the log) and `cold` names the bytes a worker has to read first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylogd.broker.fetch.fetch_sessions import Answer, FetchTarget
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from pylogd.runtime.files import ColdRead, FileRange

if TYPE_CHECKING:
    from pylogd.broker.replicas.leaders import Leaders
    from pylogd.metadata.latest import LatestImage
    from pylogd.replication.partition import Partition
    from pylogd.replication.replicas import Replicas
    from pylogd.storage.log.log import Log

logger = logging.getLogger(__name__)

CONSUMER = -1


class FetchParams:
    """What holds for the whole request."""

    __slots__ = (
        "by_id",
        "leader_only",
        "max_bytes",
        "min_bytes",
        "now_ms",
        "rack",
        "read_committed",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        *,
        by_id: bool,
        replica_id: int,
        replica_epoch: int,
        leader_only: bool,
        read_committed: bool,
        min_bytes: int,
        max_bytes: int,
        now_ms: int = 0,
        rack: str = "",
    ) -> None:
        self.by_id = by_id
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.leader_only = leader_only
        self.read_committed = read_committed
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        #: When a follower's request arrived, on the monotonic clock.
        self.now_ms = now_ms
        #: Where the consumer is, when replicas are selected by that (KIP-392).
        self.rack = rack


class _Unknown(KafkaError):
    """The cluster has no such topic or partition. Not worth a reply of its own: a client would ask in a busy loop."""


class Plan:
    """The answers, in the order of the targets; `urgent` means that waiting for more data makes no sense."""

    __slots__ = ("answers", "cold", "size", "unknown", "urgent")

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.size = 0
        self.urgent = False
        self.unknown = 0
        #: Reads (log, offset, ceiling) whose place in the log is not in memory.
        self.cold: list[FileRange] = []


class FetchPlanner:
    """Makes plans from the replicas of this broker."""

    __slots__ = ("_broker_id", "_leaders", "_metadata", "replicas")

    def __init__(self, broker_id: int, metadata: LatestImage, replicas: Replicas, leaders: Leaders) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._leaders = leaders
        self.replicas = replicas

    def plan(self, targets: Iterable[FetchTarget], params: FetchParams, *, first: bool, nowait: bool = True) -> Plan:
        """`first`: the request has just arrived, so that a follower's offsets count as progress."""
        plan = Plan()
        answers = plan.answers
        left = params.max_bytes
        at_least_one = True
        for target in targets:
            try:
                answer = self._read(target, params, left, at_least_one, first, nowait, plan)
            except KafkaError as refusal:
                answer = refused(target, refusal.code)
                if isinstance(refusal, _Unknown):
                    plan.unknown += 1
                    answer.aborted_transactions = []  # as Kafka has it: null only where a log was looked at
                else:
                    plan.urgent = True
                answers.append((target, answer))
                continue
            size = len(answer.records or b"")
            if size:
                at_least_one = False
                left = max(0, left - size)
                plan.size += size
            answers.append((target, answer))
        if answers and plan.unknown == len(answers):
            plan.urgent = True
        return plan

    def _find(self, target: FetchTarget, by_id: bool) -> Partition:
        replicas = self.replicas
        partition: Partition | None = (replicas.by_id if by_id else replicas.by_name).get(target.key)
        if partition is not None:
            return partition
        if by_id:
            if target.topic is None:
                raise _Unknown(ErrorCode.UNKNOWN_TOPIC_ID)
            if replicas.get(target.topic, target.index) is not None:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        code = self._leaders.missing_code(target.topic or "", target.index)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _Unknown(code)
        raise KafkaError(code)

    def _read(
        self,
        target: FetchTarget,
        params: FetchParams,
        left: int,
        at_least_one: bool,
        first: bool,
        nowait: bool,
        plan: Plan,
    ) -> PartitionData:
        partition = self._find(target, params.by_id)
        log = partition.readable_log(target.current_leader_epoch, leader_only=params.leader_only)
        offset = target.fetch_offset
        follower = params.replica_id >= 0
        if follower:
            partition.check_follower(params.replica_id, target.current_leader_epoch)
        stable = log.last_stable_offset
        answer = PartitionData(
            target.index, 0, log.high_watermark, stable, log.log_start_offset, aborted_transactions=None, records=b""
        )
        if target.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(log, target)
            if diverging is not None:
                answer.diverging_epoch = diverging
                plan.urgent = True
                return answer
        if params.rack and partition.is_leader:
            nearer = self._nearest_replica(partition, params.rack, offset)
            if nearer is not None:
                answer.preferred_read_replica = nearer
                plan.urgent = True
                return answer
        if params.replica_id != CONSUMER:
            ceiling = log.log_end_offset
        elif params.read_committed:
            ceiling = stable
            answer.aborted_transactions = []
        else:
            ceiling = log.high_watermark
        limit = min(target.max_bytes, left)
        try:
            found = log.read(offset, limit, ceiling, at_least_one, nowait)
        except ColdRead as cold:
            plan.cold.append(cold.range)
            if follower and first:
                note_progress(partition, target, params)
            return answer
        if found.range is not None:
            answer.records = found.range
            if answer.aborted_transactions is not None:
                answer.aborted_transactions = _aborted(log, offset, ceiling, found.segment_base_offset)
        if follower and first:
            note_progress(partition, target, params)
            answer.high_watermark = log.high_watermark
        return answer

    def _nearest_replica(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The in-sync follower in the consumer's rack that is furthest ahead and has `offset`; None when the leader
        itself is there, or nobody."""
        brokers = self._metadata.image.brokers
        me = brokers.get(self._broker_id)
        if me is not None and me.rack == rack:
            return None
        best: tuple[int, int, int] | None = None
        for replica, follower in partition.followers.items():
            broker = brokers.get(replica)
            if (
                broker is not None
                and not broker.fenced
                and broker.rack == rack
                and replica in partition.isr
                and follower.log_start_offset <= offset <= follower.log_end_offset
            ):
                candidate = (follower.log_end_offset, follower.last_caught_up_ms, -replica)
                if best is None or candidate > best:
                    best = candidate
        return None if best is None else -best[2]


def _aborted(log: Log, offset: int, ceiling: int, segment_base_offset: int) -> list[AbortedTransaction]:
    """Up to the end of the segment: more than the range may need, never less."""
    following = log.segments.higher(segment_base_offset)
    end = ceiling if following is None else min(ceiling, following.base_offset)
    return [
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in log.aborted_transactions(offset, end)
    ]


def note_progress(partition: Partition, target: FetchTarget, params: FetchParams) -> None:
    """The follower has everything below the offset it asks for."""
    partition.follower_fetched(
        params.replica_id, params.replica_epoch, target.fetch_offset, target.log_start_offset, params.now_ms
    )


def _diverging_epoch(log: Log, target: FetchTarget) -> EpochEndOffset | None:
    """Where the reader's history leaves ours, if it does (KIP-595)."""
    epoch, end = log.offset_for_epoch(target.last_fetched_epoch)
    if end == -1 or epoch == -1 or target.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < target.last_fetched_epoch or end < target.fetch_offset:
        return EpochEndOffset(epoch, end)
    return None


def refused(target: FetchTarget, code: ErrorCode) -> PartitionData:
    return PartitionData(target.index, int(code), -1, -1, -1, aborted_transactions=None, records=b"")


def warm(cold: list[FileRange]) -> None:
    """Worker. Brings what a plan had to look at into memory, so that the next plan finds it there. Only the files are
    touched: the logs belong to the event loop."""
    for place in cold:
        try:
            place.warm()
        except OSError as failure:
            # The plan that follows meets the same failure on the event loop and answers it.
            logger.debug("warming %s: %s", place, failure)
