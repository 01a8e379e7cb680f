"""Produce and Fetch requests in one line."""

from __future__ import annotations

from typing import Any

from pylogd.protocol import batch
from pylogd.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pylogd.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pylogd.protocol.uuids import ZERO

NOW_MS = 1_700_000_000_000


def records(*values: bytes, **options: Any) -> bytes:
    """One batch with these values."""
    made = [batch.Record(n, NOW_MS + n, b"key", value, []) for n, value in enumerate(values)]
    return bytes(batch.build_batch(made, **options))


def produce_request(
    topic: str,
    data: bytes | None,
    index: int = 0,
    *,
    acks: int = -1,
    timeout_ms: int = 5000,
    topic_id: bytes = ZERO,
    transactional_id: str | None = None,
) -> ProduceRequest:
    part = PartitionProduceData(index=index, records=data)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])],
    )


def fetch_request(
    topic: str,
    offset: int,
    index: int = 0,
    *,
    topic_id: bytes = ZERO,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
    leader_epoch: int = -1,
    replica_id: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    part = FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=partition_bytes,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        replica_id=-1 if topic_id != ZERO else replica_id,
        replica_state=ReplicaState(replica_id if topic_id != ZERO else -1, -1),
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[part])],
    )


def values(data: Any) -> list[bytes | None]:
    """The values of all whole batches in record data."""
    view = memoryview(bytes(data or b""))
    found: list[bytes | None] = []
    position = 0
    while (end := batch.batch_end(view, position)) is not None:
        found += [record.value for record in batch.iter_records(view[position:end])]
        position = end
    return found
