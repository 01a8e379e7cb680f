"""One transactional id: who produces under it, and how far its transaction is.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

A Prepare state is the decision: once it is committed to `__transaction_state`, the markers follow, whatever happens to
the coordinator. PrepareEpochFence and Dead are Kafka's names for moments that never reach the log: an epoch about to be
fenced, an id about to be forgotten.

Everything is the replay of the id's last record but `last_producer_epoch`, which tells a retried InitProducerId or
EndTxn from a zombie's and is not in the record; a new coordinator does not know it, as in Kafka.
"""

from __future__ import annotations

from enum import IntEnum

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.transaction_records import PartitionsSchema, TransactionLogValue

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 0x7FFF
#: With this generation of the protocol (`transaction.version`) every end of a transaction raises the epoch.
EPOCH_BUMP_VERSION = 2
#: The time-out of a transaction in a two-phase commit: none.
NO_TIMEOUT_MS = 0x7FFFFFFF


class TxnState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As DescribeTransactions shows it: PrepareCommit."""
        return "".join(part.title() for part in self.name.split("_"))


PREPARED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
COMPLETED = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
LABELS = {state.label: state for state in TxnState}


class Transaction:
    """The state of one transactional id."""

    __slots__ = (
        "client_version",
        "last_producer_epoch",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "unmarked",
        "update_ms",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer_id = NO_PRODUCER_ID
        self.previous_producer_id = NO_PRODUCER_ID
        #: The id that the producer goes on with after a transaction that used up the epochs of this one.
        self.next_producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = 0
        self.state = TxnState.EMPTY
        self.partitions: dict[TopicPartition, None] = {}
        self.start_ms = -1
        self.update_ms = -1
        #: The generation of the protocol (`transaction.version`) that the client spoke at the last change.
        self.client_version = 0
        #: While the transaction is prepared: partitions whose marker is not acknowledged yet.
        self.unmarked: dict[TopicPartition, None] = {}

    def take(self, value: TransactionLogValue) -> None:
        """Become what a record says."""
        self.producer_id = value.producer_id
        self.previous_producer_id = value.previous_producer_id
        self.next_producer_id = value.next_producer_id
        self.producer_epoch = value.producer_epoch
        self.timeout_ms = value.transaction_timeout_ms
        self.state = TxnState(value.transaction_status)
        self.partitions = {
            (topic.topic, index): None for topic in value.transaction_partitions or () for index in topic.partition_ids
        }
        self.start_ms = value.transaction_start_timestamp_ms
        self.update_ms = value.transaction_last_update_timestamp_ms
        self.client_version = value.client_transaction_version
        self.unmarked = dict(self.partitions) if self.state in PREPARED else {}

    def value(self, state: TxnState, now_ms: int) -> TransactionLogValue:
        """The record of a transition to `state`; the caller changes in it what else changes. Kafka notes the producer
        id before every transition, whether it changes or not."""
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(state),
            transaction_partitions=schema_of(self.partitions) if state is not TxnState.EMPTY else None,
            transaction_last_update_timestamp_ms=now_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )

    @property
    def exhausted(self) -> bool:
        """The next epoch is the last, and that one is kept for fencing."""
        return self.producer_epoch >= EPOCH_MAX - 1

    def timed_out(self, now_ms: int) -> bool:
        return (
            self.state is TxnState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def expired(self, now_ms: int, expiration_ms: int) -> bool:
        idle = self.state is TxnState.EMPTY or self.state in COMPLETED
        return idle and self.update_ms <= now_ms - expiration_ms

    # -- its producer

    def check_producer(self, producer_id: int, producer_epoch: int) -> None:
        """KafkaError unless it is the one that has the id now."""
        if self.producer_id != producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if self.producer_epoch != producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def may_recover(self, producer_id: int, producer_epoch: int) -> bool:
        """May a producer with this id recover? One whose id was just replaced asks again with its last epoch."""
        return (
            self.producer_epoch == NO_PRODUCER_EPOCH
            or producer_id == self.producer_id
            or (producer_id == self.previous_producer_id and producer_epoch >= EPOCH_MAX - 1)
        )

    def after_completion(self) -> tuple[int, int]:
        """Id and epoch with which the producer goes on when this transaction is over."""
        if self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def __repr__(self) -> str:
        return (
            f"Transaction({self.transactional_id!r}, {self.state.label}, producer {self.producer_id} "
            f"epoch {self.producer_epoch}, {len(self.partitions)} partitions)"
        )


def schema_of(partitions: dict[TopicPartition, None]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
