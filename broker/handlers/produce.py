"""Produce (key 0): append one batch per partition, acknowledge when the request's acks are met.

 3  transactional id; records in format 2
 5  log start offset in the response
 7  zstd
 8  record errors and a message per partition in the response
 9  flexible
10  the current leader and its address come with NOT_LEADER_OR_FOLLOWER (KIP-951)
11  the client knows retriable transaction errors (KIP-890)
12  partitions join a transaction without AddPartitionsToTxn (KIP-890)
13  topic ids instead of names (KIP-516)

Appending is immediate and in order. With acks=1 the reply follows at once (with `flush.messages=1`: once flushed); with
acks=all it waits for the high watermark or the request's time-out, and the connection goes on with the next Produce
meanwhile. A duplicate is answered with the offset of its original and waits like it. With acks=0 an error can only be
told by hanging up.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from struct import Struct
from typing import TYPE_CHECKING, Any

from pylogd.broker.network.context import CloseConnection, RequestContext
from pylogd.broker.replicas.leaders import add_leader_endpoint, current_leader, missing_partition_code
from pylogd.metadata.topic_names import INTERNAL_TOPICS
from pylogd.protocol.batch import HEADER_SIZE, MAGIC_POS, batch_end
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pylogd.runtime.deferred import Deferred
from pylogd.storage.validation import InvalidRecords, validate_produce_records

if TYPE_CHECKING:
    from pylogd.broker.produce.admission import Admission
    from pylogd.replication.partition import Partition

logger = logging.getLogger(__name__)

_length = Struct(">i").unpack_from
#: Low byte of the attributes, with the transactional bit.
_ATTRIBUTES_LOW = 22
_TRANSACTIONAL = 0x10
#: A batch that says it is shorter than the oldest kind of message is none.
_LENGTH_MIN = 14

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
    )
)


def handle(
    ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Deferred | Awaitable[ProduceResponse | None] | None:
    if not _check_transactional(request):
        return _append(ctx, request, None)
    from pylogd.broker.produce.admission import Admission

    admission = Admission(ctx, request)
    if admission.ask() and not admission.concurrent:
        return _append(ctx, request, admission)
    return _append_when_admitted(ctx, request, admission)


def _append_when_admitted(
    ctx: RequestContext, request: ProduceRequest, admission: Admission
) -> Awaitable[ProduceResponse | None]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The connection's buffer is its own again when this turn is over.
            data.records = memoryview(bytearray(data.records))  # type: ignore[arg-type]

    async def wait() -> ProduceResponse | None:
        await admission.settled()
        answer: Any = _append(ctx, request, admission)
        if isinstance(answer, Deferred):
            request.topic_data = []  # appended: it must not stay in memory while the reply waits
            ctx.connection.admitted()
            answered = ctx.services.loop.create_future()
            answer.listen(lambda response: None if answered.done() else answered.set_result(response))
            answer = await answered
        return answer  # type: ignore[no-any-return]

    return wait()


def _append(
    ctx: RequestContext, request: ProduceRequest, admission: Admission | None
) -> ProduceResponse | Deferred | None:
    """Append what may be appended; `admission` says it for transactional records."""
    node = ctx.services
    version = ctx.version
    acks = request.acks
    now_ms = node.clock.now_ms()
    by_id = version >= 13
    hosted = node.replicas.by_id if by_id else node.replicas.by_name
    waiter: _Acks | None = None
    failed = False
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            index = data.index
            records: Any = data.records
            partition: Partition | None = hosted.get((key, index))
            try:
                if partition is None:
                    raise KafkaError(missing_partition_code(node, key, index))
                if (
                    version < 7
                    or len(records) < HEADER_SIZE
                    or records[MAGIC_POS] != 2
                    or _length(records, 8)[0] + 12 != len(records)
                ):
                    try:
                        records = validate_produce_records(records, version)
                    except KafkaError as refusal:
                        # Refused before the log was looked at.
                        answers.append(PartitionProduceResponse(index, int(refusal.code), -1))
                        failed = True
                        continue
                if acks < -1 or acks > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                guard = None if admission is None else admission.guard_of(partition)
                if partition.topic in INTERNAL_TOPICS and ctx.caller.client_id != "__admin_client":
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                info = partition.append(records, acks=acks, now_ms=now_ms, version=version, guard=guard)
            except KafkaError as refusal:
                failed = True
                answers.append(_refused(ctx, partition, index, refusal))
                continue
            except Exception:
                failed = True
                logger.exception("unexpected failure appending to %s", partition)
                answers.append(_refused(ctx, partition, index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))
                continue
            answer = PartitionProduceResponse(
                index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset
            )
            answers.append(answer)
            if acks and partition.must_wait(acks, info.last_offset):
                waiter = waiter or _Acks(ctx, request)
                waiter.wait(partition, info.last_offset + 1, answer)
        if answers:
            topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    if acks == 0:
        if failed:
            raise CloseConnection(_summary(topics))
        return None
    response = ProduceResponse(topics)
    if waiter is not None:
        return waiter.start(response)
    return with_leaders(ctx, response) if failed else response


def _check_transactional(request: ProduceRequest) -> bool:
    """Are there transactional records? They need a transactional id; checked for all partitions before anything is
    appended."""
    found = False
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            if len(records) < HEADER_SIZE or records[MAGIC_POS] > 2 or _length(records, 8)[0] < _LENGTH_MIN:
                batch_end(records)  # no batch at all: the whole request fails, as it does in Kafka
                continue
            if records[_ATTRIBUTES_LOW] & _TRANSACTIONAL:
                if request.transactional_id is None:
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                found = True
    return found


class Unverified(KafkaError):
    """Refused by the transaction's coordinator. `text` goes to the client when it says more than the code."""

    def __init__(self, code: ErrorCode, text: str | None = None) -> None:
        super().__init__(code, text)
        self.text = text


def _refused(
    ctx: RequestContext, partition: Partition | None, index: int, refusal: KafkaError
) -> PartitionProduceResponse:
    code = refusal.code
    answer = PartitionProduceResponse(index, int(code), -1)
    if isinstance(refusal, Unverified):
        answer.error_message = refusal.text
        return answer
    if code not in _WITHOUT_LOG_START and code is not ErrorCode.INVALID_REQUIRED_ACKS and partition is not None:
        answer.log_start_offset = partition.log.log_start_offset if partition.is_leader else -1
    if isinstance(refusal, InvalidRecords):
        answer.error_message = refusal.message
        answer.record_errors = [BatchIndexAndErrorMessage(n, text) for n, text in refusal.record_errors]
    return answer


def with_leaders(ctx: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Name the leader beside every NOT_LEADER_OR_FOLLOWER, for clients that understand it."""
    if ctx.version < 10:
        return response
    endpoints: dict[int, Any] = {}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                key = topic.topic_id if ctx.version >= 13 else topic.name
                leader, epoch = current_leader(ctx.services, key, answer.index)
                answer.current_leader = LeaderIdAndEpoch(leader, epoch)
                add_leader_endpoint(ctx, leader, endpoints, NodeEndpoint)
    response.node_endpoints = list(endpoints.values())
    return response


def _summary(topics: list[TopicProduceResponse]) -> str:
    errors = [
        f"{topic.name or topic.topic_id.hex()}-{answer.index}: {error_name(answer.error_code)}"
        for topic in topics
        for answer in topic.partition_responses
        if answer.error_code
    ]
    return "a Produce with acks=0 failed: " + ", ".join(errors)


def error_name(code: int) -> str:
    return ErrorCode(code).name  # type: ignore[call-arg]


class _Acks:
    """A Produce that is appended and waits for its acknowledgements."""

    __slots__ = ("_acks", "_answers", "_ctx", "_deadline_s", "_deferred", "_partitions", "_response", "_waiting")

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._acks = request.acks
        self._deadline_s = ctx.connection.loop.time() + max(request.timeout_ms, 0) / 1000
        self._deferred = Deferred(exclusive=False)
        self._answers: list[PartitionProduceResponse] = []
        self._partitions: list[Partition] = []
        self._waiting = 0
        self._response: ProduceResponse | None = None

    def wait(self, partition: Partition, offset: int, answer: PartitionProduceResponse) -> None:
        slot = len(self._answers)
        self._answers.append(answer)
        self._partitions.append(partition)
        self._waiting += 1
        when = partition.when_committed if self._acks == -1 else partition.when_flushed
        when(offset, partition.leader_epoch, self._deadline_s, self, slot)

    def start(self, response: ProduceResponse) -> Deferred:
        self._response = response
        if self._waiting == 0:
            self._finish()
        else:
            self._deferred.abandoned = self._abandon
        return self._deferred

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._answers[slot].error_code = int(code)
        self._waiting -= 1
        if self._waiting == 0 and self._response is not None:
            self._finish()

    def _abandon(self) -> None:
        for partition in self._partitions:
            partition.abandon(self)

    def _finish(self) -> None:
        assert self._response is not None
        self._deferred.resolve(with_leaders(self._ctx, self._response))
