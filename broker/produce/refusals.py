"""What a Produce says about a partition whose records were not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.network.client_endpoints import add_leader_endpoint
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pylogd.storage.validation import InvalidRecords

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.replication.partition import Partition

#: Refusals that say nothing about the log, and therefore not where it starts.
_WITHOUT_LOG_START = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
    )
)


class NotAdmitted(KafkaError):
    """Refused before the log was looked at. `text` goes to the client when it says more than the code."""

    def __init__(self, code: ErrorCode, text: str | None = None) -> None:
        super().__init__(code, text)
        self.text = text


def refused(partition: Partition | None, index: int, refusal: KafkaError) -> PartitionProduceResponse:
    """The answer for one partition."""
    code = refusal.code
    answer = PartitionProduceResponse(index, int(code), -1)
    if isinstance(refusal, NotAdmitted):
        answer.error_message = refusal.text
        return answer
    if partition is not None and partition.is_leader and code not in _WITHOUT_LOG_START:
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(refusal, InvalidRecords):
        answer.error_message = refusal.message
        answer.record_errors = [BatchIndexAndErrorMessage(n, text) for n, text in refusal.record_errors]
    return answer


def with_leaders(ctx: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Name the leader beside every NOT_LEADER_OR_FOLLOWER, for clients that understand it."""
    if ctx.version < 10:
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                key = topic.topic_id if ctx.version >= 13 else topic.name
                leader, epoch = ctx.services.leaders.current(key, answer.index)
                answer.current_leader = LeaderIdAndEpoch(leader, epoch)
                add_leader_endpoint(ctx, leader, endpoints, NodeEndpoint)
    response.node_endpoints = list(endpoints.values())
    return response


def summary(topics: list[TopicProduceResponse]) -> str:
    """All errors of a response in one line, for the log."""
    errors = [
        f"{topic.name or topic.topic_id.hex()}-{answer.index}: {_error_name(answer.error_code)}"
        for topic in topics
        for answer in topic.partition_responses
        if answer.error_code
    ]
    return "a Produce with acks=0 failed: " + ", ".join(errors)


def _error_name(code: int) -> str:
    return ErrorCode(code).name  # type: ignore[call-arg]
