"""Topic configs: the keys, their broker-wide synonyms, and what a topic's overrides resolve to.

A topic's value comes from its own override, else from the first synonym that the broker has set (dynamically for
the broker, dynamically for the cluster, in its file), else from the default; hours and minutes become milliseconds
on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pylogd.config.config_error import ConfigError, did_you_mean
from pylogd.config.definition import parse_table

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig

TOPIC_KEYS: Final = parse_table("""
# Topic
cleanup.policy list delete list?{compact,delete} medium
    What happens to old data: delete, compact, or both; empty keeps everything.
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer} medium
    Codec of stored batches; producer keeps what was sent.
compression.gzip.level int -1 -1|1..9 medium
    Level for gzip; -1 is the library's default.
compression.lz4.level int 9 1..17 medium
    Level for lz4.
compression.zstd.level int 3 -131072..22 medium
    Level for zstd.
delete.retention.ms long 86400000 0.. medium
    How long tombstones and transaction markers are kept in a compacted log.
file.delete.delay.ms long 60000 0.. medium
    Wait before a deleted segment's files are removed.
flush.messages long 9223372036854775807 1.. medium
    Flush after this many records. At 1 an acknowledgement waits for the flush.
flush.ms long 9223372036854775807 0.. medium
    Flush after this time.
follower.replication.throttled.replicas list "" replicas medium inert
    Replicas whose fetching is throttled, as partition:broker pairs, or *.
leader.replication.throttled.replicas list "" replicas medium inert
    Replicas whose sending is throttled, as partition:broker pairs, or *.
index.interval.bytes int 4096 0.. medium
    Bytes of log between two index entries.
internal.segment.bytes int null * medium internal
    Test override of segment.bytes without its lower bound.
local.retention.bytes long -2 -2.. medium inert
    How many bytes of tiered segments also stay on local disk; -2 is retention.bytes.
local.retention.ms long -2 -2.. medium inert
    How long tiered segments also stay on local disk; -2 is retention.ms.
max.compaction.lag.ms long 9223372036854775807 1.. medium
    Records older than this are compacted whatever the ratio.
max.message.bytes int 1048588 0.. medium
    Largest record batch accepted, after compression.
message.timestamp.after.max.ms long 3600000 0.. medium
    How far a record's timestamp may lie in the future.
message.timestamp.before.max.ms long 9223372036854775807 0.. medium
    How far a record's timestamp may lie in the past.
message.timestamp.type string CreateTime {CreateTime,LogAppendTime} medium
    Keep the producer's timestamps or stamp batches on arrival.
min.cleanable.dirty.ratio double 0.5 0..1 medium
    Share of uncleaned bytes at which the log is cleaned.
min.compaction.lag.ms long 0 0.. medium
    Records younger than this are not compacted.
min.insync.replicas int 1 1.. medium
    In-sync replicas that an acks=all write needs.
preallocate boolean false * medium
    Create segment files at full size.
remote.log.copy.disable boolean false * medium inert
    Stop copying segments to remote storage.
remote.log.delete.on.disable boolean false * medium inert
    Delete remote data when tiered storage is turned off for the topic.
remote.storage.enable boolean false * medium inert
    Tier this topic's segments to remote storage.
retention.bytes long -1 * medium
    Delete the oldest segments of a partition above this size; -1 keeps them.
retention.ms long 604800000 -1.. medium
    Delete segments older than this; -1 keeps them.
segment.bytes int 1073741824 1048576.. medium
    Roll the active segment at this size.
segment.index.bytes int 10485760 4.. medium
    Largest size of an index file; a full index rolls the segment.
segment.jitter.ms long 0 0.. medium
    Random part taken off the roll age.
segment.ms long 604800000 1.. medium
    Roll the active segment at this age.
unclean.leader.election.enable boolean false * medium
    Let a replica outside the in-sync set lead as a last resort, which can lose records.
""")

# Broker-wide equivalents in order of precedence, with the factor that turns their value into the topic's unit.
SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}


#: Broker settings of ours that logs read beside their topic's configs.
BROKER_WIDE: Final = ("pylogd.record.validation",)


def defaults(broker: BrokerConfig) -> dict[str, Any]:
    """What a topic without overrides gets from this broker, for every key and for `BROKER_WIDE`."""
    values = {name: key.default for name, key in TOPIC_KEYS.items()}
    values.update({name: broker[name] for name in BROKER_WIDE})
    for name, synonyms in SYNONYMS.items():
        for synonym, factor in synonyms:
            value = broker[synonym]
            if value is not None:
                values[name] = value * factor if factor != 1 else value
                break
    if values["retention.ms"] < 0:
        values["retention.ms"] = -1
    return values


def resolve(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Any]:
    """Typed values of every key. Overrides are as stored, already validated when they were written."""
    values = defaults(broker)
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is not None:
            values[name] = key.convert(text)
    return values


def validate(
    overrides: Mapping[str, str], broker: BrokerConfig | None = None, existing: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError for an unknown name, a bad value, or values that contradict each other or the broker's."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            near = did_you_mean(name, TOPIC_KEYS)
            hint = f" (did you mean {near}?)" if near else ""
            raise ConfigError(name, None, "a topic config", f"Unknown topic config name: {name}{hint}")
    values = defaults(broker) if broker else {name: key.default for name, key in TOPIC_KEYS.items()}
    for name, text in overrides.items():
        values[name] = TOPIC_KEYS[name].parse(text)
    _check_together(values, broker, existing or {})


def _check_together(values: dict[str, Any], broker: BrokerConfig | None, existing: Mapping[str, str]) -> None:
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if least > most:
        raise ConfigError(
            "min.compaction.lag.ms",
            least,
            "must not exceed max.compaction.lag.ms",
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
    if values["remote.storage.enable"]:
        _check_remote(values, broker)
        return
    was_enabled = existing.get("remote.storage.enable", "").strip().lower() == "true"
    if was_enabled and not values["remote.log.delete.on.disable"]:
        raise ConfigError(
            "remote.storage.enable",
            "false",
            "needs remote.log.delete.on.disable=true",
            "Remote storage cannot be turned off while its data stays: set remote.log.copy.disable=true to keep the"
            " data read-only, or remote.log.delete.on.disable=true to delete it.",
        )


def _check_remote(values: dict[str, Any], broker: BrokerConfig | None) -> None:
    def refuse(name: str, value: object, expectation: str) -> None:
        raise ConfigError(name, value, expectation)

    if broker is None or not broker["remote.log.storage.system.enable"]:
        refuse("remote.storage.enable", "true", "Tiered storage is disabled in the broker")
    if values["cleanup.policy"] not in ([], ["delete"]):
        policy = ",".join(values["cleanup.policy"])
        refuse("cleanup.policy", policy, "Remote storage needs cleanup.policy=delete or empty")
    for local, total in (("local.retention.bytes", "retention.bytes"), ("local.retention.ms", "retention.ms")):
        kept, limit = values[local], values[total]
        if values["remote.log.copy.disable"] and kept not in (-2, limit):
            refuse(local, kept, f"must be equal to {total} when remote.log.copy.disable is true")
        if kept == -2 or limit < 0:
            continue
        if kept == -1:
            refuse(local, kept, f"Value must not be -1 as {total} value is set as {limit}.")
        if kept > limit:
            refuse(local, kept, f"Value must not be more than {total} property value: {limit}")
