"""The cluster image: the state that the records of the metadata log add up to.

The active controller replays a record when it is appended, a broker when it is committed; both with this code, and
recovery from a snapshot is the same replay again. Values inside (partitions, brokers) are immutable, so `freeze()` is a
shallow copy that a worker may walk while the original moves on.

Metadata transactions (KIP-868) span batches: records after BeginTransaction are held back and take effect together at
EndTransaction, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pylogd.metadata import feature_levels
from pylogd.metadata.access import AccessImage
from pylogd.metadata.delta import ImageDelta, Resource
from pylogd.metadata.registrations import (
    Broker,
    Partition,
    Topic,
    broker_from_record,
    merge_broker,
    merge_partition,
    partition_from_record,
    without_elr,
)
from pylogd.metadata.replay_error import ReplayError
from pylogd.protocol.messages import metadata_records as m
from pylogd.protocol.schema import Message

if TYPE_CHECKING:
    from pylogd.metadata.record_batches import Batch

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

QuotaEntity = tuple[tuple[str, str | None], ...]


class ClusterImage:
    """Topics, brokers, controllers, configs, features and the rest, as of `offset` (the last record replayed)."""

    __slots__ = (
        "_intern",
        "_tuples",
        "access",
        "brokers",
        "colliding",
        "configs",
        "controllers",
        "delta",
        "epoch",
        "features",
        "metadata_version",
        "next_producer_id",
        "offset",
        "pending",
        "quotas",
        "topics",
        "topics_by_id",
    )

    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1
        self.metadata_version = 0
        self.features: dict[str, int] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        #: names with '.' or '_', by the name with every '.' as '_': two of them share their metric names
        self.colliding: dict[str, dict[str, None]] = {}
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, m.RegisterControllerRecord] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        self.next_producer_id = -1
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.access = AccessImage()
        #: records of a metadata transaction in progress; None outside one
        self.pending: list[tuple[Message, int]] | None = None
        #: collects what replay changes, when somebody wants to know
        self.delta: ImageDelta | None = None
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._intern: Callable[[tuple[Any, ...]], tuple[Any, ...]] = self._share

    def _share(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._tuples.setdefault(value, value)

    # -- reading

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.partition(index)

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        """The overrides of one resource; not to be changed by the caller."""
        return self.configs.get((resource_type, name), {})

    def topic_config(self, name: str) -> dict[str, str]:
        return self.config(TOPIC_RESOURCE, name)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(feature_levels.ELR_VERSION, 0) >= 1

    @property
    def finalized_features(self) -> dict[str, int]:
        """Every finalized feature with metadata.version; empty before the log said which version it is."""
        if not self.metadata_version:
            return {}
        return {feature_levels.METADATA_VERSION: self.metadata_version, **self.features}

    def partitions(self) -> Iterator[tuple[Topic, int, Partition]]:
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                if partition is not None:
                    yield topic, index, partition

    # -- replay

    def replay_batch(self, batch: Batch) -> None:
        """Applies a batch of the metadata log. Control records are the quorum's own: only their place counts."""
        self.epoch = batch.epoch
        if batch.control:
            self.offset = batch.last_offset
        else:
            for offset, record in enumerate(batch.records, batch.base_offset):
                self.replay(record, offset)

    def replay(self, message: Message, offset: int) -> None:
        """Applies one record. Raises ReplayError when it cannot follow what was replayed before it."""
        if self.pending is None:
            self._apply(message, offset)
        elif isinstance(message, m.EndTransactionRecord):
            records, self.pending = self.pending, None
            for record, at in records:
                self._apply(record, at)
        elif isinstance(message, m.AbortTransactionRecord):
            self.pending = None
        elif isinstance(message, m.BeginTransactionRecord):
            raise ReplayError(f"a metadata transaction begins inside another at offset {offset}")
        else:
            self.pending.append((message, offset))
        self.offset = offset

    def _apply(self, message: Message, offset: int) -> None:
        handler = _REPLAYED_BY.get(type(message))
        if handler is None:
            name = type(message).__name__
            raise ReplayError(f"{name} at offset {offset} is not a metadata record this version knows")
        handler(self, message, offset)

    def _begin_transaction(self, record: m.BeginTransactionRecord, offset: int) -> None:
        self.pending = []

    def _end_transaction(self, record: m.EndTransactionRecord | m.AbortTransactionRecord, offset: int) -> None:
        raise ReplayError(f"{type(record).__name__} without a metadata transaction at offset {offset}")

    def _ignore(self, record: m.NoOpRecord | m.ZkMigrationStateRecord, offset: int) -> None:
        """Records that carry no state: NoOp, and the ZooKeeper migration state of an upgraded cluster."""

    def _topic(self, record: m.TopicRecord, offset: int) -> None:
        topic = Topic(record.name, bytes(record.topic_id))
        if record.name in self.topics:
            raise ReplayError(f"topic {record.name} exists and is created again at offset {offset}")
        self.topics[record.name] = topic
        self.topics_by_id[topic.id] = topic
        if "." in topic.name or "_" in topic.name:
            self.colliding.setdefault(topic.name.replace(".", "_"), {})[topic.name] = None
        if self.delta is not None:
            self.delta.new_topics.add(topic.id)

    def _topic_of(self, topic_id: bytes, offset: int) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise ReplayError(f"unknown topic id {topic_id.hex()} at offset {offset}")
        return topic

    def _partition(self, record: m.PartitionRecord, offset: int) -> None:
        topic = self._topic_of(bytes(record.topic_id), offset)
        partition = partition_from_record(record, self._intern)
        index = record.partition_id
        partitions = topic.partitions
        if index == len(partitions):
            partitions.append(partition)
        elif index >= 0:
            # Kafka's hash maps do not promise an order: leave room for the ones that come later.
            partitions.extend([None] * (index + 1 - len(partitions)))  # type: ignore[list-item]
            partitions[index] = partition
        else:
            raise ReplayError(f"partition {index} of {topic.name} at offset {offset}")
        if self.delta is not None:
            self.delta.partition(topic.id, index)

    def _partition_change(self, record: m.PartitionChangeRecord, offset: int) -> None:
        topic = self._topic_of(bytes(record.topic_id), offset)
        current = topic.partition(record.partition_id)
        if current is None:
            raise ReplayError(f"change of unknown partition {topic.name}-{record.partition_id} at offset {offset}")
        topic.partitions[record.partition_id] = merge_partition(current, record, self._intern)
        if self.delta is not None:
            self.delta.partition(topic.id, record.partition_id)

    def _remove_topic(self, record: m.RemoveTopicRecord, offset: int) -> None:
        topic = self._topic_of(bytes(record.topic_id), offset)
        del self.topics_by_id[topic.id]
        del self.topics[topic.name]
        unified = topic.name.replace(".", "_")
        names = self.colliding.get(unified)
        if names is not None:
            names.pop(topic.name, None)
            if not names:
                del self.colliding[unified]
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        if self.delta is not None:
            self.delta.topic_deleted(topic)

    def _clear_elr(self, record: m.ClearElrRecord, offset: int) -> None:
        if record.topic_name:
            named = self.topics.get(record.topic_name)
            if named is None:
                raise ReplayError(f"ELR of unknown topic {record.topic_name} cleared at offset {offset}")
            topics = [named]
        else:
            topics = list(self.topics.values())
        for topic in topics:
            for index, current in enumerate(topic.partitions):
                if current is not None and (current.elr or current.last_known_elr):
                    topic.partitions[index] = without_elr(current)
                    if self.delta is not None:
                        self.delta.partition(topic.id, index)

    def _config(self, record: m.ConfigRecord, offset: int) -> None:
        resource = (record.resource_type, record.resource_name)
        values = self.configs.get(resource)
        if record.value is None:
            if values is not None:
                values.pop(record.name, None)
                if not values:
                    del self.configs[resource]
        elif values is None:
            self.configs[resource] = {record.name: record.value}
        else:
            values[record.name] = record.value
        if self.delta is not None:
            self.delta.configs[resource] = None

    def _feature_level(self, record: m.FeatureLevelRecord, offset: int) -> None:
        if record.name == feature_levels.METADATA_VERSION:
            self.metadata_version = record.feature_level
        elif record.name == feature_levels.KRAFT_VERSION:
            return  # it lives in control records; Kafka 3.9 wrote it here by mistake
        elif record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level
        if self.delta is not None:
            self.delta.features = True

    def _register_broker(self, record: m.RegisterBrokerRecord, offset: int) -> None:
        self.brokers[record.broker_id] = broker_from_record(record, offset)
        if self.delta is not None:
            self.delta.brokers[record.broker_id] = None

    def _broker_of(self, broker_id: int, epoch: int, offset: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ReplayError(f"no broker {broker_id} with epoch {epoch} at offset {offset}")
        return broker

    def _change_broker(self, broker: Broker) -> None:
        self.brokers[broker.id] = broker
        if self.delta is not None:
            self.delta.brokers[broker.id] = None

    def _broker_change(self, record: m.BrokerRegistrationChangeRecord, offset: int) -> None:
        self._change_broker(merge_broker(self._broker_of(record.broker_id, record.broker_epoch, offset), record))

    def _fence_broker(self, record: m.FenceBrokerRecord, offset: int) -> None:
        self._change_broker(self._broker_of(record.id, record.epoch, offset).replace(fenced=True))

    def _unfence_broker(self, record: m.UnfenceBrokerRecord, offset: int) -> None:
        self._change_broker(self._broker_of(record.id, record.epoch, offset).replace(fenced=False))

    def _unregister_broker(self, record: m.UnregisterBrokerRecord, offset: int) -> None:
        self._broker_of(record.broker_id, record.broker_epoch, offset)
        del self.brokers[record.broker_id]
        if self.delta is not None:
            self.delta.brokers[record.broker_id] = None

    def _register_controller(self, record: m.RegisterControllerRecord, offset: int) -> None:
        self.controllers[record.controller_id] = record
        if self.delta is not None:
            self.delta.controllers = True

    def _producer_ids(self, record: m.ProducerIdsRecord, offset: int) -> None:
        self.next_producer_id = record.next_producer_id
        if self.delta is not None:
            self.delta.producer_ids = True

    def _client_quota(self, record: m.ClientQuotaRecord, offset: int) -> None:
        entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=lambda item: item[0]))
        if record.remove:
            values = self.quotas.get(entity)
            if values is not None:
                values.pop(record.key, None)
                if not values:
                    del self.quotas[entity]
        else:
            self.quotas.setdefault(entity, {})[record.key] = record.value
        if self.delta is not None:
            self.delta.quotas = True

    def _access(self, record: Message, offset: int) -> None:
        self.access.replay(record, offset)
        if self.delta is not None:
            self.delta.access = True

    # -- copies

    def freeze(self) -> ClusterImage:
        """A copy that no later replay touches; its partitions and brokers are shared with this image."""
        copy = ClusterImage()
        copy.offset, copy.epoch = self.offset, self.epoch
        copy.metadata_version = self.metadata_version
        copy.next_producer_id = self.next_producer_id
        copy.topics_by_id = {key: Topic(t.name, t.id, list(t.partitions)) for key, t in self.topics_by_id.items()}
        copy.topics = {topic.name: topic for topic in copy.topics_by_id.values()}
        copy.colliding = {name: dict(names) for name, names in self.colliding.items()}
        copy.configs = {resource: dict(values) for resource, values in self.configs.items()}
        copy.quotas = {entity: dict(values) for entity, values in self.quotas.items()}
        copy.features = dict(self.features)
        copy.brokers = dict(self.brokers)
        copy.controllers = dict(self.controllers)
        copy.access = self.access.freeze()
        copy.pending = None if self.pending is None else list(self.pending)
        return copy

    def __eq__(self, other: object) -> bool:
        """Same state, whatever offset it was reached at."""
        return isinstance(other, ClusterImage) and all(getattr(self, n) == getattr(other, n) for n in _STATE)

    __hash__ = None  # type: ignore[assignment]


_STATE = (
    "metadata_version",
    "features",
    "topics",
    "topics_by_id",
    "brokers",
    "controllers",
    "configs",
    "next_producer_id",
    "quotas",
    "access",
    "pending",
)

#: What replays each record, by its class.
_REPLAYED_BY: dict[type[Message], Callable[[ClusterImage, Any, int], None]] = {
    m.RegisterBrokerRecord: ClusterImage._register_broker,
    m.UnregisterBrokerRecord: ClusterImage._unregister_broker,
    m.TopicRecord: ClusterImage._topic,
    m.PartitionRecord: ClusterImage._partition,
    m.ConfigRecord: ClusterImage._config,
    m.PartitionChangeRecord: ClusterImage._partition_change,
    m.FenceBrokerRecord: ClusterImage._fence_broker,
    m.UnfenceBrokerRecord: ClusterImage._unfence_broker,
    m.RemoveTopicRecord: ClusterImage._remove_topic,
    m.DelegationTokenRecord: ClusterImage._access,
    m.UserScramCredentialRecord: ClusterImage._access,
    m.FeatureLevelRecord: ClusterImage._feature_level,
    m.ClientQuotaRecord: ClusterImage._client_quota,
    m.ProducerIdsRecord: ClusterImage._producer_ids,
    m.BrokerRegistrationChangeRecord: ClusterImage._broker_change,
    m.AccessControlEntryRecord: ClusterImage._access,
    m.RemoveAccessControlEntryRecord: ClusterImage._access,
    m.NoOpRecord: ClusterImage._ignore,
    m.ZkMigrationStateRecord: ClusterImage._ignore,
    m.RemoveUserScramCredentialRecord: ClusterImage._access,
    m.BeginTransactionRecord: ClusterImage._begin_transaction,
    m.EndTransactionRecord: ClusterImage._end_transaction,
    m.AbortTransactionRecord: ClusterImage._end_transaction,
    m.RemoveDelegationTokenRecord: ClusterImage._access,
    m.RegisterControllerRecord: ClusterImage._register_controller,
    m.ClearElrRecord: ClusterImage._clear_elr,
}
