"""From a decided transaction to its markers: every partition it wrote to gets one, at its leader, until all have it.

Partitions led here are written directly, others through WriteTxnMarkers, one request per broker for all markers that
wait for it. What fails for a reason that passes is tried again, at whoever leads then. A partition that no longer
exists needs no marker. When all are written the coordinator completes the transaction; when the coordinator has moved
meanwhile, its successor sends them again, and leaders take a marker twice without harm.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylogd.coordinators.shard.marker import Marker
from pylogd.coordinators.transactions.transaction import PREPARED, TopicPartition, Transaction, TxnState
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.shard.shard import Shard
    from pylogd.coordinators.transactions.marker_append import MarkerAppend
    from pylogd.coordinators.transactions.transactions import TransactionsState
    from pylogd.metadata.latest import LatestImage
    from pylogd.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
    from pylogd.rpc.broker_pool import Peers
    from pylogd.rpc.peer import PeerError

logger = logging.getLogger(__name__)

_RETRY_S_MIN = 0.02
_RETRY_S_MAX = 1.0
#: The partition has nothing to mark.
_NOTHING_THERE = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
#: Somebody newer took over the producer or the coordinator: this transaction is no longer ours to end.
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_RETRIABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class _Ending:
    """One prepared transaction whose markers are under way."""

    __slots__ = (
        "commit",
        "failures",
        "producer_epoch",
        "producer_id",
        "retry",
        "shard",
        "state",
        "transaction",
        "unmarked",
    )

    def __init__(self, shard: Shard[TransactionsState], transaction: Transaction) -> None:
        self.shard = shard
        #: A shard that started over has another one, and sends the markers itself.
        self.state = shard.state
        self.transaction = transaction
        #: Belongs to this transaction only: the next one of the same id has another.
        self.unmarked = transaction.unmarked
        self.commit = transaction.state is TxnState.PREPARE_COMMIT
        self.producer_id = transaction.producer_id
        self.producer_epoch = transaction.producer_epoch
        self.failures = 0
        self.retry: dict[TopicPartition, None] = {}

    @property
    def obsolete(self) -> bool:
        shard = self.shard
        return not shard.active or shard.state is not self.state or self.transaction.unmarked is not self.unmarked

    @property
    def marker(self) -> Marker:
        transaction = self.transaction
        return Marker(self.producer_id, self.producer_epoch, self.shard.epoch, self.commit, transaction.client_version)


class Markers:
    """`local` writes markers here, `peers` takes them to other brokers."""

    def __init__(self, host: Host, metadata: LatestImage, local: MarkerAppend, peers: Peers) -> None:
        self._host = host
        self._metadata = metadata
        self._local = local
        self._peers = peers
        #: broker -> what waits to be sent there
        self._queues: dict[int, list[tuple[_Ending, list[TopicPartition]]]] = {}
        #: Brokers that have a request to answer.
        self._asked: set[int] = set()
        self._closed = False

    def send(self, shard: Shard[TransactionsState], transaction: Transaction) -> None:
        """The decision about `transaction` is committed."""
        if transaction.state in PREPARED:
            ending = _Ending(shard, transaction)
            self._send(ending, list(transaction.unmarked))
            self._complete_if_done(ending)

    def close(self) -> None:
        self._closed = True
        self._peers.close()

    # -- where to

    def _send(self, ending: _Ending, partitions: list[TopicPartition]) -> None:
        image, me = self._metadata.image, self._host.broker_id
        remote: dict[int, list[TopicPartition]] = {}
        for topic, index in partitions:
            known = image.topic(topic)
            registered = None if known is None else known.partition(index)
            if registered is None:
                logger.info("%s-%d is gone: it needs no marker of %r", topic, index, ending.transaction)
                ending.unmarked.pop((topic, index), None)
            elif registered.leader == me:
                self._append(ending, (topic, index))
            elif registered.leader < 0:
                self._again(ending, (topic, index))
            else:
                remote.setdefault(registered.leader, []).append((topic, index))
        for broker_id, there in remote.items():
            self._queues.setdefault(broker_id, []).append((ending, there))
            if broker_id not in self._asked:
                self._asked.add(broker_id)
                # Whatever else this turn of the loop decides goes along.
                self._host.loop.call_soon(self._ask, broker_id)

    def _append(self, ending: _Ending, partition: TopicPartition) -> None:
        self._local.append(*partition, ending.marker, lambda code: self._answered(ending, partition, code))

    # -- other brokers

    def _ask(self, broker_id: int) -> None:
        from pylogd.protocol.messages.write_txn_markers import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )

        queue = [entry for entry in self._queues.pop(broker_id, ()) if not entry[0].obsolete]
        if not queue or self._closed:
            self._asked.discard(broker_id)
            return
        markers = []
        for ending, partitions in queue:
            topics: dict[str, list[int]] = {}
            for topic, index in partitions:
                topics.setdefault(topic, []).append(index)
            marker = ending.marker
            markers.append(
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.commit,
                    topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
            )
        self._peers.send(
            broker_id,
            WriteTxnMarkersRequest(markers=markers),
            lambda response, failure: self._responded(broker_id, queue, response, failure),
        )

    def _responded(
        self,
        broker_id: int,
        queue: list[tuple[_Ending, list[TopicPartition]]],
        response: WriteTxnMarkersResponse | None,
        failure: PeerError | None,
    ) -> None:
        codes: dict[tuple[int, str, int], ErrorCode] = {}
        if response is None:
            logger.info("markers did not reach broker %d: %s", broker_id, failure)
        else:
            for result in response.markers:
                for topic in result.topics:
                    for row in topic.partitions:
                        code = ErrorCode(row.error_code)  # type: ignore[call-arg]
                        codes[result.producer_id, topic.name, row.partition_index] = code
        for ending, partitions in queue:
            for partition in partitions:
                code = codes.get((ending.producer_id, *partition), ErrorCode.REQUEST_TIMED_OUT)
                self._answered(ending, partition, code)
        if self._queues.get(broker_id):
            self._ask(broker_id)
        else:
            self._asked.discard(broker_id)

    # -- what came of it

    def _answered(self, ending: _Ending, partition: TopicPartition, code: ErrorCode) -> None:
        if ending.obsolete or self._closed:
            return
        if code is ErrorCode.NONE or code in _NOTHING_THERE:
            ending.unmarked.pop(partition, None)
            ending.failures = 0
            self._complete_if_done(ending)
        elif code in _FENCED:
            logger.warning("the marker of %r is refused by %s-%d: %s", ending.transaction, *partition, code.name)
        else:
            if code not in _RETRIABLE:
                logger.error("unexpected %s for the marker of %r", code.name, ending.transaction)
            self._again(ending, partition)

    def _again(self, ending: _Ending, partition: TopicPartition) -> None:
        ending.retry[partition] = None
        if len(ending.retry) == 1:
            pause = min(_RETRY_S_MIN * 2 ** min(ending.failures, 10), _RETRY_S_MAX)
            ending.failures += 1
            self._host.loop.call_later(pause, self._retry, ending)

    def _retry(self, ending: _Ending) -> None:
        partitions, ending.retry = list(ending.retry), {}
        if not ending.obsolete and not self._closed:
            self._send(ending, partitions)
            self._complete_if_done(ending)

    def _complete_if_done(self, ending: _Ending) -> None:
        transaction = ending.transaction
        if ending.unmarked or ending.obsolete or transaction.state not in PREPARED:
            return
        state = ending.state
        ending.shard.run(
            ("complete", transaction.transactional_id),
            lambda effects: state.complete(
                effects, transaction.transactional_id, ending.producer_id, ending.producer_epoch
            ),
        )
