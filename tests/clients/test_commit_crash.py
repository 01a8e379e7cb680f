"""kill -9 in the middle of offset commits: after the restart every commit that was acknowledged is there, and nothing
that was never sent.

Each commit goes to the next partition, so that a lost one is not hidden by its successor.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import confluent_kafka
import kafka
import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.scale import scaled
from support.wait import eventually

PARTITIONS = 60
KILLS = scaled(test=3, soak=30)


class Committer(threading.Thread):
    """Commits rising numbers one by one until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, group: str, start: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.sent = start
        #: partition -> the last number that was acknowledged
        self.acknowledged: dict[int, int] = {}
        self.stop = threading.Event()
        self.start()

    def commit(self, partition: int, offset: int) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        while not self.stop.is_set():
            self.sent += 1
            partition = self.sent % PARTITIONS
            if self.commit(partition, self.sent):
                self.acknowledged[partition] = self.sent
        self.close()


class Confluent(Committer):
    def __init__(self, bootstrap: str, topic: str, group: str, start: int) -> None:
        self.client = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )
        super().__init__(bootstrap, topic, group, start)

    def commit(self, partition: int, offset: int) -> bool:
        wanted = [confluent_kafka.TopicPartition(self.topic, partition, offset)]
        try:
            return all(each.error is None for each in self.client.commit(offsets=wanted, asynchronous=False))
        except confluent_kafka.KafkaException:
            return False

    def close(self) -> None:
        self.client.close()


class KafkaPython(Committer):
    def __init__(self, bootstrap: str, topic: str, group: str, start: int) -> None:
        self.client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        super().__init__(bootstrap, topic, group, start)

    def commit(self, partition: int, offset: int) -> bool:
        wanted = {kafka.TopicPartition(self.topic, partition): kafka.structs.OffsetAndMetadata(offset, "", -1)}
        try:
            self.client.commit(wanted)
        except kafka.errors.KafkaError:
            return False
        return True

    def close(self) -> None:
        self.client.close()


def committed(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """As somebody else sees it, once the coordinator is there again; -1001 where there is nothing."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    wanted = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]

    def found() -> dict[int, int] | None:
        try:
            return {each.partition: each.offset for each in consumer.committed(wanted, timeout=30)}
        except confluent_kafka.KafkaException:
            return None

    try:
        return eventually(found)
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", [Confluent, KafkaPython], ids=["confluent-kafka", "kafka-python"])
def test_acknowledged_commits_survive_kill_9(
    new_broker: Callable[..., Daemon], topic_name: str, kind: type[Committer]
) -> None:
    broker = new_broker({"offsets.topic.num.partitions": "4"})
    Admin(broker.bootstrap).create(topic_name, partitions=PARTITIONS)
    chance = random.Random(3)
    groups = [f"{topic_name}.{n}" for n in range(3)]
    acknowledged: dict[str, dict[int, int]] = {group: {} for group in groups}
    start = 0
    for _ in range(KILLS):
        committers = [kind(broker.bootstrap, topic_name, group, start) for group in groups]
        enough = chance.randrange(5, 100)
        eventually(lambda: all(len(each.acknowledged) >= min(enough, 40) for each in committers), timeout_s=90)  # noqa: B023
        broker.kill()
        for committer in committers:
            committer.stop.set()
        broker.start()
        for committer in committers:
            committer.join(90)
            assert not committer.is_alive()
            acknowledged[committer.group] |= committer.acknowledged
            start = max(start, committer.sent)
        for committer in committers:
            found = committed(broker.bootstrap, topic_name, committer.group)
            lost = {
                partition: (offset, found[partition])
                for partition, offset in acknowledged[committer.group].items()
                if found[partition] < offset
            }
            assert not lost, f"acknowledged, found: {lost}"
            assert max(found.values()) <= committer.sent
    assert sum(map(len, acknowledged.values())) > 20
