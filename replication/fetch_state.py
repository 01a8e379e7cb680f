"""How a follower fetches (`replica.fetch.*`), and how far it is in one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.replication import following

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition

#: Topic id and index of a partition.
Key = tuple[bytes, int]


class FetchSettings:
    """`replica.fetch.*` of this broker."""

    __slots__ = ("backoff_ms", "max_bytes", "min_bytes", "response_bytes_max", "wait_ms_max")

    def __init__(
        self,
        *,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        wait_ms_max: int = 500,
        response_bytes_max: int = 10 << 20,
        backoff_ms: int = 1000,
    ) -> None:
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes
        self.wait_ms_max = wait_ms_max
        self.response_bytes_max = response_bytes_max
        self.backoff_ms = backoff_ms


class FetchState:
    """What one partition fetches next."""

    __slots__ = (
        "backoff_ms",
        "key",
        "lag",
        "last_epoch",
        "leader_end_offset",
        "leader_epoch",
        "offset",
        "partition",
        "ready_ms",
        "sent_offset",
        "sent_start",
    )

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        log = partition.log
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.leader_epoch = leader_epoch
        self.last_epoch: int = log.epochs.latest
        if self.last_epoch < 0 and log.log_end_offset > log.high_watermark:
            # Without epochs nobody can tell which records the leader has: only replicated ones stay.
            following.truncate_to(partition, log.high_watermark)
        self.offset: int = log.log_end_offset
        #: Fetch offset and log start in the leader's fetch session; -1 when the session lacks this partition.
        self.sent_offset = -1
        self.sent_start = -1
        #: How many records it is behind the leader's high watermark; None until the first answer.
        self.lag: int | None = None
        self.ready_ms = 0
        self.backoff_ms = 0
        #: The leader's log end, while a refused fetch offset is sorted out (`offset_search.py`).
        self.leader_end_offset = -1
