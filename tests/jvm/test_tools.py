"""Kafka's own command-line tools against a broker, as an administrator would use them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.tools import Tools
from support.wait import eventually

pytestmark = pytest.mark.jvm


def test_topic_command(kafka_tools: Tools, topic_name: str) -> None:
    run = kafka_tools.run
    created = run("topics", "--create", "--topic", topic_name, "--partitions", "2", "--config", "retention.ms=60000")
    assert f"Created topic {topic_name}." in created
    assert topic_name in run("topics", "--list").splitlines()
    run("topics", "--create", "--if-not-exists", "--topic", topic_name)
    again = kafka_tools.try_("topics", "--create", "--topic", topic_name)
    assert again.code == 1
    assert "already exists" in again.stdout + again.stderr
    run("topics", "--alter", "--topic", topic_name, "--partitions", "4")

    def described() -> str | None:
        text = run("topics", "--describe", "--topic", topic_name)
        return text if "PartitionCount: 4" in text else None

    text = eventually(described)
    assert "ReplicationFactor: 1" in text
    assert "retention.ms=60000" in text
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", text)) == 4
    for view in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic_name not in run("topics", "--describe", view)
    run("topics", "--delete", "--topic", topic_name)
    assert eventually(lambda: topic_name not in run("topics", "--list").splitlines())


def test_config_command_on_a_topic(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    entity = ["--entity-type", "topics", "--entity-name", topic_name]
    kafka_tools.run("configs", *entity, "--alter", "--add-config", "retention.ms=12345,cleanup.policy=[compact,delete]")

    def described() -> str | None:
        text = kafka_tools.run("configs", *entity, "--describe")
        return text if "retention.ms=12345" in text else None

    text = eventually(described)
    assert "cleanup.policy=compact,delete" in text
    assert "DYNAMIC_TOPIC_CONFIG" in text
    everything = kafka_tools.run("configs", *entity, "--describe", "--all")
    assert "segment.bytes=1073741824" in everything
    kafka_tools.run("configs", *entity, "--alter", "--delete-config", "retention.ms")
    assert eventually(lambda: "retention.ms=12345" not in kafka_tools.run("configs", *entity, "--describe"))
    refused = kafka_tools.try_("configs", *entity, "--alter", "--add-config", "retention.ms=soon")
    assert refused.code == 1
    assert "InvalidConfigurationException" in refused.stdout + refused.stderr


def test_config_command_on_brokers(kafka_tools: Tools, broker: Daemon) -> None:
    one = ["--entity-type", "brokers", "--entity-name", str(broker.node_id)]
    every = ["--entity-type", "brokers", "--entity-default"]
    assert f"node.id={broker.node_id}" in kafka_tools.run("configs", *one, "--describe", "--all")
    kafka_tools.run("configs", *one, "--alter", "--add-config", "log.cleaner.io.max.bytes.per.second=123456789")
    assert eventually(lambda: "123456789" in kafka_tools.run("configs", *one, "--describe"))
    kafka_tools.run("configs", *every, "--alter", "--add-config", "log.retention.bytes=987654321")
    assert eventually(lambda: "987654321" in kafka_tools.run("configs", *every, "--describe"))
    kafka_tools.run("configs", *one, "--alter", "--delete-config", "log.cleaner.io.max.bytes.per.second")
    kafka_tools.run("configs", *every, "--alter", "--delete-config", "log.retention.bytes")
    assert eventually(lambda: "987654321" not in kafka_tools.run("configs", *every, "--describe"))
    static = kafka_tools.try_("configs", *one, "--alter", "--add-config", "node.id=7")
    assert static.code == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_console_producer_and_consumer(
    kafka_tools: Tools, admin: Admin, topic_name: str, codec: str, acks: str
) -> None:
    admin.create(topic_name, partitions=1)
    lines = [f"key{n}\tvälue {n}" for n in range(50)]
    idempotence = "true" if acks == "all" else "false"
    kafka_tools.run(
        "console-producer",
        *("--topic", topic_name, "--compression-codec", codec, "--request-required-acks", acks),
        *("--command-property", f"enable.idempotence={idempotence}"),
        *("--reader-property", "parse.key=true"),
        stdin="\n".join(lines) + "\n",
    )
    found = kafka_tools.consume(topic_name, 50, "--formatter-property", "print.key=true")
    assert found == lines
    tail = kafka_tools.consume(topic_name, 5, offset="45")
    assert tail == [f"välue {n}" for n in range(45, 50)]


def test_console_consumer_prints_what_was_sent(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    kafka_tools.run(
        "console-producer",
        *("--topic", topic_name, "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin="h1:v1,h2:NULL\tkey\tvalue\nh:1\tkey\tNULL\n",
    )
    show = ["key", "headers", "timestamp", "offset", "partition"]
    options = [part for name in show for part in ("--formatter-property", f"print.{name}=true")]
    found = kafka_tools.consume(topic_name, 2, *options)
    assert re.fullmatch(r"CreateTime:\d+\tPartition:0\tOffset:0\th1:v1,h2:null\tkey\tvalue", found[0])
    assert re.fullmatch(r"CreateTime:\d+\tPartition:0\tOffset:1\th:1\tkey\tnull", found[1])


def test_get_offset_shell(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, partitions=2)
    kafka_tools.run("console-producer", "--topic", topic_name, stdin="a\nb\nc\n")

    def total(when: str) -> int:
        lines = kafka_tools.run("get-offsets", "--topic", topic_name, "--time", when).splitlines()
        return sum(int(line.rsplit(":", 1)[1] or 0) for line in lines)

    assert total("latest") == 3
    assert total("earliest") == 0
    assert total("-1") == 3
    found = kafka_tools.run("get-offsets", "--topic-partitions", f"{topic_name}:0").splitlines()
    assert [line.rsplit(":", 1)[0] for line in found] == [f"{topic_name}:0"]
    for when in ("max-timestamp", "earliest-local", "latest-tiered"):
        kafka_tools.run("get-offsets", "--topic", topic_name, "--time", when)


def test_producer_performance(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, partitions=3)
    text = kafka_tools.run(
        "producer-perf",
        *("--topic", topic_name, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
    )
    assert "20000 records sent" in text
    ends = kafka_tools.run("get-offsets", "--topic", topic_name).splitlines()
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 20_000


def test_verifiable_producer(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    events = kafka_tools.verifiable_producer(topic_name, 500, "--acks", "-1")
    sent = [e for e in events if e["name"] == "producer_send_success"]
    assert [e["offset"] for e in sent] == list(range(500))
    assert kafka_tools.consume(topic_name, 500) == [str(n) for n in range(500)]


def test_delete_records(kafka_tools: Tools, admin: Admin, topic_name: str, tmp_path: Path) -> None:
    admin.create(topic_name)
    kafka_tools.run("console-producer", "--topic", topic_name, stdin="".join(f"{n}\n" for n in range(10)))
    plan = {"version": 1, "partitions": [{"topic": topic_name, "partition": 0, "offset": 6}]}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(plan))
    text = kafka_tools.run("delete-records", "--offset-json-file", str(file))
    assert "low_watermark: 6" in text
    assert kafka_tools.consume(topic_name, 4) == ["6", "7", "8", "9"]


def test_log_dirs(kafka_tools: Tools, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, partitions=2)
    kafka_tools.run("console-producer", "--topic", topic_name, stdin="a\nb\n")
    text = kafka_tools.run("log-dirs", "--describe", "--topic-list", topic_name)
    answer = json.loads(text[text.index("{") :])
    [node] = answer["brokers"]
    assert node["broker"] == broker.node_id
    [directory] = node["logDirs"]
    assert directory["logDir"] == str(broker.data)
    assert directory["error"] is None
    sizes = {p["partition"]: p["size"] for p in directory["partitions"]}
    assert set(sizes) == {f"{topic_name}-0", f"{topic_name}-1"}
    assert sum(sizes.values()) > 0
    assert {p["offsetLag"] for p in directory["partitions"]} == {0}


def test_broker_api_versions(kafka_tools: Tools, broker: Daemon) -> None:
    text = kafka_tools.run("broker-api-versions")
    assert f"127.0.0.1:{broker.port} (id: {broker.node_id}" in text
    assert "Produce(0): 0 to 13" in text
    assert "Fetch(1): 4 to 18" in text
    assert "ApiVersions(18): 0 to 4" in text


def test_features(kafka_tools: Tools) -> None:
    text = kafka_tools.run("features", "describe")
    rows = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", text))
    assert rows["metadata.version"].startswith("4.3")
    assert rows["kraft.version"] == "1"
    refused = kafka_tools.try_("features", "upgrade", "--feature", "no.such.feature=1")
    assert refused.code == 1


def test_metadata_quorum(kafka_tools: Tools, broker: Daemon) -> None:
    status = kafka_tools.run("metadata-quorum", "describe", "--status")
    assert re.search(rf"LeaderId:\s+{broker.node_id}\b", status)
    replication = kafka_tools.run("metadata-quorum", "describe", "--replication")
    assert "Leader" in replication


def test_cluster_id(kafka_tools: Tools) -> None:
    assert re.search(r"Cluster ID: [\w-]{22}", kafka_tools.run("cluster", "cluster-id"))


def test_leader_election(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    text = kafka_tools.run("leader-election", "--election-type", "preferred", "--topic", topic_name, "--partition", "0")
    assert "Valid replica already elected" in text


def test_describe_producers(kafka_tools: Tools, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    kafka_tools.run("console-producer", "--topic", topic_name, stdin="a\nb\n")
    text = kafka_tools.run("transactions", "describe-producers", "--topic", topic_name, "--partition", "0")
    header, row = (line.split() for line in text.splitlines()[:2])
    values = dict(zip(header, row, strict=True))
    assert values["ProducerEpoch"] == "0"
    assert values["LastSequence"] == "1"
