"""What a transaction coordinator decides: the transactional ids of one partition of `__transaction_state`.

Plain decisions: the request, the time and a source of producer ids in; records, replies and timers out. A refusal is a
KafkaError before anything is written. Two generations of the protocol meet here (`transaction.version`):

- in the first, a client adds partitions itself, its epoch lasts until it is fenced, and EndTxn is told from its retry
  by the state alone;
- since version 2 (KIP-890) brokers add partitions when they are written to, and every end raises the epoch, so that
  whatever is late belongs to an older one: a retry of EndTxn is one epoch behind, anything else is fenced.

While a transaction is prepared its markers are under way: everything that wants to change it hears
CONCURRENT_TRANSACTIONS and tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.coordinators.shard.record_pairs import CoordinatorRecord, RecordClasses
from pylogd.coordinators.transactions.transaction import (
    COMPLETED,
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TopicPartition,
    Transaction,
    TxnState,
    schema_of,
)
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.end_txn import EndTxnResponse
from pylogd.protocol.messages.init_producer_id import InitProducerIdResponse
from pylogd.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage


class TransactionSettings(NamedTuple):
    """What the coordinator takes from the broker's configuration."""

    id_expiration_ms: int = 604_800_000
    timeout_ms_max: int = 900_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000

    def check_timeout(self, timeout_ms: int) -> None:
        if not 0 < timeout_ms <= self.timeout_ms_max:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


class MarkersDue:
    """The coordinator's reply to itself: the decision is committed, its markers may be written."""

    __slots__ = ("_send", "transaction")

    def __init__(self, send: Callable[[Transaction], None], transaction: Transaction) -> None:
        self._send = send
        self.transaction = transaction

    def resolve(self, response: Any) -> None:
        self._send(self.transaction)


class TransactionsState:
    """`take_producer_id()` gives a fresh id, or None when there is none at hand; `send_markers(transaction)` starts to
    write the markers of a prepared one; `version()` is the cluster's `transaction.version`."""

    classes: RecordClasses = {0: (TransactionLogKey, TransactionLogValue)}

    def __init__(
        self,
        settings: TransactionSettings,
        take_producer_id: Callable[[], int | None],
        send_markers: Callable[[Transaction], None],
        version: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self._take_producer_id = take_producer_id
        self._send_markers = send_markers
        self._version = version

    # -- replay

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key, value, _ = record
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = self.transactions[transactional_id] = Transaction(transactional_id)
        transaction.take(value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nobody writes to `__transaction_state` in a transaction."""

    def loaded(self, effects: Effects) -> None:
        """What the coordinator before this one decided is carried out; then the clocks run."""
        for transaction in self.transactions.values():
            if transaction.state in PREPARED:
                effects.answer(MarkersDue(self._send_markers, transaction), None)
        self._arm(effects)

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        """Markers look partitions up when they are sent."""

    def _arm(self, effects: Effects) -> None:
        effects.after("abort timed out", self.settings.abort_interval_ms, self.abort_timed_out)
        effects.after("expire ids", self.settings.expiry_interval_ms, self.expire_ids)

    # -- InitProducerId

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next InitProducerId or EndTxn of an id may have to take a new producer id."""
        transaction = self.transactions.get(transactional_id)
        return transaction is None or transaction.exhausted

    def init_producer_id(
        self, effects: Effects, reply: Reply, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> None:
        """Give a producer its id and epoch, fencing whoever had them. `expected` is what the producer believes to have
        when it recovers from an error. An open transaction is aborted first, and the producer asks again."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id)
            transaction.producer_id = self._new_producer_id()
        elif transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif expected is not None and not transaction.may_recover(*expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        elif transaction.state is TxnState.ONGOING:
            self._fence(effects, transaction)
            effects.answer(reply, reply.refuse(ErrorCode.CONCURRENT_TRANSACTIONS, None))
            return
        value = transaction.value(TxnState.EMPTY, effects.now_ms)
        value.transaction_timeout_ms = timeout_ms
        value.transaction_start_timestamp_ms = -1
        current, last = transaction.producer_epoch, transaction.last_producer_epoch
        if transaction.exhausted and (expected is None or expected[1] == current):
            value.producer_id = self._new_producer_id()
            value.producer_epoch = 0
            last = NO_PRODUCER_EPOCH if expected is None else current
        elif transaction.exhausted:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        elif expected is None:
            value.producer_epoch = current + 1
            last = NO_PRODUCER_EPOCH
        elif current in (NO_PRODUCER_EPOCH, expected[1]):
            value.producer_epoch = current + 1
            last = current
        elif expected[1] != last:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        # Otherwise the epoch before this one comes back: the answer to its request was lost, so it is given again.
        transaction = self._write(effects, transactional_id, value)
        transaction.last_producer_epoch = last
        effects.answer(
            reply, InitProducerIdResponse(producer_id=value.producer_id, producer_epoch=value.producer_epoch)
        )

    def _new_producer_id(self) -> int:
        taken = self._take_producer_id()
        if taken is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "There is no producer id at hand")
        return taken

    # -- partitions of a transaction

    def add_partitions(
        self,
        effects: Effects,
        reply: Reply,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> None:
        """Add partitions to the transaction, beginning one if none is open. Answers a code for each."""
        transaction = self._existing(transactional_id)
        if transaction.state in PREPARED:
            # Before the producer is looked at: it may know its next id already.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        transaction.check_producer(producer_id, producer_epoch)
        wanted = list(partitions)
        ongoing = transaction.state is TxnState.ONGOING
        if not ongoing or any(partition not in transaction.partitions for partition in wanted):
            value = transaction.value(TxnState.ONGOING, effects.now_ms)
            if not ongoing:
                value.transaction_start_timestamp_ms = effects.now_ms
            value.transaction_partitions = schema_of({**transaction.partitions, **dict.fromkeys(wanted)})
            value.client_transaction_version = client_version
            self._write(effects, transactional_id, value)
        effects.answer(reply, dict.fromkeys(wanted, ErrorCode.NONE))

    def verify_partitions(
        self,
        effects: Effects,
        reply: Reply,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Are these partitions in the producer's open transaction? Answers a code for each."""
        transaction = self._existing(transactional_id)
        transaction.check_producer(producer_id, producer_epoch)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        effects.answer(
            reply,
            {
                partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for partition in partitions
            },
        )

    # -- EndTxn

    def end(
        self,
        effects: Effects,
        reply: Reply,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
    ) -> None:
        """Decide a transaction. The producer is told when the decision is committed; the markers follow."""
        transaction = self._existing(transactional_id)
        if client_version >= EPOCH_BUMP_VERSION:
            self._end(effects, reply, transaction, producer_id, producer_epoch, commit, client_version)
        else:
            self._end_without_bump(effects, reply, transaction, producer_id, producer_epoch, commit)

    def _end_without_bump(
        self,
        effects: Effects,
        reply: Reply,
        transaction: Transaction,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
    ) -> None:
        transaction.check_producer(producer_id, producer_epoch)
        state = transaction.state
        if state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if state is TxnState.ONGOING:
            self._prepare(effects, transaction, commit, 0)
        elif state is not (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        effects.answer(reply, EndTxnResponse())

    def _end(
        self,
        effects: Effects,
        reply: Reply,
        transaction: Transaction,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
    ) -> None:
        state = transaction.state
        if state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        overflowed = (
            transaction.previous_producer_id == producer_id
            and producer_epoch == EPOCH_MAX - 1
            and transaction.producer_epoch == 0
        )
        if transaction.producer_id != producer_id and not overflowed:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        retry = overflowed or transaction.producer_epoch == producer_epoch + 1
        if transaction.producer_epoch != producer_epoch and not (retry and state in COMPLETED):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if retry:
            if state is not (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        elif state is TxnState.ONGOING or not commit:
            # An abort without a transaction raises the epoch as well: the producer cannot know whether it had begun.
            self._prepare(effects, transaction, commit, client_version)
        else:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        producer_id, producer_epoch = transaction.after_completion()
        effects.answer(reply, EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch))

    def _prepare(
        self, effects: Effects, transaction: Transaction, commit: bool, client_version: int, epoch: int | None = None
    ) -> None:
        """Write the decision; its markers go out when it is committed. `epoch`: one that fences the producer."""
        value = transaction.value(TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT, effects.now_ms)
        last = transaction.last_producer_epoch
        if client_version >= EPOCH_BUMP_VERSION:
            if transaction.exhausted:
                value.next_producer_id = self._new_producer_id()
            else:
                value.next_producer_id = NO_PRODUCER_ID
            last = transaction.producer_epoch
            value.producer_epoch = min(last + 1, EPOCH_MAX)
        else:
            value.next_producer_id = NO_PRODUCER_ID
            if epoch is not None:
                value.producer_epoch = epoch
                last = NO_PRODUCER_EPOCH
        if transaction.state is not TxnState.ONGOING:
            value.transaction_start_timestamp_ms = effects.now_ms
        value.client_transaction_version = client_version
        self._write(effects, transaction.transactional_id, value)
        transaction.last_producer_epoch = last
        effects.answer(MarkersDue(self._send_markers, transaction), None)

    def _fence(self, effects: Effects, transaction: Transaction) -> None:
        """Abort an open transaction against its producer's will."""
        version = self._version()
        if version < EPOCH_BUMP_VERSION:
            version = 0
        self._prepare(effects, transaction, False, version, min(transaction.producer_epoch + 1, EPOCH_MAX))

    def complete(self, effects: Effects, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Every marker of a prepared transaction is written."""
        transaction = self.transactions.get(transactional_id)
        if (
            transaction is None
            or transaction.state not in PREPARED
            or (transaction.producer_id, transaction.producer_epoch) != (producer_id, producer_epoch)
        ):
            return
        committed = transaction.state is TxnState.PREPARE_COMMIT
        value = transaction.value(TxnState.COMPLETE_COMMIT if committed else TxnState.COMPLETE_ABORT, effects.now_ms)
        value.producer_id, value.producer_epoch = transaction.after_completion()
        value.next_producer_id = NO_PRODUCER_ID
        value.transaction_partitions = []
        self._write(effects, transactional_id, value)

    # -- time

    def abort_timed_out(self, effects: Effects) -> None:
        """Abort what is open longer than its producer allowed; it is fenced."""
        effects.atomic = False
        effects.after("abort timed out", self.settings.abort_interval_ms, self.abort_timed_out)
        for transaction in list(self.transactions.values()):
            if transaction.timed_out(effects.now_ms):
                try:
                    self._fence(effects, transaction)
                except KafkaError:
                    # No producer id to go on with: at the next round.
                    continue

    def expire_ids(self, effects: Effects) -> None:
        """Forget ids that nobody used for a long time."""
        effects.atomic = False
        effects.after("expire ids", self.settings.expiry_interval_ms, self.expire_ids)
        for transaction in list(self.transactions.values()):
            if transaction.expired(effects.now_ms, self.settings.id_expiration_ms):
                effects.write(TransactionLogKey(transactional_id=transaction.transactional_id), None)

    # -- helpers

    def _existing(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _write(self, effects: Effects, transactional_id: str, value: TransactionLogValue) -> Transaction:
        log_version = 1 if self._version() >= 1 else 0
        if log_version == 0:
            # Has no place for them.
            value.previous_producer_id = value.next_producer_id = NO_PRODUCER_ID
            value.client_transaction_version = 0
        effects.write(TransactionLogKey(transactional_id=transactional_id), value, log_version)
        return self.transactions[transactional_id]
