"""The append of a decoded Produce: one batch for each partition, in order, and at once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from struct import Struct
from typing import TYPE_CHECKING, Any

from pylogd.broker.network.context import CloseConnection
from pylogd.broker.produce.acks import Acks
from pylogd.broker.produce.refusals import NotAdmitted, refused, summary, with_leaders
from pylogd.metadata.topic_names import INTERNAL_TOPICS
from pylogd.protocol.batch import HEADER_SIZE, MAGIC_POS
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from pylogd.runtime.deferred import Deferred
from pylogd.storage.validation import validate_produce_records

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.produce.admission import Admission
    from pylogd.protocol.messages.produce import PartitionProduceData, ProduceRequest
    from pylogd.replication.partition import Partition
    from pylogd.storage.log.log import AppendInfo

logger = logging.getLogger(__name__)

_length = Struct(">i").unpack_from


def append(
    ctx: RequestContext, request: ProduceRequest, admission: Admission | None
) -> ProduceResponse | Deferred | None:
    """Append what may be appended; `admission` says it for transactional records."""
    services = ctx.services
    acks = request.acks
    now_ms = services.clock.now_ms()
    by_id = ctx.version >= 13
    hosted: dict[Any, Partition] = services.replicas.by_id if by_id else services.replicas.by_name
    waiting: Acks | None = None
    failed = False
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            index = data.index
            partition: Partition | None = hosted.get((key, index))
            try:
                if partition is None:
                    raise KafkaError(services.leaders.missing_code(key, index))
                info = _append_to(partition, ctx, acks, data, admission, now_ms)
            except KafkaError as refusal:
                failed = True
                answers.append(refused(partition, index, refusal))
                continue
            except Exception:
                failed = True
                logger.exception("unexpected failure appending to %s", partition)
                answers.append(refused(partition, index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))
                continue
            answer = PartitionProduceResponse(
                index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset
            )
            answers.append(answer)
            if acks and partition.must_wait(acks, info.last_offset):
                waiting = waiting or Acks(ctx, request)
                waiting.wait(partition, info.last_offset + 1, answer)
        if answers:
            topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    if acks == 0:
        if failed:
            raise CloseConnection(summary(topics))
        return None
    response = ProduceResponse(topics)
    if waiting is not None:
        return waiting.start(response)
    return with_leaders(ctx, response) if failed else response


def _append_to(
    partition: Partition,
    ctx: RequestContext,
    acks: int,
    data: PartitionProduceData,
    admission: Admission | None,
    now_ms: int,
) -> AppendInfo:
    records: Any = data.records
    version = ctx.version
    if (
        version < 7
        or len(records) < HEADER_SIZE
        or records[MAGIC_POS] != 2
        or _length(records, 8)[0] + 12 != len(records)
    ):
        try:
            records = validate_produce_records(records, version)
        except KafkaError as refusal:
            raise NotAdmitted(refusal.code) from refusal
    if acks < -1 or acks > 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    guard = None if admission is None else admission.guard_of(partition)
    if partition.topic in INTERNAL_TOPICS and ctx.caller.client_id != "__admin_client":
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return partition.append(records, acks=acks, now_ms=now_ms, version=version, guard=guard)


def append_when_admitted(
    ctx: RequestContext, request: ProduceRequest, admission: Admission
) -> Awaitable[ProduceResponse | None]:
    """Append once the transaction's coordinator has answered."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The connection's buffer is its own again when this turn is over.
            data.records = memoryview(bytearray(data.records))  # type: ignore[arg-type]
    return _append_later(ctx, request, admission)


async def _append_later(ctx: RequestContext, request: ProduceRequest, admission: Admission) -> ProduceResponse | None:
    await admission.settled()
    answer: Any = append(ctx, request, admission)
    if isinstance(answer, Deferred):
        request.topic_data = []  # appended: it must not stay in memory while the reply waits
        ctx.connection.admitted()
        answered = ctx.services.loop.create_future()
        answer.listen(lambda response: None if answered.done() else answered.set_result(response))
        answer = await answered
    return answer  # type: ignore[no-any-return]
