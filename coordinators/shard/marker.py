"""The marker that ends a transaction in one partition: a control batch, written by the partition's leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pylogd.protocol.control import end_txn_batch
from pylogd.storage.validation import Origin

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition
    from pylogd.storage.log.log import AppendInfo


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    #: The transaction.version it was decided under: from 2 on its epoch must be higher than the transaction's.
    transaction_version: int = 0

    def append_to(self, partition: Partition, now_ms: int) -> AppendInfo:
        """KafkaError when the partition refuses it, because its epoch is fenced or it is not led here."""
        batch = end_txn_batch(
            commit=self.commit,
            coordinator_epoch=self.coordinator_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timestamp_ms=now_ms,
        )
        return partition.append(
            memoryview(batch),
            acks=-1,
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            transaction_version=self.transaction_version,
        )
