"""Broker configs of tiered storage. Columns: see definition.py."""

KEYS = """
# Tiered storage
remote.log.storage.system.enable boolean false * medium inert
    Turn tiered storage on in this broker.
remote.log.storage.manager.class.name string null nonempty medium inert
    Class that stores segments remotely.
remote.log.storage.manager.class.path string null * medium inert
    Class path of the remote storage class.
remote.log.storage.manager.impl.prefix string rsm.config. nonempty medium inert
    Prefix of the remote storage class's own configs.
remote.log.metadata.manager.class.name string \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager \
nonempty medium inert
    Class that keeps the list of remote segments.
remote.log.metadata.manager.class.path string null * medium inert
    Class path of the remote metadata class.
remote.log.metadata.manager.impl.prefix string rlmm.config. nonempty medium inert
    Prefix of the remote metadata class's own configs.
remote.log.metadata.manager.listener.name string null nonempty medium inert
    Listener that the remote metadata class connects to.
remote.log.metadata.custom.metadata.max.bytes int 128 0.. low inert
    Largest custom metadata of a remote segment.
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. low cluster-wide inert
    Disk space for cached indexes of remote segments.
remote.log.index.file.cache.ttl.ms long 900000 -1.. low internal inert
    How long an unused cached index is kept; -1 keeps it.
remote.log.manager.task.interval.ms long 30000 1.. low inert
    How often copying and expiry look for work.
remote.log.manager.task.retry.backoff.ms long 500 1.. low internal inert
    First wait after a failed remote task.
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. low internal inert
    Longest wait after a failed remote task.
remote.log.manager.task.retry.jitter double 0.2 0..0.5 low internal inert
    Random part of the wait after a failed remote task.
remote.log.manager.thread.pool.size int 2 1.. medium inert
    Older name of the follower pool size.
remote.log.manager.copier.thread.pool.size int 10 1.. medium cluster-wide inert
    Workers that copy segments.
remote.log.manager.expiration.thread.pool.size int 10 1.. medium cluster-wide inert
    Workers that delete expired remote segments.
remote.log.manager.follower.thread.pool.size int 2 1.. medium cluster-wide inert
    Workers that follow remote metadata on followers.
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. medium cluster-wide inert
    Limit on bytes copied to remote storage.
remote.log.manager.copy.quota.window.num int 11 1.. medium inert
    Samples kept for the copy limit.
remote.log.manager.copy.quota.window.size.seconds int 1 1.. medium inert
    Length of one sample of the copy limit.
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. medium cluster-wide inert
    Limit on bytes read from remote storage.
remote.log.manager.fetch.quota.window.num int 11 1.. medium inert
    Samples kept for the read limit.
remote.log.manager.fetch.quota.window.size.seconds int 1 1.. medium inert
    Length of one sample of the read limit.
remote.log.reader.threads int 10 1.. medium cluster-wide inert
    Workers that read remote segments.
remote.log.reader.max.pending.tasks int 100 1.. medium inert
    Most remote reads waiting for a worker.
remote.fetch.max.wait.ms int 500 1.. medium cluster-wide inert
    Longest wait of a fetch for remote data.
remote.list.offsets.request.timeout.ms long 30000 1.. medium cluster-wide inert
    Longest wait of an offset look-up for remote data.
log.local.retention.ms long -2 -2.. medium cluster-wide inert
    How long tiered segments also stay on local disk; -2 is log.retention.ms.
log.local.retention.bytes long -2 -2.. medium cluster-wide inert
    How many bytes of tiered segments also stay on local disk; -2 is log.retention.bytes.
"""
