"""Topics and settings for tests, through librdkafka's admin client: the shortest way to a prepared topic."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

TIMEOUT_S = 30


class Admin:
    def __init__(self, bootstrap: str) -> None:
        self.client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, replicas: int = 1, **config: object) -> str:
        """Config names with underscores for dots: segment_bytes=1024."""
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        new = NewTopic(topic, partitions, replicas, config=settings)
        self.client.create_topics([new], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
        return topic

    def delete(self, *topics: str) -> None:
        for future in self.client.delete_topics(list(topics), operation_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)

    def grow(self, topic: str, partitions: int) -> None:
        self.client.create_partitions([NewPartitions(topic, partitions)])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(self.client.list_topics(timeout=TIMEOUT_S).topics)

    def partitions(self, topic: str) -> int:
        return len(self.client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)

    def alter(self, topic: str, **config: object) -> None:
        """Sets topic configs; None takes the override away."""
        entries = [
            ConfigEntry(
                name.replace("_", "."),
                None if value is None else str(value),
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self.client.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self.client.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in entries.items()}

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        """The new log start offset."""
        answers = self.client.delete_records([TopicPartition(topic, partition, before)])
        return next(iter(answers.values())).result(TIMEOUT_S).low_watermark
