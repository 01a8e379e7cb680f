"""Asking a transaction's coordinator before the first write to a partition (KIP-890): is it in the transaction, or,
since transaction version 2, add it.

The coordinator may be this broker. Another one is sent one AddPartitionsToTxn at a time, with everything that gathered
while the one before was under way; of several questions about one transactional id the newest epoch counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from pylogd.coordinators.transactions.transaction import TopicPartition
from pylogd.coordinators.transactions.transaction_coordinator import Codes
from pylogd.metadata.topic_names import TRANSACTIONS_TOPIC
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.transactions.transaction_coordinator import TransactionCoordinator
    from pylogd.metadata.latest import LatestImage
    from pylogd.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
    from pylogd.rpc.broker_pool import Peers
    from pylogd.rpc.peer import PeerError


class Operation(Enum):
    """What a client's version of Produce or TxnOffsetCommit understands."""

    #: The partition was added by the client; of errors it knows INVALID_TXN_STATE.
    VERIFY = 0
    #: As before, and it knows TRANSACTION_ABORTABLE.
    VERIFY_ABORTABLE = 1
    #: The write itself adds the partition.
    ADD = 2

    @staticmethod
    def of_produce(version: int) -> Operation:
        return Operation.ADD if version >= 12 else Operation.VERIFY_ABORTABLE if version == 11 else Operation.VERIFY

    @staticmethod
    def of_offset_commit(version: int) -> Operation:
        return Operation.ADD if version >= 5 else Operation.VERIFY_ABORTABLE if version == 4 else Operation.VERIFY


class Question:
    """About one transaction; `done` hears a code for each partition."""

    __slots__ = ("done", "operation", "partitions", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        operation: Operation,
        done: Callable[[Codes], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.operation = operation
        self.done = done

    def fail(self, code: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, code))

    def answer(self, codes: Codes) -> None:
        """In terms a writer knows."""
        for partition, code in codes.items():
            if code is ErrorCode.PRODUCER_FENCED:
                codes[partition] = ErrorCode.INVALID_PRODUCER_EPOCH
            elif code is ErrorCode.TRANSACTION_ABORTABLE and self.operation is Operation.VERIFY:
                codes[partition] = ErrorCode.INVALID_TXN_STATE
        self.done(codes)


class TransactionVerifier:
    """`coordinator` is asked where it is this broker, `peers` where it is another."""

    def __init__(self, host: Host, metadata: LatestImage, coordinator: TransactionCoordinator, peers: Peers) -> None:
        self._host = host
        self._metadata = metadata
        self._coordinator = coordinator
        self._peers = peers
        #: coordinator -> transactional id -> question
        self._queues: dict[int, dict[str, Question]] = {}
        self._asked: set[int] = set()

    def ask(self, question: Question) -> None:
        """`question.done` is told, maybe before this returns."""
        coordinator = self._coordinator
        index = coordinator.partition_of(question.transactional_id)
        topic = self._metadata.image.topic(TRANSACTIONS_TOPIC)
        registered = None if topic is None else topic.partition(index)
        if registered is None or registered.leader < 0:
            question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif registered.leader == self._host.broker_id:
            coordinator.add_partitions(
                question.transactional_id,
                question.producer_id,
                question.producer_epoch,
                question.partitions,
                question.answer,
                verify_only=question.operation is not Operation.ADD,
                client_version=2,
            )
        else:
            self._queue(registered.leader, question)

    def close(self) -> None:
        self._peers.close()

    def _queue(self, broker_id: int, question: Question) -> None:
        queue = self._queues.setdefault(broker_id, {})
        known = queue.get(question.transactional_id)
        if known is not None and known.producer_epoch > question.producer_epoch:
            question.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        queue[question.transactional_id] = question
        if known is not None:
            same = known.producer_epoch == question.producer_epoch
            # The same producer asks again: it has given up on the older request.
            known.fail(ErrorCode.NETWORK_EXCEPTION if same else ErrorCode.INVALID_PRODUCER_EPOCH)
        if broker_id not in self._asked:
            self._asked.add(broker_id)
            self._host.loop.call_soon(self._send, broker_id)

    def _send(self, broker_id: int) -> None:
        from pylogd.protocol.messages.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        questions = self._queues.pop(broker_id, None)
        if not questions:
            self._asked.discard(broker_id)
            return
        transactions = []
        for question in questions.values():
            topics: dict[str, list[int]] = {}
            for topic, index in question.partitions:
                topics.setdefault(topic, []).append(index)
            transactions.append(
                AddPartitionsToTxnTransaction(
                    transactional_id=question.transactional_id,
                    producer_id=question.producer_id,
                    producer_epoch=question.producer_epoch,
                    verify_only=question.operation is not Operation.ADD,
                    topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()],
                )
            )
        self._peers.send(
            broker_id,
            AddPartitionsToTxnRequest(transactions=transactions),
            lambda response, failure: self._answered(broker_id, questions, response, failure),
        )

    def _answered(
        self,
        broker_id: int,
        questions: dict[str, Question],
        response: AddPartitionsToTxnResponse | None,
        failure: PeerError | None,
    ) -> None:
        if response is None:
            for question in questions.values():
                question.fail(ErrorCode.NETWORK_EXCEPTION)
        elif response.error_code:
            code = ErrorCode(response.error_code)  # type: ignore[call-arg]
            for question in questions.values():
                question.fail(ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code)
        else:
            for result in response.results_by_transaction:
                answered = questions.pop(result.transactional_id, None)
                if answered is not None:
                    answered.answer(
                        {
                            (topic.name, row.partition_index): ErrorCode(row.partition_error_code)  # type: ignore[call-arg]
                            for topic in result.topic_results
                            for row in topic.results_by_partition
                        }
                    )
            for question in questions.values():
                question.fail(ErrorCode.NETWORK_EXCEPTION)
        if self._queues.get(broker_id):
            self._send(broker_id)
        else:
            self._asked.discard(broker_id)
