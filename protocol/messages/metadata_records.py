"""Records of the cluster metadata log, `__cluster_metadata`.

Kafka removed ZooKeeper, but not the record of the migration away from it: logs of migrated clusters hold one.
"""

from __future__ import annotations

from typing import Annotated, Final

from pylogd.protocol.schema import Message, Struct, since, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, UInt16, Uuid


class RegisterBrokerRecord(Message, api_key=0, versions=(0, 4), flexible=0):
    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[bool, since(2)] = False
    incarnation_id: Uuid = ZERO
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: Annotated[bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], tagged(0, since=3)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tagged(1, since=4)] = None


class BrokerEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UnregisterBrokerRecord(Message, api_key=1, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(Message, api_key=2, versions=(0, 0), flexible=0):
    name: str = ""
    topic_id: Uuid = ZERO


class PartitionRecord(Message, api_key=3, versions=(0, 2), flexible=0):
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, tagged(0, since=0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], since(1)] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, tagged(1, since=2)] = None
    last_known_elr: Annotated[list[Int32] | None, tagged(2, since=2)] = None


class ConfigRecord(Message, api_key=4, versions=(0, 0), flexible=0):
    resource_type: Int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class PartitionChangeRecord(Message, api_key=5, versions=(0, 2), flexible=0):
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO
    isr: Annotated[list[Int32] | None, tagged(0, since=0)] = None
    leader: Annotated[Int32, tagged(1, since=0)] = -2
    replicas: Annotated[list[Int32] | None, tagged(2, since=0)] = None
    removing_replicas: Annotated[list[Int32] | None, tagged(3, since=0)] = None
    adding_replicas: Annotated[list[Int32] | None, tagged(4, since=0)] = None
    leader_recovery_state: Annotated[Int8, tagged(5, since=0)] = -1
    directories: Annotated[list[Uuid] | None, tagged(8, since=1)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, tagged(6, since=2)] = None
    last_known_elr: Annotated[list[Int32] | None, tagged(7, since=2)] = None


class FenceBrokerRecord(Message, api_key=7, versions=(0, 0), flexible=0):
    id: Int32 = 0
    epoch: Int64 = 0


class UnfenceBrokerRecord(Message, api_key=8, versions=(0, 0), flexible=0):
    id: Int32 = 0
    epoch: Int64 = 0


class RemoveTopicRecord(Message, api_key=9, versions=(0, 0), flexible=0):
    topic_id: Uuid = ZERO


class DelegationTokenRecord(Message, api_key=10, versions=(0, 0), flexible=0):
    owner: str = ""
    requester: str = ""
    renewers: list[str] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: str = ""


class UserScramCredentialRecord(Message, api_key=11, versions=(0, 0), flexible=0):
    name: str = ""
    mechanism: Int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(Message, api_key=12, versions=(0, 0), flexible=0):
    name: str = ""
    feature_level: Int16 = 0


class ClientQuotaRecord(Message, api_key=14, versions=(0, 0), flexible=0):
    entity: list[EntityData] = []
    key: str = ""
    value: float = 0.0
    remove: bool = False


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ProducerIdsRecord(Message, api_key=15, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(Message, api_key=17, versions=(0, 3), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, tagged(0, since=0)] = 0
    in_controlled_shutdown: Annotated[Int8, tagged(1, since=1)] = 0
    log_dirs: Annotated[list[Uuid], tagged(2, since=2)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tagged(3, since=3)] = None


class AccessControlEntryRecord(Message, api_key=18, versions=(0, 0), flexible=0):
    id: Uuid = ZERO
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 0
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(Message, api_key=19, versions=(0, 0), flexible=0):
    id: Uuid = ZERO


class NoOpRecord(Message, api_key=20, versions=(0, 0), flexible=0):
    pass


class ZkMigrationStateRecord(Message, api_key=21, versions=(0, 0), flexible=0):
    zk_migration_state: Int8 = 0


class RemoveUserScramCredentialRecord(Message, api_key=22, versions=(0, 0), flexible=0):
    name: str = ""
    mechanism: Int8 = 0


class BeginTransactionRecord(Message, api_key=23, versions=(0, 0), flexible=0):
    name: Annotated[str | None, tagged(0, since=0)] = None


class EndTransactionRecord(Message, api_key=24, versions=(0, 0), flexible=0):
    pass


class AbortTransactionRecord(Message, api_key=25, versions=(0, 0), flexible=0):
    reason: Annotated[str | None, tagged(0, since=0)] = None


class RemoveDelegationTokenRecord(Message, api_key=26, versions=(0, 0), flexible=0):
    token_id: str = ""


class RegisterControllerRecord(Message, api_key=27, versions=(0, 0), flexible=0):
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ControllerEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class ControllerFeature(Struct):
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ClearElrRecord(Message, api_key=28, versions=(0, 0), flexible=0):
    topic_name: str = ""


# By record type, as it is framed in the metadata log.
METADATA_RECORDS: Final[dict[int, type[Message]]] = {
    cls.API_KEY: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
