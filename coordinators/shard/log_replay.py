"""Replaying the log of an internal partition into a coordinator's state.

Files are read by a worker, records are replayed on the loop in slices, so that a large partition holds up nobody.
Everything up to the log end is replayed: the new leader's log is the partition's, even above the high watermark.
Replies wait for the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pylogd.coordinators.shard.record_pairs import decode_record, record_type
from pylogd.protocol import batch
from pylogd.protocol.control import ControlType, control_type

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.shard.contract import CoordinatorState
    from pylogd.replication.partition import Partition

logger = logging.getLogger(__name__)

#: How long a turn of the event loop may be spent on replay.
SLICE_SECONDS = 0.005


async def load(host: Host, partition: Partition, state: CoordinatorState, buffer_bytes: int) -> int:
    """Replay everything; returns how many records."""
    log = partition.log
    loop = host.loop
    offset = log.log_start_offset
    count = 0
    unknown: dict[int, int] = {}
    while offset < log.log_end_offset:
        found = log.read(offset, buffer_bytes, log.log_end_offset).range
        if found is None:
            break
        found.acquire()
        try:
            data = await host.workers.offload(found.read)
        finally:
            found.release()
        deadline = loop.time() + SLICE_SECONDS
        before = offset
        for position, header in batch.iter_headers(data):
            if header.next_offset > offset:
                count += _replay(state, data, header, position, unknown)
                offset = header.next_offset
            if loop.time() >= deadline:
                await asyncio.sleep(0)
                deadline = loop.time() + SLICE_SECONDS
        if offset == before:
            break
    if unknown:
        logger.warning("%s holds records of types not known here (type: count): %s", partition.name, unknown)
    return count


def _replay(
    state: CoordinatorState, data: bytes, header: batch.BatchHeader, position: int, unknown: dict[int, int]
) -> int:
    if header.is_control:
        for record in batch.batch_records(data, header, position):
            kind = control_type(record.key)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                state.replay_end_transaction(header.producer_id, kind is ControlType.COMMIT)
        return 0
    producer_id = header.producer_id if header.is_transactional else -1
    count = 0
    for record in batch.batch_records(data, header, position):
        decoded = decode_record(state.classes, record.key, record.value)
        if decoded is None:
            number = record_type(record.key)
            unknown[number] = unknown.get(number, 0) + 1
            continue
        state.replay(decoded, record.offset, producer_id)
        count += 1
    return count
