"""May these transactional records be appended? The part of Produce that can wait (KIP-890).

The first batch of a transaction in a partition is asked about at the transaction's coordinator; what follows it in the
same transaction is not. With transaction version 2 (Produce 12 and newer) the question adds the partition. While the
producer's previous transaction is still being ended the coordinator says CONCURRENT_TRANSACTIONS; asking again here,
for a short time, is cheaper than sending the records twice.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any

from pylogd.broker.produce.refusals import NotAdmitted
from pylogd.coordinators.transactions.verifier import Operation, Question
from pylogd.protocol.batch import HEADER_SIZE, MAGIC_POS, batch_end
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage.producers.verification_guard import UNVERIFIED, Guard

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.coordinators.transactions.transaction_coordinator import Codes
    from pylogd.protocol.messages.produce import ProduceRequest
    from pylogd.replication.partition import Partition

#: Producer id, epoch and first sequence in the header of a batch.
_producer = Struct(">qhi").unpack_from
_PRODUCER_AT = 43
_ATTRIBUTES_LOW = 22
_TRANSACTIONAL = 0x10
_length = Struct(">i").unpack_from
#: A batch that says it is shorter than the oldest kind of message is none.
_LENGTH_MIN = 14

#: Errors of the coordinator that older clients would not retry; this one they do, without asking for metadata.
_AGAIN_LATER = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def has_transactional_records(request: ProduceRequest) -> bool:
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


class Admission:
    """The transactional records of one request. INVALID_PRODUCER_ID_MAPPING when they have several producers."""

    __slots__ = (
        "_answered",
        "_batches",
        "_ctx",
        "_default",
        "_operation",
        "_producer_epoch",
        "_producer_id",
        "_transactional_id",
        "_verdicts",
        "codes",
    )

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._operation = Operation.of_produce(ctx.version)
        assert request.transactional_id is not None
        self._transactional_id = request.transactional_id
        #: (partition, first sequence)
        self._batches: list[tuple[Partition, int]] = []
        #: For every partition (topic and index): its guard, or why it is refused.
        self._verdicts: dict[tuple[str, int], Guard | NotAdmitted] = {}
        #: The coordinator's answer; None while it is awaited.
        self.codes: Codes | None = None
        self._answered: asyncio.Future[None] | None = None
        self._default: Guard | None = None
        by_id = ctx.version >= 13
        replicas = ctx.services.replicas
        hosted: dict[Any, Partition] = replicas.by_id if by_id else replicas.by_name
        producers: dict[tuple[int, int], None] = {}
        for topic in request.topic_data:
            key = topic.topic_id if by_id else topic.name
            for data in topic.partition_data:
                records = data.records
                if records is None or len(records) < HEADER_SIZE or not records[_ATTRIBUTES_LOW] & _TRANSACTIONAL:
                    continue
                producer_id, epoch, sequence = _producer(records, _PRODUCER_AT)
                if producer_id < 0:
                    continue
                producers[producer_id, epoch] = None
                partition = hosted.get((key, data.index))
                if partition is not None and partition.is_leader:
                    self._batches.append((partition, sequence))
        if len(producers) > 1:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
            )
        self._producer_id, self._producer_epoch = next(iter(producers), (-1, -1))

    def ask(self) -> bool:
        """Ask what must be asked; True when everything is known already."""
        services = self._ctx.services
        bump = self._operation is Operation.ADD
        self.codes = None
        self._verdicts = {}
        if not bump and not services.config["transaction.partition.verification.enable"]:
            self.codes = {}
            return True
        # A partition that was not led here when it was asked about is not written to if it is by now.
        self._default = UNVERIFIED
        now_ms = services.clock.now_ms()
        unknown = []
        for partition, sequence in self._batches:
            name = (partition.topic, partition.index)
            try:
                guard = partition.log.producers.start_verification(
                    self._producer_id, sequence, self._producer_epoch, bump, now_ms
                )
            except KafkaError as refusal:
                self._verdicts[name] = NotAdmitted(refusal.code)
                continue
            self._verdicts[name] = guard
            if guard is not UNVERIFIED:
                unknown.append(name)
        if not unknown:
            self.codes = {}
            return True
        services.verifier.ask(
            Question(
                self._transactional_id,
                self._producer_id,
                self._producer_epoch,
                unknown,
                self._operation,
                self._heard,
            )
        )
        return self.codes is not None

    def guard_of(self, partition: Partition) -> Guard | None:
        """What an append of transactional records carries; NotAdmitted when they are refused."""
        verdict = self._verdicts.get((partition.topic, partition.index), self._default)
        if isinstance(verdict, NotAdmitted):
            raise verdict
        return verdict

    def _heard(self, codes: Codes) -> None:
        self.codes = codes
        for partition, code in codes.items():
            if code is not ErrorCode.NONE:
                self._verdicts[partition] = self._refusal(code)
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    @property
    def concurrent(self) -> bool:
        """The transaction before this one is still being ended, and it is for us to wait."""
        return self._operation is Operation.ADD and ErrorCode.CONCURRENT_TRANSACTIONS in (self.codes or {}).values()

    async def settled(self) -> None:
        """Returns when the verdicts are final."""
        services = self._ctx.services
        config = services.config
        patience_ms = min(config["add.partitions.to.txn.retry.backoff.max.ms"], config["request.timeout.ms"])
        give_up = services.loop.time() + patience_ms / 1000
        while True:
            if self.codes is None:
                self._answered = services.loop.create_future()
                await self._answered
            if not self.concurrent or services.loop.time() >= give_up:
                return
            await asyncio.sleep(config["add.partitions.to.txn.retry.backoff.ms"] / 1000)
            self.ask()

    def _refusal(self, code: ErrorCode) -> NotAdmitted:
        if code is ErrorCode.INVALID_TXN_STATE:
            return NotAdmitted(code, "Partition was not added to the transaction")
        waits = code is ErrorCode.CONCURRENT_TRANSACTIONS and self._operation is not Operation.ADD
        if code in _AGAIN_LATER or waits:
            return NotAdmitted(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
            )
        return NotAdmitted(code)
