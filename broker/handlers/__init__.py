"""What this broker serves: one row per API, one module per row.

The table is the compatibility matrix; ApiVersions advertises it, dispatch enforces it. Each module
opens with what every version of its API added, and has

    def handle(ctx: RequestContext, request) -> response | Deferred | Awaitable[response] | None

None means that no reply is due (Produce with acks=0). KafkaError becomes an error response in dispatch, by the table
in `protocol.failures`. A module may also have

    def resources(request) -> tuple[Resource, ...]

which the gate is told, and its row may name templates for requests that repeat.
"""

from __future__ import annotations

from pylogd.broker.network.served import Handler, Repeats
from pylogd.protocol.api import ApiKey

SUPPORTED: dict[ApiKey, Handler] = {
    ApiKey.PRODUCE: Handler(
        "produce", 3, 13, works_ahead=True, repeats=Repeats("produce.produce_template", "RepeatedProduce", since=3)
    ),
    # From 15 on followers tell their broker epoch.
    ApiKey.FETCH: Handler("fetch", 4, 18, repeats=Repeats("fetch.fetch_template", "RepeatedFetches", since=15)),
    ApiKey.LIST_OFFSETS: Handler("list_offsets", 1, 11),
    ApiKey.METADATA: Handler("metadata", 0, 13),
    # From 6 on with leader epochs.
    ApiKey.OFFSET_COMMIT: Handler(
        "offset_commit", 2, 10, repeats=Repeats("commit.commit_template", "RepeatedCommits", since=6)
    ),
    ApiKey.OFFSET_FETCH: Handler("offset_fetch", 1, 10),
    ApiKey.FIND_COORDINATOR: Handler("find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: Handler("join_group", 0, 9),
    ApiKey.HEARTBEAT: Handler("heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: Handler("leave_group", 0, 5),
    ApiKey.SYNC_GROUP: Handler("sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: Handler("describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: Handler("list_groups", 0, 5),
    ApiKey.API_VERSIONS: Handler("api_versions", 0, 4),
    ApiKey.CREATE_TOPICS: Handler("create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Handler("delete_topics", 1, 6),
    ApiKey.DELETE_RECORDS: Handler("delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: Handler("init_producer_id", 0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: Handler("add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler("add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: Handler("end_txn", 0, 5),
    ApiKey.WRITE_TXN_MARKERS: Handler("write_txn_markers", 1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Handler("txn_offset_commit", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler("offset_for_leader_epoch", 2, 4),
    ApiKey.DESCRIBE_CONFIGS: Handler("describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Handler("alter_configs", 0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler("alter_replica_log_dirs", 1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Handler("describe_log_dirs", 1, 5),
    ApiKey.CREATE_PARTITIONS: Handler("create_partitions", 0, 3),
    ApiKey.DELETE_GROUPS: Handler("delete_groups", 0, 2),
    ApiKey.ELECT_LEADERS: Handler("elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler("incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler("alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler("list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: Handler("offset_delete", 0, 0),
    ApiKey.DESCRIBE_QUORUM: Handler("describe_quorum", 0, 2),
    ApiKey.UPDATE_FEATURES: Handler("update_features", 0, 2),
    ApiKey.DESCRIBE_CLUSTER: Handler("describe_cluster", 0, 2),
    ApiKey.UNREGISTER_BROKER: Handler("unregister_broker", 0, 0),
    ApiKey.DESCRIBE_PRODUCERS: Handler("describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler("describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: Handler("list_transactions", 0, 2),
    # Kafka advertises telemetry only when a metrics reporter takes it; clients that ask anyway are answered.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Handler("get_telemetry_subscriptions", 0, 0, hidden=True),
    ApiKey.PUSH_TELEMETRY: Handler("push_telemetry", 0, 0, hidden=True),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Handler("consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Handler("consumer_group_describe", 0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: Handler("list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler("describe_topic_partitions", 0, 0),
    ApiKey.ADD_RAFT_VOTER: Handler("add_raft_voter", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Handler("remove_raft_voter", 0, 0),
}
