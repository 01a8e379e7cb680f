"""The topic configs that concern a log, resolved to typed values: what `Log` reads on every append and every check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

INT64_MAX = 2**63 - 1
_WEEK_MS = 7 * 24 * 60 * 60 * 1000


@dataclass(slots=True)
class LogConfig:
    """One field per topic config, named as Kafka does with dots as underscores; Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_message_bytes: int = 1_048_588
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: tuple[str, ...] = ("delete",)
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    #: `pylogd.record.validation`: "header" trusts a batch whose header and CRC are right, "full" unpacks every record.
    pylogd_record_validation: str = "header"

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> LogConfig:
        """From Kafka's names (dots, dashes or underscores) to typed values; names that do not concern the log are
        ignored. `internal.segment.bytes`, which Kafka's own tests use for tiny segments, overrides `segment.bytes`."""
        known = {}
        for name, value in values.items():
            field = name.replace(".", "_").replace("-", "_")
            if field in _FIELDS and value is not None:
                known[field] = value
        internal = values.get("internal.segment.bytes")
        if internal is not None:
            known["segment_bytes"] = internal
        policy = known.get("cleanup_policy")
        if policy is not None:
            parts = policy.split(",") if isinstance(policy, str) else policy
            known["cleanup_policy"] = tuple(part.strip() for part in parts if part.strip())
        return cls(**known)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """How long a segment may stay active: a compacted log must also roll in time to honour its maximum lag."""
        if self.compact:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


_FIELDS = frozenset(field.name for field in fields(LogConfig))
