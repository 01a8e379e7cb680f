"""The broker configs that concern all logs together, as typed values."""

from __future__ import annotations

from dataclasses import dataclass

from pylogd.config.values import Values
from pylogd.storage.log_config import INT64_MAX


@dataclass(slots=True)
class ManagerSettings:
    retention_check_interval_ms: int = 300_000
    initial_task_delay_ms: int = 30_000
    flush_scheduler_interval_ms: int = INT64_MAX
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    file_delete_delay_ms: int = 60_000
    recovery_threads: int = 2
    disk_free_floor_bytes: int = 1 << 30
    disk_check_interval_ms: int = 10_000
    cordoned: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, values: Values) -> ManagerSettings:
        """From a broker configuration by Kafka's names."""
        return cls(
            retention_check_interval_ms=values["log.retention.check.interval.ms"],
            initial_task_delay_ms=values["log.initial.task.delay.ms"],
            flush_scheduler_interval_ms=values["log.flush.scheduler.interval.ms"],
            recovery_point_checkpoint_interval_ms=values["log.flush.offset.checkpoint.interval.ms"],
            log_start_offset_checkpoint_interval_ms=values["log.flush.start.offset.checkpoint.interval.ms"],
            high_watermark_checkpoint_interval_ms=values["replica.high.watermark.checkpoint.interval.ms"],
            producer_expiration_ms=values["producer.id.expiration.ms"],
            producer_expiration_check_interval_ms=values["producer.id.expiration.check.interval.ms"],
            file_delete_delay_ms=values["log.segment.delete.delay.ms"],
            recovery_threads=values["num.recovery.threads.per.data.dir"],
            disk_free_floor_bytes=values["pylogd.disk.free.floor.bytes"],
            cordoned=tuple(values["cordoned.log.dirs"] or ()),
        )
