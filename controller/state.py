"""What a decision may look at: the image as of the last appended record, the heartbeats, the settings.

Decisions are functions of this state and a request. They change nothing here: `replay` does, when what they decided has
been appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from pylogd.controller.heartbeats import Heartbeats
from pylogd.metadata import feature_levels
from pylogd.metadata.image import BROKER_RESOURCE, ClusterImage
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import NO_LEADER, Partition
from pylogd.protocol.errors import ErrorCode, KafkaError


class EffectiveConfig(NamedTuple):
    """One config of a topic as a new topic would have it; `source` is Kafka's ConfigSource id."""

    name: str
    value: str | None
    read_only: bool
    source: int
    sensitive: bool


class ConfigRules(Protocol):
    """What decisions need to know about configs; `pylogd.config` has the registry behind it."""

    def validate(self, resource_type: int, name: str, values: Mapping[str, str], current: Mapping[str, str]) -> None:
        """Raises KafkaError when `values`, the whole new config of a resource, is not acceptable."""

    def is_list(self, resource_type: int, key: str) -> bool: ...

    def default(self, resource_type: int, key: str) -> str | None: ...

    def topic_value(
        self, key: str, topic: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> str:
        """The value of a topic config: its own override, this node's, the cluster's, the static one, the default."""

    def topic_configs(
        self, topic: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[EffectiveConfig]:
        """All configs of a topic, by name."""


class Settings:
    """Static settings of the controller."""

    __slots__ = (
        "cluster_id",
        "delete_topic_enable",
        "elections_max",
        "node_id",
        "num_partitions",
        "replication_factor",
        "static_min_insync_replicas",
    )

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        *,
        num_partitions: int = 1,
        replication_factor: int = 1,
        delete_topic_enable: bool = True,
        elections_max: int = 1000,
        static_min_insync_replicas: int = 1,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.delete_topic_enable = delete_topic_enable
        self.elections_max = elections_max
        self.static_min_insync_replicas = static_min_insync_replicas


class ControllerState:
    """The arguments of every decision in one place."""

    __slots__ = (
        "check_kraft_upgrade",
        "heartbeats",
        "image",
        "kraft_version",
        "new_uuid",
        "next_offset",
        "rng",
        "rules",
        "settings",
        "voters",
    )

    def __init__(
        self,
        image: ClusterImage,
        heartbeats: Heartbeats,
        settings: Settings,
        rules: ConfigRules,
        rng: Random,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self.image = image
        self.heartbeats = heartbeats
        self.settings = settings
        self.rules = rules
        self.rng = rng
        self.new_uuid = new_uuid
        #: where the next record will land: the epoch of a broker is the offset at which it registers
        self.next_offset = 0
        self.kraft_version = 1
        #: raises KafkaError when the voters cannot go to this kraft.version
        self.check_kraft_upgrade: Callable[[int], None] = lambda version: None
        self.voters: tuple[int, ...] = (settings.node_id,)

    def replay(self, records: Sequence[VersionedRecord], base_offset: int) -> None:
        """Records were appended at `base_offset`."""
        image, heartbeats = self.image, self.heartbeats
        for offset, (message, _) in enumerate(records, base_offset):
            image.replay(message, offset)
            heartbeats.replay(message, image)

    def cluster_config(self) -> Mapping[str, str]:
        return self.image.config(BROKER_RESOURCE, "")

    def node_config(self) -> Mapping[str, str]:
        return self.image.config(BROKER_RESOURCE, str(self.settings.node_id))

    def topic_value(self, topic: str, key: str) -> str:
        return self.rules.topic_value(key, self.image.topic_config(topic), self.node_config(), self.cluster_config())

    def min_isr(self, topic: str) -> int:
        """min.insync.replicas of a topic, but never more than it has replicas."""
        configured = int(self.topic_value(topic, "min.insync.replicas"))
        known = self.image.topics.get(topic)
        return configured if known is None else min(configured, len(known.partitions[0].replicas))

    def may_elect_unclean(self, topic: str, partition: Partition, returned: int = NO_LEADER) -> bool:
        """Whether a leader that may lack records is better than none: if the topic says so, and nobody who has them all
        is likely to be back in a moment. Broker `returned` is back already."""
        awaited = self.heartbeats.awaited
        return self.unclean_election_enabled(topic) and not (
            awaited
            and any(r in awaited and r != returned for r in (*partition.isr, *partition.elr, *partition.last_known_elr))
        )

    def unclean_election_enabled(self, topic: str) -> bool:
        return self.topic_value(topic, "unclean.leader.election.enable").lower() == "true"

    def is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def check_broker_epoch(self, broker_id: int, epoch: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            )

    def finalized_features(self) -> dict[str, int]:
        return {**self.image.finalized_features, feature_levels.KRAFT_VERSION: self.kraft_version}


class Decision(NamedTuple):
    """Records to append and the reply to give once they are committed.

    An atomic decision is one batch: all of it or nothing survives a failover. kraft.version is no metadata record: the
    quorum itself writes it."""

    records: list[VersionedRecord]
    response: Any
    atomic: bool = True
    kraft_version: int | None = None


#: The most records one atomic decision may write.
RECORDS_MAX = 10_000


def client_message(error: KafkaError) -> str | None:
    """The message of an error as a response carries it: none when it only repeats what the code already says."""
    return None if error.message == error.code.message else error.message
