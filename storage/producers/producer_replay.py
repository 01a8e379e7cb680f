"""Producer state is the replay of the log: the same few lines for a batch just appended, recovered or reloaded."""

from __future__ import annotations

import logging

from pylogd.protocol.batch import CONTROL_FLAG, BatchHeader
from pylogd.protocol.errors import KafkaError
from pylogd.storage.producers.producer_state import Marker, ProducerStates, read_marker
from pylogd.storage.segments.scan import scan_batches
from pylogd.storage.segments.segment_list import Segments
from pylogd.storage.segments.txnindex import AbortedTxn, TransactionIndex

logger = logging.getLogger(__name__)


def replay(
    producers: ProducerStates, header: BatchHeader, marker: Marker | None, txn_index: TransactionIndex | None
) -> None:
    """One batch that is in the log. An abort goes into the transaction index unless it is there already (None)."""
    completed = producers.apply(header, marker)
    if completed is None:
        return
    if completed.aborted and txn_index is not None:
        txn_index.append(
            AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset(completed),
            )
        )
    producers.complete(completed)


def replay_log(
    producers: ProducerStates, segments: Segments, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    """Brings the producers to their state at `end_offset`: from the newest usable snapshot, then batch by batch. A
    segment that rotted on disk is replayed up to the rot: its readers are told, the rest of the log must still open."""
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    for segment in segments.between(producers.map_end_offset, end_offset):
        start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
        try:
            for _, header, view in scan_batches(segment.file, segment.offset_index.lookup(start), segment.size):
                if header.base_offset >= end_offset:
                    break
                if header.last_offset < start or header.producer_id < 0:
                    continue
                marker = read_marker(view, header) if header.attributes & CONTROL_FLAG else None
                replay(producers, header, marker, None)
        except KafkaError as error:
            logger.error("%s is corrupt %s", segment.file.path, error)
    producers.map_end_offset = end_offset
