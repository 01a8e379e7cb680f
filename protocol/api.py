"""The table of Kafka's APIs: keys, versions, listeners. Cheap to import; message modules load on first use.

Produce is special: Kafka 4 serves versions 3 to 13 but advertises 0 to 13, because librdkafka before 2.11 took a
missing version 0 for a broker without message format 2 (KAFKA-18659).
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.schema import Message


class ApiKey(IntEnum):
    """Kafka's keys under Kafka's names. 4 to 7 belonged to ZooKeeper clusters: reserved, without versions."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api:
    """One API: its versions as the schema says, and where it is served."""

    __slots__ = (
        "_request",
        "_response",
        "advertised_first",
        "cluster_action",
        "first",
        "flexible",
        "forwardable",
        "key",
        "last",
        "listeners",
        "module",
        "name",
        "unstable",
    )

    def __init__(
        self, name: str, key: ApiKey, first: int, last: int, flexible: int, listeners: tuple[str, ...], flags: int
    ) -> None:
        self.name = name
        self.key = key
        self.first = first
        self.last = last
        self.advertised_first = 0 if key == 0 else first
        self.flexible = flexible  # first version with compact types and tagged fields
        self.listeners = listeners
        self.unstable = bool(flags & _UNSTABLE)  # the last version is not advertised
        self.cluster_action = bool(flags & _CLUSTER)  # between nodes only: needs the ClusterAction permission
        self.forwardable = bool(flags & _FORWARD)  # a broker passes it on to the controller
        self.module = key.name.lower()
        self._request: Any = None
        self._response: Any = None

    @property
    def request(self) -> type[Message]:
        if self._request is None:
            self._load()
        cls: type[Message] = self._request
        return cls

    @property
    def response(self) -> type[Message]:
        if self._response is None:
            self._load()
        cls: type[Message] = self._response
        return cls

    def _load(self) -> None:
        module = import_module(f"pylogd.protocol.messages.{self.module}")
        self._request = getattr(module, self.name + "Request")
        self._response = getattr(module, self.name + "Response")


_NEVER: Final = 32767
_UNSTABLE, _CLUSTER, _FORWARD = 1, 2, 4
_B = ("broker",)
_C = ("controller",)
_BC = ("broker", "controller")

# name, key, first and last version, first flexible version, listeners, flags
_ROWS: Final[tuple[tuple[str, ApiKey, int, int, int, tuple[str, ...], int], ...]] = (
    ("Produce", ApiKey.PRODUCE, 3, 13, 9, _B, 0),
    ("Fetch", ApiKey.FETCH, 4, 18, 12, _BC, 0),
    ("ListOffsets", ApiKey.LIST_OFFSETS, 1, 11, 6, _B, 0),
    ("Metadata", ApiKey.METADATA, 0, 13, 9, _B, 0),
    ("OffsetCommit", ApiKey.OFFSET_COMMIT, 2, 10, 8, _B, 0),
    ("OffsetFetch", ApiKey.OFFSET_FETCH, 1, 10, 6, _B, 0),
    ("FindCoordinator", ApiKey.FIND_COORDINATOR, 0, 6, 3, _B, 0),
    ("JoinGroup", ApiKey.JOIN_GROUP, 0, 9, 6, _B, 0),
    ("Heartbeat", ApiKey.HEARTBEAT, 0, 4, 4, _B, 0),
    ("LeaveGroup", ApiKey.LEAVE_GROUP, 0, 5, 4, _B, 0),
    ("SyncGroup", ApiKey.SYNC_GROUP, 0, 5, 4, _B, 0),
    ("DescribeGroups", ApiKey.DESCRIBE_GROUPS, 0, 6, 5, _B, 0),
    ("ListGroups", ApiKey.LIST_GROUPS, 0, 5, 3, _B, 0),
    ("SaslHandshake", ApiKey.SASL_HANDSHAKE, 0, 1, _NEVER, _BC, 0),
    ("ApiVersions", ApiKey.API_VERSIONS, 0, 4, 3, _BC, 0),
    ("CreateTopics", ApiKey.CREATE_TOPICS, 2, 7, 5, _BC, _FORWARD),
    ("DeleteTopics", ApiKey.DELETE_TOPICS, 1, 6, 4, _BC, _FORWARD),
    ("DeleteRecords", ApiKey.DELETE_RECORDS, 0, 2, 2, _B, 0),
    ("InitProducerId", ApiKey.INIT_PRODUCER_ID, 0, 6, 2, _B, _UNSTABLE),
    ("OffsetForLeaderEpoch", ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4, _B, 0),
    ("AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3, _B, 0),
    ("AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3, _B, 0),
    ("EndTxn", ApiKey.END_TXN, 0, 5, 3, _B, 0),
    ("WriteTxnMarkers", ApiKey.WRITE_TXN_MARKERS, 1, 2, 1, _B, _CLUSTER),
    ("TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3, _B, 0),
    ("DescribeAcls", ApiKey.DESCRIBE_ACLS, 1, 3, 2, _BC, 0),
    ("CreateAcls", ApiKey.CREATE_ACLS, 1, 3, 2, _BC, _FORWARD),
    ("DeleteAcls", ApiKey.DELETE_ACLS, 1, 3, 2, _BC, _FORWARD),
    ("DescribeConfigs", ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, _BC, 0),
    ("AlterConfigs", ApiKey.ALTER_CONFIGS, 0, 2, 2, _BC, _FORWARD),
    ("AlterReplicaLogDirs", ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2, _B, 0),
    ("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2, _B, 0),
    ("SaslAuthenticate", ApiKey.SASL_AUTHENTICATE, 0, 2, 2, _BC, 0),
    ("CreatePartitions", ApiKey.CREATE_PARTITIONS, 0, 3, 2, _BC, _FORWARD),
    ("CreateDelegationToken", ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2, _BC, _FORWARD),
    ("RenewDelegationToken", ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2, _BC, _FORWARD),
    ("ExpireDelegationToken", ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2, _BC, _FORWARD),
    ("DescribeDelegationToken", ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2, _BC, 0),
    ("DeleteGroups", ApiKey.DELETE_GROUPS, 0, 2, 2, _B, 0),
    ("ElectLeaders", ApiKey.ELECT_LEADERS, 0, 2, 2, _BC, _FORWARD),
    ("IncrementalAlterConfigs", ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, _BC, _FORWARD),
    ("AlterPartitionReassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, _BC, _FORWARD),
    ("ListPartitionReassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, _BC, _FORWARD),
    ("OffsetDelete", ApiKey.OFFSET_DELETE, 0, 0, _NEVER, _B, 0),
    ("DescribeClientQuotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1, _B, 0),
    ("AlterClientQuotas", ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1, _BC, _FORWARD),
    ("DescribeUserScramCredentials", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, _BC, 0),
    ("AlterUserScramCredentials", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, _BC, _FORWARD),
    ("Vote", ApiKey.VOTE, 0, 2, 0, _C, _CLUSTER),
    ("BeginQuorumEpoch", ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1, _C, _CLUSTER),
    ("EndQuorumEpoch", ApiKey.END_QUORUM_EPOCH, 0, 1, 1, _C, _CLUSTER),
    ("DescribeQuorum", ApiKey.DESCRIBE_QUORUM, 0, 2, 0, _BC, _CLUSTER | _FORWARD),
    ("AlterPartition", ApiKey.ALTER_PARTITION, 2, 3, 0, _C, _CLUSTER),
    ("UpdateFeatures", ApiKey.UPDATE_FEATURES, 0, 2, 0, _BC, _CLUSTER | _FORWARD),
    ("Envelope", ApiKey.ENVELOPE, 0, 0, 0, _C, _CLUSTER),
    ("FetchSnapshot", ApiKey.FETCH_SNAPSHOT, 0, 1, 0, _C, 0),
    ("DescribeCluster", ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, _BC, 0),
    ("DescribeProducers", ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, _B, 0),
    ("BrokerRegistration", ApiKey.BROKER_REGISTRATION, 0, 4, 0, _C, _CLUSTER),
    ("BrokerHeartbeat", ApiKey.BROKER_HEARTBEAT, 0, 2, 0, _C, _CLUSTER),
    ("UnregisterBroker", ApiKey.UNREGISTER_BROKER, 0, 0, 0, _BC, _FORWARD),
    ("DescribeTransactions", ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0, _B, 0),
    ("ListTransactions", ApiKey.LIST_TRANSACTIONS, 0, 2, 0, _B, 0),
    ("AllocateProducerIds", ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0, _C, _CLUSTER | _FORWARD),
    ("ConsumerGroupHeartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0, _B, 0),
    ("ConsumerGroupDescribe", ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0, _B, 0),
    ("ControllerRegistration", ApiKey.CONTROLLER_REGISTRATION, 0, 0, 0, _C, 0),
    ("GetTelemetrySubscriptions", ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0, _B, 0),
    ("PushTelemetry", ApiKey.PUSH_TELEMETRY, 0, 0, 0, _B, 0),
    ("AssignReplicasToDirs", ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0, _C, 0),
    ("ListConfigResources", ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0, _B, 0),
    ("DescribeTopicPartitions", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0, _B, 0),
    ("ShareGroupHeartbeat", ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0, _B, 0),
    ("ShareGroupDescribe", ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0, _B, 0),
    ("ShareFetch", ApiKey.SHARE_FETCH, 1, 2, 0, _B, 0),
    ("ShareAcknowledge", ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0, _B, 0),
    ("AddRaftVoter", ApiKey.ADD_RAFT_VOTER, 0, 1, 0, _BC, _FORWARD),
    ("RemoveRaftVoter", ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, _BC, _FORWARD),
    ("UpdateRaftVoter", ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0, _C, 0),
    ("InitializeShareGroupState", ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0, _B, _CLUSTER),
    ("ReadShareGroupState", ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0, _B, _CLUSTER),
    ("WriteShareGroupState", ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0, _B, _CLUSTER),
    ("DeleteShareGroupState", ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0, _B, _CLUSTER),
    ("ReadShareGroupStateSummary", ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0, _B, _CLUSTER),
    ("StreamsGroupHeartbeat", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, 0, _B, 0),
    ("StreamsGroupDescribe", ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, 0, _B, 0),
    ("DescribeShareGroupOffsets", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0, _B, 0),
    ("AlterShareGroupOffsets", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0, _B, 0),
    ("DeleteShareGroupOffsets", ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0, _B, 0),
)

APIS: Final[dict[int, Api]] = {row[1]: Api(*row) for row in _ROWS}

# Modules of messages that are not requests: records, and what clients put into opaque bytes.
DATA_MODULES: Final = (
    "consumer_protocol",
    "control_records",
    "group_records",
    "metadata_records",
    "principal",
    "raft_records",
    "remote_log_records",
    "share_records",
    "storage_records",
    "transaction_records",
)


def api(key: int) -> Api:
    """KafkaError if there is no such API."""
    try:
        return APIS[key]
    except KeyError:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no API has key {key}") from None


def request_class(key: int) -> type[Message]:
    return api(key).request


def response_class(key: int) -> type[Message]:
    return api(key).response


def request_header_version(key: int, version: int) -> int:
    return 2 if version >= api(key).flexible else 1


def response_header_version(key: int, version: int) -> int:
    """ApiVersions always answers with header 0: the client may not know yet whether the broker is flexible."""
    return 1 if version >= api(key).flexible and key != ApiKey.API_VERSIONS else 0


def message_class(name: str) -> type[Message]:
    """Any message by its Kafka name, such as "FetchRequest" or "PartitionChangeRecord"."""
    for row in APIS.values():
        if name == row.name + "Request":
            return row.request
        if name == row.name + "Response":
            return row.response
    for module in ("headers", *(f"messages.{module}" for module in DATA_MODULES)):
        found = getattr(import_module(f"pylogd.protocol.{module}"), name, None)
        if isinstance(found, type) and issubclass(found, Message):
            return found
    raise LookupError(f"no message is called {name}")
