"""Broker configs of the node: identity, listeners, requests, quotas, quorum. Columns: see definition.py."""

KEYS = """
# Identity and roles
process.roles list - list{broker,controller} high
    What this node is: a broker, a controller, or both in one process.
node.id int - 0.. high
    Number of this node, unique in the cluster.
broker.id int -1 * high
    Older name of node.id; must be equal to it when both are set.
broker.rack string null * medium
    Failure domain of this broker; replicas of a partition are spread over racks.
config.providers list "" list? low cluster-wide inert
    Names of config providers for ${provider:key} references. pylogd has env and file built in.
server.max.startup.time.ms long 9223372036854775807 0.. medium internal inert
    Give up when the node is not serving after this time.
unstable.api.versions.enable boolean false * high internal inert
    Advertise API versions that are still under development.
unstable.feature.versions.enable boolean false * high internal inert
    Allow feature levels that are still under development.

# Listeners and sockets
listeners list PLAINTEXT://:9092 list high per-broker
    Addresses to listen on, as NAME://host:port; an empty host means every interface, port 0 any free port.
advertised.listeners list null list high
    Addresses given to clients. When unset, clients get the address they connected to or the listener's own.
listener.security.protocol.map string \
PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL \
* low per-broker
    Security protocol of each listener name, as NAME:PROTOCOL pairs.
inter.broker.listener.name string null * medium
    Listener that brokers use between themselves.
security.inter.broker.protocol string PLAINTEXT {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} medium
    Security protocol between brokers when inter.broker.listener.name is not set.
controller.listener.names list - list high
    Listeners that belong to the controller; the first one is used to reach it.
early.start.listeners list null list? high inert
    Listeners that accept connections before start-up is complete.
socket.send.buffer.bytes int 102400 * high
    SO_SNDBUF of accepted sockets; -1 keeps the system's.
socket.receive.buffer.bytes int 102400 * high
    SO_RCVBUF of accepted sockets; -1 keeps the system's.
socket.request.max.bytes int 104857600 1.. high
    Largest request frame accepted; a longer one closes the connection.
socket.listen.backlog.size int 50 1.. medium
    Queue of connections waiting for accept.
socket.connection.setup.timeout.ms long 10000 * medium inert
    First time-out for a connection this node opens.
socket.connection.setup.timeout.max.ms long 30000 * medium inert
    Largest time-out for a connection this node opens, reached by doubling.
connections.max.idle.ms long 600000 * medium
    Close connections without traffic for this long; negative never.
connection.failed.authentication.delay.ms int 100 0.. low inert
    Wait before closing after a failed authentication.
connections.max.reauth.ms long 0 * medium inert
    Longest SASL session before a client has to authenticate again; 0 is unlimited.
max.connections int 2147483647 0.. medium cluster-wide
    Most connections at one time in the whole broker.
max.connections.per.ip int 2147483647 0.. medium cluster-wide
    Most connections at one time from one address.
max.connections.per.ip.overrides string "" * medium cluster-wide
    Exceptions to max.connections.per.ip, as host:count pairs.
max.connection.creation.rate int 2147483647 0.. medium cluster-wide
    Most new connections per second in the whole broker.
queued.max.requests int 500 1.. high inert
    Requests waiting for work before connections stop being read.
queued.max.request.bytes long -1 * medium
    Bytes of requests waiting for work before connections stop being read; -1 leaves it to pylogd.inflight.bytes.max.
request.timeout.ms int 30000 * high
    Time-out of requests that this node sends.
controller.socket.timeout.ms int 30000 * medium
    Socket time-out of requests to the controller.

# Threads (pylogd has one event loop; these shape its workers)
num.network.threads int 3 1.. high cluster-wide inert
    Kafka's network threads. pylogd serves all sockets from one event loop.
num.io.threads int 8 1.. high cluster-wide inert
    Kafka's request threads. pylogd handles requests on its event loop.
background.threads int 10 1.. high cluster-wide inert
    Threads for file work off the event loop.
num.recovery.threads.per.data.dir int 2 1.. high cluster-wide
    Workers per log directory that load and recover logs at start-up.
num.replica.alter.log.dirs.threads int null * high inert
    Workers that move replicas between log directories.

# Requests
fetch.max.bytes int 57671680 1024.. medium
    Most bytes in one fetch response, whatever the client asks for.
max.incremental.fetch.session.cache.slots int 1000 0.. medium
    Fetch sessions remembered at one time.
max.request.partition.size.limit int 2000 1.. medium
    Most partitions in one DescribeTopicPartitions response.
fetch.purgatory.purge.interval.requests int 1000 * medium inert
    Kafka's purge rhythm of waiting fetches. pylogd drops them at once.
producer.purgatory.purge.interval.requests int 1000 * medium inert
    Kafka's purge rhythm of waiting produces. pylogd drops them at once.
delete.records.purgatory.purge.interval.requests int 1 * medium inert
    Kafka's purge rhythm of waiting record deletions. pylogd drops them at once.
share.fetch.purgatory.purge.interval.requests int 1000 * medium inert
    Kafka's purge rhythm of waiting share fetches.
auto.create.topics.enable boolean true * high
    Create a topic when a client asks for its metadata or writes to it.
delete.topic.enable boolean true * high
    Allow topics to be deleted.
create.topic.policy.class.name class null * low inert
    Class that may refuse new topics.
alter.config.policy.class.name class null * low inert
    Class that may refuse config changes.

# Quotas and metrics
quota.window.num int 11 1.. low inert
    Samples kept for client quotas.
quota.window.size.seconds int 1 1.. low inert
    Length of one client quota sample.
replication.quota.window.num int 11 1.. low inert
    Samples kept for replication quotas.
replication.quota.window.size.seconds int 1 1.. low inert
    Length of one replication quota sample.
alter.log.dirs.replication.quota.window.num int 11 1.. low inert
    Samples kept for the quota on moves between log directories.
alter.log.dirs.replication.quota.window.size.seconds int 1 1.. low inert
    Length of one sample of the quota on moves between log directories.
controller.quota.window.num int 11 1.. low inert
    Samples kept for quotas on topic and partition changes.
controller.quota.window.size.seconds int 1 1.. low inert
    Length of one sample of quotas on topic and partition changes.
client.quota.callback.class class null * low inert
    Class that decides client quotas.
metric.reporters list org.apache.kafka.common.metrics.JmxReporter list? low cluster-wide inert
    Classes told about every metric.
metrics.num.samples int 2 1.. low inert
    Samples kept for each metric.
metrics.sample.window.ms long 30000 1.. low inert
    Length of one metric sample.
metrics.recording.level string INFO * low inert
    Most detailed level of metrics to record.
kafka.metrics.reporters list "" list? low inert
    Older metric reporter classes.
kafka.metrics.polling.interval.secs int 10 1.. low inert
    How often older metric reporters are asked.
telemetry.max.bytes int 1048576 1.. low
    Largest telemetry push accepted from a client.

# The controller quorum
controller.quorum.voters list "" voters high
    Fixed set of voters, as id@host:port. Setting it means a static quorum (kraft.version 0).
controller.quorum.bootstrap.servers list "" servers high
    Addresses where the quorum can be found; the voters themselves are recorded in the log.
controller.quorum.auto.join.enable boolean false * low
    Let a new controller add itself to the voters.
controller.quorum.election.timeout.ms int 1000 0.. high
    Longest wait without a leader before standing for election.
controller.quorum.fetch.timeout.ms int 2000 0.. high
    Longest time without a fetch from the leader (or from a majority) before a new election.
controller.quorum.election.backoff.max.ms int 1000 0.. high
    Longest random wait after an election without a winner.
controller.quorum.append.linger.ms int 25 0.. medium inert
    Time for which the leader gathers records before writing a batch.
controller.quorum.request.timeout.ms int 2000 0.. medium
    Time-out of requests between voters.
controller.quorum.retry.backoff.ms int 20 0.. low
    Wait before a failed request between voters is sent again.
controller.quorum.fetch.max.bytes int 1048576 1.. low
    Most bytes in one fetch of the metadata log.
controller.quorum.fetch.snapshot.max.bytes int 1048576 1.. low
    Most bytes in one piece of a fetched snapshot.
controller.performance.sample.period.ms long 60000 100.. medium internal inert
    How often the controller reports its event times.
controller.performance.always.log.threshold.ms long 2000 0.. medium internal inert
    Log every controller event that takes longer than this.
initial.broker.registration.timeout.ms int 60000 * medium
    How long a starting broker tries to register with the controller.
broker.heartbeat.interval.ms int 2000 * medium
    Interval of broker heartbeats to the controller.
broker.session.timeout.ms int 9000 * medium
    Fence a broker after this time without a heartbeat.
controlled.shutdown.enable boolean true * medium inert
    Hand leadership over before stopping.
leader.imbalance.check.interval.seconds long 300 1.. high
    How often the controller moves leaders back to preferred replicas.
auto.leader.rebalance.enable boolean true * high
    Move leaders back to preferred replicas by itself.
unclean.leader.election.interval.ms long 300000 1.. medium internal inert
    How often the controller looks for partitions that need an unclean election.

# The metadata log
metadata.log.dir string null * high
    Directory of the metadata log; the first of log.dirs when unset.
metadata.log.segment.bytes int 1073741824 8388608.. high
    Size of a metadata log segment.
metadata.log.segment.ms long 604800000 * high
    Age at which a metadata log segment is rolled.
metadata.max.retention.bytes long 104857600 * high
    Size of metadata log and snapshots that is kept.
metadata.max.retention.ms long 604800000 * high
    Age of metadata log and snapshots that is kept.
metadata.max.idle.interval.ms int 500 0.. low
    Interval of no-op records on an idle metadata log; 0 turns them off.
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. high
    Bytes of new records after which a snapshot is made.
metadata.log.max.snapshot.interval.ms long 3600000 0.. high
    Time after which a snapshot is made if there are new records; 0 turns it off.
internal.metadata.log.segment.bytes int null * low internal
    Test override of metadata.log.segment.bytes without its lower bound.
internal.metadata.max.batch.size.in.bytes int 8388608 * low internal inert
    Largest batch written to the metadata log.
internal.metadata.delete.delay.millis long 60000 * low internal inert
    Wait before a deleted metadata file is removed.
"""
