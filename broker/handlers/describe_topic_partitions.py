"""DescribeTopicPartitions: topics page by page, with eligible leader replicas. Version 0 (KIP-966).

Topics come in name order. A reply ends after `response_partition_limit` partitions (at most
`max.request.partition.size.limit`) and then names the topic and partition to go on from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.admin.topic_view import ListenerView, missing_topic_code
from pylogd.metadata.operations import TOPIC_OPERATIONS
from pylogd.metadata.topic_names import INTERNAL_TOPICS
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import describe_topic_partitions as m

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.metadata.registrations import Topic


def handle(ctx: RequestContext, request: m.DescribeTopicPartitionsRequest) -> m.DescribeTopicPartitionsResponse:
    image = ctx.services.image
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    everything = not request.topics
    wanted = set(image.topics) if everything else {topic.name for topic in request.topics}
    names = sorted(name for name in wanted if name >= first)
    if cursor is not None:
        if not everything and first not in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {first}",
            )
        if cursor.partition_index < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}",
            )
    limit_max = ctx.services.config["max.request.partition.size.limit"]
    remaining = max(min(limit_max, request.response_partition_limit), 1)
    view = ListenerView(image, ctx.caller.listener)
    response = m.DescribeTopicPartitionsResponse()
    for name in names:
        if remaining == 0:
            response.next_cursor = m.Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        answer = m.DescribeTopicPartitionsResponseTopic(
            name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=TOPIC_OPERATIONS
        )
        response.topics.append(answer)
        if topic is None:
            answer.error_code = missing_topic_code(name)
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        end = min(len(topic.partitions), start + remaining)
        answer.topic_id = topic.id
        answer.partitions = _partitions(view, topic, start, end)
        if end < len(topic.partitions):
            response.next_cursor = m.Cursor(topic_name=name, partition_index=end)
            break
        remaining -= len(answer.partitions)
    return response


def _partitions(
    view: ListenerView, topic: Topic, start: int, end: int
) -> list[m.DescribeTopicPartitionsResponsePartition]:
    found = []
    for index in range(start, end):
        partition = topic.partitions[index]
        found.append(
            m.DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=view.leader(partition),
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=view.offline(partition),
            )
        )
    return found
