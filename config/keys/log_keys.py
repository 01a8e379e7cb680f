"""Broker configs of logs: directories, segments, retention, compaction, replication. Columns: see definition.py."""

KEYS = """
# Log directories
log.dirs list null list high
    Directories for topic data, separated by commas.
log.dir list /tmp/kafka-logs list high
    Directory for topic data when log.dirs is not set.
cordoned.log.dirs list "" list? medium per-broker
    Directories that get no new partitions; * means all of them.
log.dir.failure.timeout.ms long 30000 1.. low inert
    A broker that cannot report a failed directory to the controller in this time stops.
log.initial.task.delay.ms long 30000 0.. low internal
    Wait after start-up before the first background work on logs.

# New topics
num.partitions int 1 1.. medium
    Partitions of a topic that is created without a number.
default.replication.factor int 1 * medium
    Replicas of a topic that is created without a number.
min.insync.replicas int 1 1.. high cluster-wide
    In-sync replicas that an acks=all write needs.
unclean.leader.election.enable boolean false * high cluster-wide
    Let a replica outside the in-sync set lead as a last resort, which can lose records.

# Segments and indexes
log.segment.bytes int 1073741824 1048576.. high cluster-wide
    Roll the active segment at this size.
log.roll.ms long null * high cluster-wide
    Roll the active segment at this age; log.roll.hours counts when unset.
log.roll.hours int 168 1.. high
    Roll the active segment at this age, in hours.
log.roll.jitter.ms long null * high cluster-wide
    Random part taken off the roll age; log.roll.jitter.hours counts when unset.
log.roll.jitter.hours int 0 0.. high
    Random part taken off the roll age, in hours.
log.index.size.max.bytes int 10485760 4.. medium cluster-wide
    Largest size of an index file; a full index rolls the segment.
log.index.interval.bytes int 4096 0.. medium cluster-wide
    Bytes of log between two index entries.
log.preallocate boolean false * medium cluster-wide
    Create segment files at full size.
log.segment.delete.delay.ms long 60000 0.. high cluster-wide
    Wait before a deleted segment's files are removed.

# Retention
log.retention.ms long null * high cluster-wide
    Delete segments older than this; -1 keeps them. log.retention.minutes counts when unset.
log.retention.minutes int null * high
    Delete segments older than this, in minutes. log.retention.hours counts when unset.
log.retention.hours int 168 * high
    Delete segments older than this, in hours.
log.retention.bytes long -1 * high cluster-wide
    Delete the oldest segments of a partition above this size; -1 keeps them.
log.retention.check.interval.ms long 300000 1.. medium
    How often retention is checked.
log.cleanup.policy list delete list?{compact,delete} medium cluster-wide
    What happens to old data: delete, compact, or both; empty keeps everything.

# Flushing
log.flush.interval.messages long 9223372036854775807 1.. high cluster-wide
    Flush a log after this many records. At 1 an acknowledgement waits for the flush.
log.flush.interval.ms long null * high cluster-wide
    Flush a log after this time; log.flush.scheduler.interval.ms counts when unset.
log.flush.scheduler.interval.ms long 9223372036854775807 * high
    How often logs are checked for a due flush.
log.flush.offset.checkpoint.interval.ms int 60000 0.. high
    How often recovery points are saved.
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. high
    How often log start offsets are saved.

# Records
message.max.bytes int 1048588 0.. high cluster-wide
    Largest record batch accepted, after compression.
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer} high cluster-wide
    Codec of stored batches; producer keeps what was sent.
compression.gzip.level int -1 -1|1..9 medium cluster-wide
    Level for gzip; -1 is the library's default.
compression.lz4.level int 9 1..17 medium cluster-wide
    Level for lz4.
compression.zstd.level int 3 -131072..22 medium cluster-wide
    Level for zstd.
log.message.timestamp.type string CreateTime {CreateTime,LogAppendTime} medium cluster-wide
    Keep the producer's timestamps or stamp batches on arrival.
log.message.timestamp.before.max.ms long 9223372036854775807 0.. medium cluster-wide
    How far a record's timestamp may lie in the past.
log.message.timestamp.after.max.ms long 3600000 0.. medium cluster-wide
    How far a record's timestamp may lie in the future.

# Compaction
log.cleaner.enable boolean true * medium
    Run the log cleaner.
log.cleaner.threads int 1 0.. medium cluster-wide
    Cleaner workers.
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 * medium cluster-wide
    Limit on the cleaner's reads and writes together.
log.cleaner.dedupe.buffer.size long 134217728 * medium cluster-wide
    Memory of the cleaner's offset map, over all workers.
log.cleaner.io.buffer.size int 524288 0.. medium cluster-wide inert
    Memory of the cleaner's I/O buffers, over all workers.
log.cleaner.io.buffer.load.factor double 0.9 * medium cluster-wide
    How full the cleaner's offset map may get.
log.cleaner.backoff.ms long 15000 0.. medium cluster-wide
    Wait when there is nothing to clean.
log.cleaner.min.cleanable.ratio double 0.5 0..1 medium cluster-wide
    Share of uncleaned bytes at which a log is cleaned.
log.cleaner.delete.retention.ms long 86400000 0.. medium cluster-wide
    How long tombstones and transaction markers are kept in compacted logs.
log.cleaner.min.compaction.lag.ms long 0 0.. medium cluster-wide
    Records younger than this are not compacted.
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1.. medium cluster-wide
    Records older than this are compacted whatever the ratio.

# Producers and transactions in the log
producer.id.expiration.ms int 86400000 1.. low cluster-wide
    Forget a producer's state after this time without a write.
producer.id.expiration.check.interval.ms int 600000 1.. low internal
    How often expired producer state is removed.
transaction.partition.verification.enable boolean true * low cluster-wide
    Check with the coordinator that a transactional write belongs to an open transaction.

# Replication
num.replica.fetchers int 1 1.. high cluster-wide
    Fetchers per source broker.
replica.fetch.min.bytes int 1 * high
    Least bytes a follower waits for in a fetch.
replica.fetch.max.bytes int 1048576 0.. medium
    Most bytes of one partition in a follower's fetch.
replica.fetch.response.max.bytes int 10485760 0.. medium
    Most bytes of a follower's whole fetch.
replica.fetch.wait.max.ms int 500 * high
    Longest wait of a follower's fetch.
replica.fetch.backoff.ms int 1000 0.. medium
    Wait after a failed fetch of a partition.
replica.lag.time.max.ms long 30000 * high
    A follower that has not caught up for this long leaves the in-sync set.
replica.socket.timeout.ms int 30000 * high
    Time-out of a follower's requests.
replica.socket.receive.buffer.bytes int 65536 * high inert
    SO_RCVBUF of a follower's sockets.
replica.high.watermark.checkpoint.interval.ms long 5000 * high
    How often high watermarks are saved.
replica.selector.class string null * medium
    Class that picks the replica a consumer should read from.
follower.fetch.last.tiered.offset.enable boolean false * medium cluster-wide inert
    Let an empty follower start at the last tiered offset.

# Replication quotas: only ever dynamic
leader.replication.throttled.rate long 9223372036854775807 0.. medium cluster-wide dynamic-only inert
    Bytes per second that leaders send for throttled replicas.
follower.replication.throttled.rate long 9223372036854775807 0.. medium cluster-wide dynamic-only inert
    Bytes per second that followers fetch for throttled replicas.
replica.alter.log.dirs.io.max.bytes.per.second long 9223372036854775807 0.. medium cluster-wide dynamic-only inert
    Bytes per second moved between log directories.
"""
