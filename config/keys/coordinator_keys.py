"""Broker configs of groups, offsets, share groups and transactions. Columns: see definition.py."""

KEYS = """
# Classic groups and offsets
group.min.session.timeout.ms int 6000 * medium
    Shortest session time-out a group member may ask for.
group.max.session.timeout.ms int 1800000 * medium
    Longest session time-out a group member may ask for.
group.initial.rebalance.delay.ms int 3000 * medium
    Wait for more members before the first rebalance of a new group.
group.max.size int 2147483647 1.. medium
    Most members in a group.
offset.metadata.max.bytes int 4096 * high
    Longest metadata string of a committed offset.
offsets.topic.num.partitions int 50 1.. high
    Partitions of __consumer_offsets; fixed once created.
offsets.topic.replication.factor short 3 1.. high
    Replicas of __consumer_offsets.
offsets.topic.segment.bytes int 104857600 1.. high
    Segment size of __consumer_offsets.
offsets.topic.compression.codec int 0 * high
    Codec id of __consumer_offsets batches.
offsets.load.buffer.size int 5242880 1.. high
    Bytes per read when offsets are loaded.
offsets.commit.timeout.ms int 5000 1.. high
    Longest wait for an offset commit to be replicated.
offsets.retention.minutes int 10080 1.. high
    How long offsets of an empty group are kept.
offsets.retention.check.interval.ms long 600000 1.. high
    How often expired offsets are removed.
group.coordinator.rebalance.protocols list classic,consumer,streams list{consumer,classic,share,streams} medium
    Rebalance protocols that are served.
group.coordinator.threads int 4 1.. high inert
    Kafka's coordinator threads. pylogd runs coordinators on its event loop.
group.coordinator.background.threads int 2 1.. high inert
    Threads for slow coordinator work.
group.coordinator.append.linger.ms int -1 -1.. medium inert
    Time for which coordinator records are gathered in a batch; -1 adapts.
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. medium cluster-wide inert
    Largest write buffer the coordinator keeps for reuse.

# Consumer groups (KIP-848)
group.consumer.session.timeout.ms int 45000 1.. medium
    Session time-out of consumer group members.
group.consumer.min.session.timeout.ms int 45000 1.. medium
    Lower bound of consumer.session.timeout.ms of a group.
group.consumer.max.session.timeout.ms int 60000 1.. medium
    Upper bound of consumer.session.timeout.ms of a group.
group.consumer.heartbeat.interval.ms int 5000 1.. medium
    Heartbeat interval of consumer group members.
group.consumer.min.heartbeat.interval.ms int 5000 1.. medium
    Lower bound of consumer.heartbeat.interval.ms of a group.
group.consumer.max.heartbeat.interval.ms int 15000 1.. medium
    Upper bound of consumer.heartbeat.interval.ms of a group.
group.consumer.assignment.interval.ms int 1000 0.. medium cluster-wide
    Least time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms int 0 0.. medium
    Lower bound of consumer.assignment.interval.ms of a group.
group.consumer.max.assignment.interval.ms int 15000 0.. medium
    Upper bound of consumer.assignment.interval.ms of a group.
group.consumer.max.size int 2147483647 1.. medium
    Most members in a consumer group.
group.consumer.assignors list uniform,range list medium
    Assignors offered, the default one first: built-in names or classes.
group.consumer.migration.policy string bidirectional i{BIDIRECTIONAL,DISABLED,DOWNGRADE,UPGRADE} medium
    Whether groups may move between the classic and the consumer protocol.
group.consumer.regex.refresh.interval.ms int 600000 10000.. medium internal
    How often subscribed patterns are matched with topics again.

# Share groups
group.share.session.timeout.ms int 45000 1.. medium inert
    Session time-out of share group members.
group.share.min.session.timeout.ms int 45000 1.. medium inert
    Lower bound of share.session.timeout.ms of a group.
group.share.max.session.timeout.ms int 60000 1.. medium inert
    Upper bound of share.session.timeout.ms of a group.
group.share.heartbeat.interval.ms int 5000 1.. medium inert
    Heartbeat interval of share group members.
group.share.min.heartbeat.interval.ms int 5000 1.. medium inert
    Lower bound of share.heartbeat.interval.ms of a group.
group.share.max.heartbeat.interval.ms int 15000 1.. medium inert
    Upper bound of share.heartbeat.interval.ms of a group.
group.share.assignment.interval.ms int 1000 0.. medium cluster-wide inert
    Least time between two assignments of a share group.
group.share.min.assignment.interval.ms int 0 0.. medium inert
    Lower bound of share.assignment.interval.ms of a group.
group.share.max.assignment.interval.ms int 15000 0.. medium inert
    Upper bound of share.assignment.interval.ms of a group.
group.share.max.size int 200 1..1000 medium inert
    Most members in a share group.
group.share.assignors list simple list medium inert
    Share group assignor.
group.share.delivery.count.limit int 5 2..10 medium inert
    Deliveries of one record before it is given up.
group.share.min.delivery.count.limit int 2 2..5 medium inert
    Lower bound of share.delivery.count.limit of a group.
group.share.max.delivery.count.limit int 10 5..25 medium inert
    Upper bound of share.delivery.count.limit of a group.
group.share.record.lock.duration.ms int 30000 1000..3600000 medium inert
    How long a delivered record is reserved for its consumer.
group.share.min.record.lock.duration.ms int 15000 1000..30000 medium inert
    Lower bound of share.record.lock.duration.ms of a group.
group.share.max.record.lock.duration.ms int 60000 30000..3600000 medium inert
    Upper bound of share.record.lock.duration.ms of a group.
group.share.partition.max.record.locks int 2000 100..10000 medium inert
    Most records of one partition reserved at one time.
group.share.min.partition.max.record.locks int 100 100..2000 medium inert
    Lower bound of share.partition.max.record.locks of a group.
group.share.max.partition.max.record.locks int 4000 2000..10000 medium inert
    Upper bound of share.partition.max.record.locks of a group.
group.share.max.share.sessions int 2000 1.. medium inert
    Most share sessions at one time.
group.share.initialize.retry.interval.ms int 30000 1.. low internal inert
    Wait before share group state is initialized again after a failure.
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister \
* medium internal inert
    Class that stores share group state.
share.coordinator.state.topic.num.partitions int 50 1.. high inert
    Partitions of __share_group_state; fixed once created.
share.coordinator.state.topic.replication.factor short 3 1.. high inert
    Replicas of __share_group_state.
share.coordinator.state.topic.min.isr short 2 1.. high inert
    In-sync replicas that writes to __share_group_state need.
share.coordinator.state.topic.segment.bytes int 104857600 1.. high inert
    Segment size of __share_group_state.
share.coordinator.state.topic.compression.codec int 0 * high inert
    Codec id of __share_group_state batches.
share.coordinator.state.topic.prune.interval.ms int 300000 1.. low internal inert
    How often records no longer needed are removed from __share_group_state.
share.coordinator.threads int 1 1.. medium inert
    Kafka's share coordinator threads.
share.coordinator.load.buffer.size int 5242880 1.. high inert
    Bytes per read when share group state is loaded.
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500 medium inert
    Updates written between two snapshots of a share partition.
share.coordinator.cold.partition.snapshot.interval.ms int 300000 1.. low internal inert
    How often idle share partitions are written as snapshots again.
share.coordinator.write.timeout.ms int 5000 1.. high inert
    Longest wait for share group state to be replicated.
share.coordinator.append.linger.ms int -1 -1.. medium inert
    Time for which share group state is gathered in a batch; -1 adapts.
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. medium cluster-wide inert
    Largest write buffer the share coordinator keeps for reuse.

# Streams groups
group.streams.session.timeout.ms int 45000 1.. medium inert
    Session time-out of streams group members.
group.streams.min.session.timeout.ms int 45000 1.. medium inert
    Lower bound of streams.session.timeout.ms of a group.
group.streams.max.session.timeout.ms int 60000 1.. medium inert
    Upper bound of streams.session.timeout.ms of a group.
group.streams.heartbeat.interval.ms int 5000 1.. medium inert
    Heartbeat interval of streams group members.
group.streams.min.heartbeat.interval.ms int 5000 1.. medium inert
    Lower bound of streams.heartbeat.interval.ms of a group.
group.streams.max.heartbeat.interval.ms int 15000 1.. medium inert
    Upper bound of streams.heartbeat.interval.ms of a group.
group.streams.assignment.interval.ms int 1000 0.. medium cluster-wide inert
    Least time between two assignments of a streams group.
group.streams.min.assignment.interval.ms int 0 0.. medium inert
    Lower bound of streams.assignment.interval.ms of a group.
group.streams.max.assignment.interval.ms int 15000 0.. medium inert
    Upper bound of streams.assignment.interval.ms of a group.
group.streams.max.size int 2147483647 1.. medium inert
    Most members in a streams group.
group.streams.num.standby.replicas int 0 0.. medium inert
    Standby copies of each streams task.
group.streams.max.standby.replicas int 2 0.. medium inert
    Upper bound of streams.num.standby.replicas of a group.
group.streams.initial.rebalance.delay.ms int 3000 0.. medium inert
    Wait for more members before the first assignment of a new streams group.

# Transactions
transactional.id.expiration.ms int 604800000 1.. high
    Forget an idle transactional id after this time.
transaction.max.timeout.ms int 900000 1.. high
    Longest transaction time-out a producer may ask for.
transaction.two.phase.commit.enable boolean false * low inert
    Allow producers to take part in two-phase commits, without a time-out.
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1.. low
    How often transactions past their time-out are aborted.
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1.. low
    How often expired transactional ids are removed.
transaction.state.log.num.partitions int 50 1.. high
    Partitions of __transaction_state; fixed once created.
transaction.state.log.replication.factor short 3 1.. high
    Replicas of __transaction_state.
transaction.state.log.min.isr int 2 1.. high
    In-sync replicas that writes to __transaction_state need.
transaction.state.log.segment.bytes int 104857600 1.. high
    Segment size of __transaction_state.
transaction.state.log.load.buffer.size int 5242880 1.. high
    Bytes per read when transaction state is loaded.
add.partitions.to.txn.retry.backoff.ms int 20 1.. high
    Wait before a partition is added to a transaction again while the previous one completes.
add.partitions.to.txn.retry.backoff.max.ms int 100 0.. high
    Longest time a broker retries adding partitions to a transaction.
"""
