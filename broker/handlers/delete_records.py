"""DeleteRecords (key 21): move the start of partitions up; what lies below is gone for readers at once, and the answer
comes when it is gone from every living replica.

1  throttling after the response
2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.network.context import RequestContext
from pylogd.metadata.topic_names import INTERNAL_TOPICS
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pylogd.runtime.deferred import Deferred

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition

#: Stands for "everything up to the high watermark".
HIGH_WATERMARK = -1


def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | Deferred:
    waiter = _Deletions(ctx.connection.loop.time() + max(request.timeout_ms, 0) / 1000)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                partition, offset = _delete(ctx, topic.name, asked.partition_index, asked.offset)
                waiter.wait(partition, offset, answer)
            except KafkaError as refusal:
                answer.error_code = int(refusal.code)
        if answers:
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    response = DeleteRecordsResponse(topics=topics)
    return waiter.start(response) if waiter.waiting else response


def _delete(ctx: RequestContext, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """Deletes here; returns the partition and the offset below which records are gone."""
    partition: Partition | None = ctx.services.replicas.get(topic, index)
    if partition is None:
        raise KafkaError(ctx.services.leaders.missing_code(topic, index))
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    log = partition.readable_log()
    if log.config.compact and not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Records of {partition.name} go by compaction only")
    wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {wanted} of {partition.name} is not valid")
    log.delete_records_before(wanted)
    partition.wake_fetches()
    return partition, wanted


class _Deletions:
    """Partitions in which followers still have records below the wanted offset."""

    __slots__ = ("_deadline_s", "_deferred", "_parts", "_response", "waiting")

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._parts: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
        self._deferred = Deferred()
        self._response: DeleteRecordsResponse | None = None
        self.waiting = 0

    def wait(self, partition: Partition, offset: int, answer: DeleteRecordsPartitionResult) -> None:
        answer.low_watermark = partition.low_watermark
        self._parts.append((partition, answer))
        self.waiting += 1
        partition.when_start_moved(offset, partition.leader_epoch, self._deadline_s, self, len(self._parts) - 1)

    def start(self, response: DeleteRecordsResponse) -> Deferred:
        self._response = response
        self._deferred.abandoned = self._abandon
        return self._deferred

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        partition, answer = self._parts[slot]
        answer.error_code = int(code)
        if code is ErrorCode.NONE:
            answer.low_watermark = partition.low_watermark
        elif code is not ErrorCode.REQUEST_TIMED_OUT:
            answer.low_watermark = -1
        self.waiting -= 1
        if self.waiting == 0 and self._response is not None:
            self._deferred.resolve(self._response)

    def _abandon(self) -> None:
        for partition, _ in self._parts:
            partition.abandon(self)
