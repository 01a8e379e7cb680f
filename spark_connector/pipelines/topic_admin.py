"""Topics as Kafka's own admin client sees them: it is on Spark's class path with the source and sink."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pylogd.spark_connector.pipelines.job_settings import Job, Position, Topic
from pylogd.spark_connector.setup_errors import innermost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Offsets by partition number.
Offsets = dict[int, int]


class TopicError(Exception):
    """A topic that is not as a pipeline needs it; the message is for the user."""


class Topics:
    """One admin client, open until `close`."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        from py4j.protocol import Py4JJavaError

        self._jvm = spark._jvm
        properties = self._jvm.java.util.Properties()
        for name, value in ({"bootstrap.servers": job.bootstrap} | job.kafka).items():
            properties.setProperty(name, value)
        self._servers = job.bootstrap
        try:
            self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        except Py4JJavaError as error:
            raise TopicError(f"brokers at {self._servers}: {innermost(error).getMessage()}") from None
        self._spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec

    def close(self) -> None:
        self._admin.close()

    def create_missing(self, topics: dict[str, Topic]) -> list[str]:
        """The names of those that were not there."""
        if not topics:
            return []
        known = set(self._answer(self._admin.listTopics().names()))
        missing = [name for name in topics if name not in known]
        wanted = self._jvm.java.util.ArrayList()
        for name in missing:
            wanted.add(self._new(name, topics[name]))
        self._answer(self._admin.createTopics(wanted).all())
        return missing

    def _new(self, name: str, topic: Topic) -> Any:
        optional = self._jvm.java.util.Optional
        replicas = optional.empty()
        if topic.replicas > 0:
            # Python's int arrives as Integer, the constructor wants Short.
            replicas = optional.of(self._jvm.java.lang.Short.valueOf(str(topic.replicas)))
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, optional.of(topic.partitions), replicas)
        return new.configs(topic.config)

    def ends(self, topic: str) -> Offsets:
        """Where the next records will go; empty for a topic that is not there yet."""
        return self._list(topic, self._partitions(topic), self._spec.latest())

    def starts(self, topic: str) -> Offsets:
        """Where the oldest records are; empty for a topic that is not there yet."""
        return self._list(topic, self._partitions(topic), self._spec.earliest())

    def is_compacted(self, topic: str) -> bool:
        """Whether records may be taken away because a later one has their key."""
        config = self._jvm.org.apache.kafka.common.config
        resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
        settings = self._answer(self._admin.describeConfigs([resource]).all()).get(resource)
        return "compact" in str(settings.get("cleanup.policy").value())

    def resolve(self, topic: str, position: Position, others: str = "earliest") -> Offsets:
        """The offset of each partition at a position; of partitions that a dictionary does not name, at `others`."""
        partitions = self._partitions(topic)
        if not partitions:
            raise TopicError(f"there is no topic {topic!r}")
        if position == "latest":
            return self._list(topic, partitions, self._spec.latest())
        if isinstance(position, datetime):
            found = self._list(topic, partitions, self._spec.forTimestamp(int(position.timestamp() * 1000)))
            # -1: nothing is as young as that, so the position is the end.
            return self.ends(topic) | {number: offset for number, offset in found.items() if offset >= 0}
        offsets = self.starts(topic) if "earliest" in (position, others) else self.ends(topic)
        if isinstance(position, dict):
            unknown = [number for number in position if int(number) not in offsets]
            if unknown:
                raise TopicError(f"topic {topic!r} has no partition {', '.join(unknown)}")
            offsets |= {int(number): offset for number, offset in position.items()}
        return offsets

    def _partitions(self, topic: str) -> list[int]:
        try:
            description = self._answer(self._admin.describeTopics([topic]).allTopicNames()).get(topic)
        except _UnknownTopic:
            return []
        return list(range(description.partitions().size()))

    def _list(self, topic: str, partitions: list[int], spec: Any) -> Offsets:
        partition = self._jvm.org.apache.kafka.common.TopicPartition
        wanted = {partition(topic, number): spec for number in partitions}
        found = self._answer(self._admin.listOffsets(wanted).all())
        return {each.partition(): result.offset() for each, result in found.items()}

    def _answer(self, future: Any) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return future.get()
        except Py4JJavaError as error:
            text = str(error.java_exception.getMessage())
            if "UnknownTopicOrPartitionException" in text:
                raise _UnknownTopic from None
            raise TopicError(f"brokers at {self._servers}: {text.rpartition('.errors.')[2]}") from None


class _UnknownTopic(Exception):
    """The brokers do not know the topic."""
