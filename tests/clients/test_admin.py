"""Admin operations of each library, and the exact error codes of what Kafka refuses."""

from __future__ import annotations

import asyncio

import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import NewPartitions as PyNewPartitions
from kafka.admin import NewTopic as PyNewTopic
from support.admin import TIMEOUT_S, Admin
from support.clients import Confluent, Message
from support.daemon import Daemon
from support.wait import eventually

confluent = Confluent()


def code_of(future) -> int:  # type: ignore[no-untyped-def]
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    return caught.value.args[0].code()


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(".", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("a" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("too-many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-policy", 1, 1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-key", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-assignment", 1, replica_assignment=[[9]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else "",
)
def test_create_topics_refusals(admin: Admin, new: NewTopic, code: int) -> None:
    for validate_only in (True, False):
        answer = admin.client.create_topics([new], validate_only=validate_only)
        assert code_of(answer[new.topic]) == code
    assert new.topic not in admin.topics()


def test_create_topics_answers_each_topic(admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, partitions=2)
    answers = admin.client.create_topics([NewTopic(topic_name, 1, 1), NewTopic(topic_name + ".second", 1, 1)])
    assert code_of(answers[topic_name]) == KafkaError.TOPIC_ALREADY_EXISTS
    answers[topic_name + ".second"].result(TIMEOUT_S)
    assert admin.partitions(topic_name) == 2


def test_names_that_differ_only_in_dot_and_underscore_collide(admin: Admin, topic_name: str) -> None:
    admin.create(topic_name + ".a")
    answer = admin.client.create_topics([NewTopic(topic_name + "_a", 1, 1)])
    assert code_of(answer[topic_name + "_a"]) == KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(admin: Admin, topic_name: str) -> None:
    admin.client.create_topics([NewTopic(topic_name, 3, 1)], validate_only=True)[topic_name].result(TIMEOUT_S)
    assert topic_name not in admin.topics()


def test_create_partitions(admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, partitions=2)
    grow = admin.client.create_partitions
    assert code_of(grow([NewPartitions(topic_name, 1)])[topic_name]) == KafkaError.INVALID_PARTITIONS
    assert code_of(grow([NewPartitions(topic_name, 2)])[topic_name]) == KafkaError.INVALID_PARTITIONS
    missing = topic_name + ".missing"
    assert code_of(grow([NewPartitions(missing, 2)])[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    grow([NewPartitions(topic_name, 5)], validate_only=True)[topic_name].result(TIMEOUT_S)
    assert admin.partitions(topic_name) == 2
    admin.grow(topic_name, 5)
    assert eventually(lambda: admin.partitions(topic_name) == 5)


def test_delete_topics(admin: Admin, topic_name: str) -> None:
    answers = admin.client.delete_topics([topic_name])
    assert code_of(answers[topic_name]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    admin.create(topic_name)
    admin.delete(topic_name)
    assert eventually(lambda: topic_name not in admin.topics())


def test_describe_configs_tells_sources(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, retention_ms=12345)
    resource = ConfigResource(ResourceType.TOPIC, topic_name)
    entries = admin.client.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert entries["retention.ms"].value == "12345"
    assert entries["retention.ms"].source == 1  # DYNAMIC_TOPIC_CONFIG
    assert entries["segment.bytes"].source == 5  # DEFAULT_CONFIG
    assert entries["max.message.bytes"].value == "12000000"
    assert entries["max.message.bytes"].source == 4  # STATIC_BROKER_CONFIG: message.max.bytes of server.properties
    broker_resource = ConfigResource(ResourceType.BROKER, str(broker.node_id))
    of_broker = admin.client.describe_configs([broker_resource])[broker_resource].result(TIMEOUT_S)
    assert of_broker["node.id"].value == str(broker.node_id)
    assert of_broker["message.max.bytes"].value == "12000000"
    missing = ConfigResource(ResourceType.TOPIC, topic_name + ".missing")
    assert code_of(admin.client.describe_configs([missing])[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_alter_configs_refusals(admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    with pytest.raises(KafkaException) as caught:
        admin.alter(topic_name, retention_ms="soon")
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    with pytest.raises(KafkaException) as caught:
        admin.alter(topic_name, no_such_key="1")
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    with pytest.raises(KafkaException) as caught:
        admin.alter(topic_name + ".missing", retention_ms="1")
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_delete_records_refusals(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    confluent.produce(broker.bootstrap, topic_name, [Message(b"x") for _ in range(3)])
    tp = TopicPartition(topic_name, 0, 4)
    answers = admin.client.delete_records([tp])
    assert code_of(next(iter(answers.values()))) == KafkaError.OFFSET_OUT_OF_RANGE


def test_describe_cluster_and_topics(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, partitions=3)
    cluster = admin.client.describe_cluster().result(TIMEOUT_S)
    assert [(n.id, n.host, n.port) for n in cluster.nodes] == [(broker.node_id, "127.0.0.1", broker.port)]
    assert cluster.cluster_id
    described = admin.client.describe_topics(TopicCollection([topic_name]))[topic_name].result(TIMEOUT_S)
    assert str(described.topic_id)
    assert [(p.id, p.leader.id, [r.id for r in p.replicas], [r.id for r in p.isr]) for p in described.partitions] == [
        (p, broker.node_id, [broker.node_id], [broker.node_id]) for p in range(3)
    ]


def test_list_offsets_special_timestamps(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, retention_ms=-1)
    stamps = [5000, 9000, 7000]
    confluent.produce(broker.bootstrap, topic_name, [Message(b"x", timestamp=t) for t in stamps])
    tp = TopicPartition(topic_name, 0)

    def ask(spec: OffsetSpec) -> tuple[int, int]:
        answer = admin.client.list_offsets({tp: spec})[tp].result(TIMEOUT_S)
        return answer.offset, answer.timestamp

    assert ask(OffsetSpec.earliest()) == (0, -1)
    assert ask(OffsetSpec.latest()) == (3, -1)
    assert ask(OffsetSpec.max_timestamp()) == (1, 9000)
    assert ask(OffsetSpec.for_timestamp(6000)) == (1, 9000)
    assert ask(OffsetSpec.for_timestamp(9001))[0] == -1


def test_elect_leaders_has_nothing_to_do(admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    tp = TopicPartition(topic_name, 0)
    answer = admin.client.elect_leaders(ElectionType.PREFERRED, [tp]).result(TIMEOUT_S)
    assert answer[tp].code() == KafkaError.ELECTION_NOT_NEEDED


def test_kafka_python_admin(broker: Daemon, topic_name: str) -> None:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        client.create_topics([PyNewTopic(topic_name, 2, 1, topic_configs={"retention.ms": "60000"})])
        assert topic_name in eventually(lambda: [t for t in client.list_topics() if t == topic_name])
        client.create_partitions({topic_name: PyNewPartitions(4)})
        described = eventually(
            lambda: [t for t in client.describe_topics([topic_name]) if len(t["partitions"]) == 4],
        )
        assert described[0]["error_code"] == 0
        assert client.describe_cluster()["controller_id"] == broker.node_id
        assert client.describe_log_dirs()
        assert client.describe_features()
        quorum = client.describe_metadata_quorum()
        assert quorum
        client.delete_topics([topic_name])
        assert eventually(lambda: topic_name not in client.list_topics())
    finally:
        client.close()


def test_aiokafka_admin(broker: Daemon, topic_name: str) -> None:
    async def run() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await client.start()
        try:
            await client.create_topics([AioNewTopic(topic_name, 2, 1)])
            assert topic_name in await client.list_topics()
            await client.create_partitions({topic_name: AioNewPartitions(3)})
            described = await client.describe_topics([topic_name])
            assert [t["error_code"] for t in described] == [0]
            cluster = await client.describe_cluster()
            assert [b["node_id"] for b in cluster["brokers"]] == [broker.node_id]
            await client.delete_topics([topic_name])
        finally:
            await client.close()

    asyncio.run(run())
