"""What goes to a compaction worker and what comes back: values that travel between processes.

Apart from the work itself, so that a broker which never compacts does not load it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pylogd.storage.log_config import LogConfig
from pylogd.storage.segments.txnindex import AbortedTxn


@dataclass(slots=True)
class Source:
    """A closed segment to compact."""

    base_offset: int
    size: int
    offset_index_bytes: int
    time_index_bytes: int
    modified_ms: int


@dataclass(slots=True)
class LastRecord:
    """Where a live producer stands: its last data offset (-1: only its marker is left) and its epoch."""

    last_data_offset: int
    producer_epoch: int


@dataclass(slots=True)
class CompactionJob:
    directory: str
    name: str
    config: LogConfig
    #: The closed segments below `first_uncleanable_offset`, in order.
    sources: list[Source]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    producers: dict[int, LastRecord] = field(default_factory=dict)
    #: All that overlap the sources, wherever their markers are.
    aborted: list[AbortedTxn] = field(default_factory=list)
    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_bytes_per_second: float = float("inf")


@dataclass(slots=True)
class CompactionStats:
    map_bytes_read: int = 0
    map_entries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0


@dataclass(slots=True)
class CleanedGroup:
    """One finished `.cleaned` segment, durable, and the segments it replaces. `end_offset` is the first offset the
    whole round does not clean: the next first dirty offset once every group is swapped in."""

    base_offset: int
    size: int
    modified_ms: int
    replaces: list[int]
    end_offset: int
    stats: CompactionStats
