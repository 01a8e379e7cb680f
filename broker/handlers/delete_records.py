"""DeleteRecords (key 21): move the start of partitions up; what lies below is gone for readers at once.

1  throttling after the response
2  flexible
"""

from __future__ import annotations

from pylogd.broker.dispatch import RequestContext
from pylogd.broker.handlers.produce import INTERNAL_TOPICS
from pylogd.broker.leaders import missing_partition_code
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

#: Stands for "everything up to the high watermark".
HIGH_WATERMARK = -1


def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                answer.low_watermark = _delete(ctx, topic.name, asked.partition_index, asked.offset)
            except KafkaError as refusal:
                answer.error_code = int(refusal.code)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    return DeleteRecordsResponse(topics=topics)


def _delete(ctx: RequestContext, topic: str, index: int, offset: int) -> int:
    """Returns the low watermark."""
    partition = ctx.node.replicas.get(topic, index)
    if partition is None:
        raise KafkaError(missing_partition_code(ctx.node, topic, index))
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    log = partition.readable_log()
    if log.config.compact and not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Records of {partition.name} go by compaction only")
    wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {wanted} of {partition.name} is not valid")
    log.delete_records_before(wanted)
    partition.truncated()
    low: int = partition.low_watermark
    return low


def error_response(
    ctx: RequestContext, request: DeleteRecordsRequest, code: ErrorCode, message: str | None
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=-1, error_code=int(code)
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
