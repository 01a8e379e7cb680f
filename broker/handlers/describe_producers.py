"""DescribeProducers (key 61): who writes to a partition, with sequences and open transactions (KIP-664)."""

from __future__ import annotations

from pylogd.broker.network.context import RequestContext
from pylogd.metadata.topic_names import invalid_name_reason
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            answers.append(answer)
            partition = ctx.services.replicas.get(topic.name, index)
            try:
                reason = invalid_name_reason(topic.name)
                if reason is not None:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
                if partition is None:
                    raise KafkaError(ctx.services.leaders.missing_code(topic.name, index))
                log = partition.readable_log(leader_only=False)
            except KafkaError as refusal:
                answer.error_code = int(refusal.code)
                if ctx.services.image.topic(topic.name) is None:
                    answer.error_message = refusal.message
                continue
            answer.active_producers = [_state(entry) for entry in list(log.producers.producers.values())]
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return DescribeProducersResponse(topics=topics)


def _state(entry) -> ProducerState:  # type: ignore[no-untyped-def]
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=-1 if entry.txn_first_offset is None else entry.txn_first_offset,
    )
