"""Requests by chance, most of them odd: wrong names, partitions, offsets, versions of everything, in any combination.

Given the same seed, two brokers are asked the same. Nothing here changes the cluster for later requests but Produce and
DeleteRecords, which are done when they are answered. A `TopicId` becomes the broker's own id of that topic.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from pylogd.protocol import batch
from pylogd.protocol.compression import codec_id

from support.transcript import Talker, versions

#: name -> (partitions, configs); all are written to before the first request.
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "odd-plain": (3, {}),
    "odd-small": (1, {"segment.bytes": "1048576", "max.message.bytes": "600"}),
    "odd-compacted": (2, {"cleanup.policy": "compact"}),
    "odd-stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "odd-recoded": (1, {"compression.type": "lz4"}),
    "odd-timely": (1, {"message.timestamp.before.max.ms": "600000", "message.timestamp.after.max.ms": "600000"}),
}
STAMP_MS = 1_700_000_000_000
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

Request = tuple[str, int, dict[str, Any]]
MAKERS: list[Callable[[Random], Request]] = []


@dataclass(frozen=True)
class TopicId:
    name: str


def maker(function: Callable[[Random], Request]) -> Callable[[Random], Request]:
    MAKERS.append(function)
    return function


def resolved(talker: Talker, value: Any) -> Any:
    if isinstance(value, TopicId):
        return talker.topic_id(value.name) if value.name in TOPICS else hashlib.md5(value.name.encode()).digest()
    if isinstance(value, dict):
        return {key: resolved(talker, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolved(talker, inner) for inner in value]
    return value


def prepare(talker: Talker, now_ms: int) -> None:
    """The topics, and ten records in batches of two in each first partition."""
    for name, (partitions, configs) in TOPICS.items():
        talker.create_topic(name, partitions, configs)
        base = now_ms if name == "odd-timely" else STAMP_MS
        for n in range(5):
            made = [batch.Record(i, base + 10 * n + i, b"key", b"value %d" % n, []) for i in range(2)]
            rows = [{"name": name, "partition_data": [{"index": 0, "records": bytes(batch.build_batch(made))}]}]
            answer = talker.ask_quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=rows)
            assert answer.responses[0].partition_responses[0].error_code == 0


def any_version(chance: Random, name: str) -> int:
    return chance.choice(versions(name))


def some(chance: Random, make: Callable[[], Any], most: int = 3) -> list[Any]:
    return [make() for _ in range(chance.choice([1, 1, 1, 2, most, 0]))]


def topic_name(chance: Random) -> str:
    wrong = ["odd-missing", "bad name", "", ".", "..", "x" * 249, "x" * 250, "odd_plain", "\u00fc"]
    return chance.choice(wrong) if chance.random() < 0.25 else chance.choice(list(TOPICS))


def measured_topic(chance: Random) -> str:
    """One that has the same size everywhere: no two compressors agree."""
    name = topic_name(chance)
    return "odd-plain" if name == "odd-recoded" else name


def partition_index(chance: Random) -> int:
    return chance.choice([0, 0, 0, 0, 1, 2, 3, -1, 99, 0x7FFFFFFF])


def offset(chance: Random) -> int:
    return chance.choice([0, 0, 1, 2, 3, 5, 7, 9, 10, 11, 12, 30, -1, -2, -3, 1 << 40, -(1 << 63), (1 << 63) - 1])


def epoch(chance: Random) -> int:
    return chance.choice([-1, -1, -1, 0, 0, 1, 7, -2, 0x7FFFFFFF])


def distinct(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Without repetitions: what a broker does about those is up to the collection it keeps them in."""
    return list({repr(row[key]): row for row in rows}.values())


@maker
def metadata(chance: Random) -> Request:
    version = any_version(chance, "Metadata")

    def row() -> dict[str, Any]:
        name = topic_name(chance)
        if version >= 12 and chance.random() < 0.4:
            return {"name": None, "topic_id": TopicId(name)}
        return {"name": name}

    rows = distinct(some(chance, row), "name")
    values = {"topics": rows, "allow_auto_topic_creation": False}
    values["include_cluster_authorized_operations"] = chance.random() < 0.3
    values["include_topic_authorized_operations"] = chance.random() < 0.3
    return "Metadata", version, values


@maker
def list_offsets(chance: Random) -> Request:
    def part() -> dict[str, Any]:
        stamps = [-1, -2, -3, -4, -5, -6, -7, 0, 1, STAMP_MS, STAMP_MS + 3, STAMP_MS + 100, STAMP_MS - 1, 1 << 62]
        row = {"partition_index": partition_index(chance), "timestamp": chance.choice(stamps)}
        return {**row, "current_leader_epoch": epoch(chance)}

    def topic() -> dict[str, Any]:
        name = topic_name(chance)
        # When records were appended, two brokers will not agree on.
        return {"name": "odd-plain" if name == "odd-stamped" else name, "partitions": some(chance, part)}

    rows = distinct(some(chance, topic), "name")
    replica = chance.choice([-1, -1, -1, -1, -2, -3, 1, 5])
    isolation = chance.choice([0, 0, 1, 1, 2, -1])
    return (
        "ListOffsets",
        any_version(chance, "ListOffsets"),
        {"replica_id": replica, "isolation_level": isolation, "topics": rows, "timeout_ms": 3000},
    )


@maker
def leader_epochs(chance: Random) -> Request:
    def part() -> dict[str, Any]:
        return {
            "partition": partition_index(chance),
            "current_leader_epoch": epoch(chance),
            "leader_epoch": epoch(chance),
        }

    rows = distinct(some(chance, lambda: {"topic": topic_name(chance), "partitions": some(chance, part)}), "topic")
    replica = chance.choice([-1, -2, 1])
    return "OffsetForLeaderEpoch", any_version(chance, "OffsetForLeaderEpoch"), {"replica_id": replica, "topics": rows}


@maker
def fetch(chance: Random) -> Request:
    version = any_version(chance, "Fetch")

    def part() -> dict[str, Any]:
        row: dict[str, Any] = {"partition": partition_index(chance), "fetch_offset": offset(chance)}
        row["partition_max_bytes"] = chance.choice([1 << 20, 1 << 20, 1, 0, 100, 150, -1])
        row["current_leader_epoch"] = epoch(chance)
        if chance.random() < 0.3:
            row["last_fetched_epoch"] = epoch(chance)
        return row

    def topic() -> dict[str, Any]:
        name = measured_topic(chance)
        parts = distinct(some(chance, part), "partition")
        return {"topic": name, "topic_id": TopicId(name), "partitions": parts}

    rows = distinct(some(chance, topic), "topic" if version < 13 else "topic_id")
    values: dict[str, Any] = {"topics": rows, "max_wait_ms": 0, "min_bytes": chance.choice([0, 1, 1 << 20])}
    values["max_bytes"] = chance.choice([1 << 20, 1 << 20, 1, 0])
    values["isolation_level"] = chance.choice([0, 1])
    values["session_id"] = chance.choice([0, 0, 0, 0, 123456])
    values["session_epoch"] = chance.choice([-1, -1, -1, 0, 1, -2])
    values["rack_id"] = chance.choice(["", "rack"])
    return "Fetch", version, values


def odd_batch(chance: Random) -> bytes:
    """One batch as a producer would send it, or with one thing wrong."""
    count = chance.choice([1, 1, 2, 3, 5])
    codec = chance.choice(["gzip", "snappy", "lz4", "zstd"]) if chance.random() < 0.3 else "none"
    stamps = [STAMP_MS, STAMP_MS + 5, -1, 0, 1 << 55]
    base = chance.choice(stamps) if chance.random() < 0.3 else STAMP_MS
    key = None if chance.random() < 0.1 else b"k%d" % chance.randrange(4)
    value = None if chance.random() < 0.1 else bytes([chance.randrange(256)]) * chance.choice([0, 1, 20, 300])
    headers = [("h", b"v"), ("h", None)] if chance.random() < 0.1 else []
    made = [batch.Record(n, base if base < 0 else base + n, key, value, headers) for n in range(count)]
    data = bytearray(batch.build_batch(made, compression=codec_id(codec)))
    if chance.random() < 0.3:
        # Attributes, counts, times: any field of the header, with the right checksum or a wrong one. Of records that
        # lie under the right checksum Kafka takes some that we refuse.
        places = [n for n in range(8, batch.HEADER_SIZE) if n not in range(43, 51)]  # ids of producers have no sign
        data[chance.choice(places)] ^= 1 << chance.randrange(8)
        if chance.random() < 0.7:
            struct.pack_into(">I", data, 17, batch.compute_crc(data))
    if chance.random() < 0.05:
        del data[chance.randrange(len(data)) :]
    return bytes(data)


@maker
def produce(chance: Random) -> Request:
    version = any_version(chance, "Produce")

    def part() -> dict[str, Any]:
        data = odd_batch(chance) if chance.random() < 0.95 else chance.choice([b"", b"garbage"])
        return {"index": partition_index(chance), "records": data}

    def topic() -> dict[str, Any]:
        name = topic_name(chance)
        return {"name": name, "topic_id": TopicId(name), "partition_data": distinct(some(chance, part), "index")}

    rows = distinct(some(chance, topic), "name" if version < 13 else "topic_id")
    acks = chance.choice([1, 1, -1, -1, -1, 2, -2])
    return "Produce", version, {"acks": acks, "timeout_ms": 5000, "topic_data": rows}


@maker
def delete_records(chance: Random) -> Request:
    def part() -> dict[str, Any]:
        return {"partition_index": partition_index(chance), "offset": chance.choice([0, 1, 2, 4, -1, -2, 1 << 40])}

    def topic() -> dict[str, Any]:
        return {"name": topic_name(chance), "partitions": distinct(some(chance, part), "partition_index")}

    rows = distinct(some(chance, topic), "name")
    return "DeleteRecords", any_version(chance, "DeleteRecords"), {"topics": rows, "timeout_ms": 5000}


CONFIGS = [
    ("retention.ms", ["1000", "-1", "-2", "x", "", " 5 ", None, "9223372036854775808", "1e3", "0x10"]),
    ("retention.bytes", ["-1", "1", "x"]),
    ("segment.bytes", ["1048576", "1048575", "2147483647", "2147483648", "-1"]),
    ("segment.ms", ["1", "0", "-1"]),
    ("cleanup.policy", ["compact", "delete", "compact,delete", "delete, compact", "", "compact,burn", ",", None]),
    ("compression.type", ["gzip", "none", "uncompressed", "producer", "GZIP", "zip"]),
    ("compression.gzip.level", ["-1", "0", "1", "9", "10"]),
    ("compression.zstd.level", ["22", "23", "-131072", "0"]),
    ("compression.lz4.level", ["1", "17", "18", "0"]),
    ("min.insync.replicas", ["1", "0", "2", "x"]),
    ("max.message.bytes", ["0", "-1", "100"]),
    ("message.timestamp.type", ["CreateTime", "LogAppendTime", "logappendtime"]),
    ("message.timestamp.before.max.ms", ["0", "-1"]),
    ("min.cleanable.dirty.ratio", ["0", "1", "1.1", "-0.1", "0.5", "x", "0.5f"]),
    ("min.compaction.lag.ms", ["0", "100", "-1"]),
    ("max.compaction.lag.ms", ["0", "1", "50"]),
    ("delete.retention.ms", ["0", "-1"]),
    ("file.delete.delay.ms", ["0", "-1"]),
    ("flush.messages", ["0", "1", "-1"]),
    ("flush.ms", ["0", "-1"]),
    ("index.interval.bytes", ["0", "-1"]),
    ("segment.index.bytes", ["3", "4", "1000"]),
    ("segment.jitter.ms", ["0", "-1"]),
    ("preallocate", ["true", "false", "TRUE", "yes", ""]),
    ("unclean.leader.election.enable", ["true", "1"]),
    ("leader.replication.throttled.replicas", ["*", "", "0:1", "0:1,1:2", "none", "a:b"]),
    ("remote.storage.enable", ["true", "false"]),
    ("local.retention.ms", ["-2", "-3", "5"]),
    ("message.format.version", ["3.0", "x"]),
    ("message.downconversion.enable", ["true"]),
    ("no.such.config", ["1", None]),
    ("", ["1"]),
]


def config_rows(chance: Random, most: int = 2) -> list[dict[str, Any]]:
    picked = chance.sample(CONFIGS, chance.choice([1, 1, 1, 0, most]))
    return [{"name": name, "value": chance.choice(values)} for name, values in picked]


@maker
def create_topics(chance: Random) -> Request:
    def assignment() -> dict[str, Any]:
        brokers = chance.choice([[1], [1], [1], [], [2], [1, 1], [1, 2], [-1]])
        return {"partition_index": chance.choice([0, 0, 1, 2, -1]), "broker_ids": brokers}

    def topic() -> dict[str, Any]:
        fresh = f"odd-new-{chance.randrange(5)}"
        row: dict[str, Any] = {"name": fresh if chance.random() < 0.7 else topic_name(chance)}
        row["configs"] = config_rows(chance)
        if chance.random() < 0.3:
            row["assignments"] = distinct(some(chance, assignment), "partition_index")
            row["num_partitions"], row["replication_factor"] = chance.choice([(-1, -1), (-1, -1), (1, -1), (-1, 1)])
        else:
            row["num_partitions"] = chance.choice([1, 1, 1, 3, -1, 0, -2, 10_001])
            row["replication_factor"] = chance.choice([1, 1, 1, -1, 0, 2, -2])
        return row

    values = {"topics": distinct(some(chance, topic), "name"), "timeout_ms": 10_000, "validate_only": True}
    return "CreateTopics", any_version(chance, "CreateTopics"), values


@maker
def create_partitions(chance: Random) -> Request:
    def topic() -> dict[str, Any]:
        rows = [{"broker_ids": chance.choice([[1], [1], [2], [], [1, 1], [1, 2]])} for _ in range(chance.randrange(3))]
        count = chance.choice([0, -1, 1, 2, 3, 4, 5, 9])
        return {"name": topic_name(chance), "count": count, "assignments": chance.choice([None, None, rows])}

    values = {"topics": distinct(some(chance, topic), "name"), "timeout_ms": 10_000, "validate_only": True}
    return "CreatePartitions", any_version(chance, "CreatePartitions"), values


@maker
def delete_topics(chance: Random) -> Request:
    version = any_version(chance, "DeleteTopics")
    wrong = ["odd-missing", "bad name", "", "odd-gone", "x" * 250]
    if version < 6:
        return "DeleteTopics", version, {"topic_names": chance.sample(wrong, 2), "timeout_ms": 10_000}
    rows = [
        chance.choice([{"name": name}, {"name": None, "topic_id": TopicId(name)}, {"name": None}])
        for name in chance.sample(wrong, 2)
    ]
    return "DeleteTopics", version, {"topics": rows, "timeout_ms": 10_000}


def resource(chance: Random) -> dict[str, Any]:
    kinds = [TOPIC] * 8 + [BROKER] * 3 + [CLIENT_METRICS, GROUP, 0, 1, 3, 5, 99, -1]
    kind = chance.choice(kinds)
    names = {
        TOPIC: lambda: topic_name(chance),
        BROKER: lambda: chance.choice(["1", "1", "", "2", "x", "-1"]),
    }
    name = names.get(kind, lambda: chance.choice(["some", "", "a b"]))()
    return {"resource_type": kind, "resource_name": name}


@maker
def describe_configs(chance: Random) -> Request:
    def row() -> dict[str, Any]:
        picked = [name for name, _ in chance.sample(CONFIGS, 3)]
        keys = chance.choice([None, [], picked, ["retention.ms"], ["log.retention.ms", "log.retention.hours"]])
        target = resource(chance)
        if target["resource_type"] == BROKER and not keys:
            keys = ["log.cleaner.threads", "num.partitions", "node.id", "min.insync.replicas"]
        return {**target, "configuration_keys": keys}

    values = {"resources": distinct(some(chance, row), "resource_name")}
    values |= {"include_synonyms": chance.random() < 0.5}
    return "DescribeConfigs", any_version(chance, "DescribeConfigs"), values


BROKER_CONFIGS = [
    ("log.cleaner.threads", ["1", "2", "0", "x", None]),
    ("log.retention.ms", ["1", "x", "-1"]),
    ("num.io.threads", ["8", "9", "100", "0"]),
    ("node.id", ["1", "2"]),
    ("background.threads", ["10", "1000", "1"]),
    ("max.connections", ["1", "-1"]),
    ("max.connections.per.ip.overrides", ["127.0.0.1:5", "x", "a:b"]),
    ("message.max.bytes", ["5", "-1"]),
    ("log.cleanup.policy", ["compact", "burn"]),
    ("listeners", ["PLAINTEXT://:1"]),
    ("follower.replication.throttled.rate", ["1", "-1"]),
    ("no.such", ["1"]),
]


def broker_or_topic_configs(chance: Random, target: dict[str, Any]) -> list[dict[str, Any]]:
    if target["resource_type"] != BROKER:
        return config_rows(chance)
    return [{"name": name, "value": chance.choice(values)} for name, values in chance.sample(BROKER_CONFIGS, 1)]


@maker
def incremental_alter_configs(chance: Random) -> Request:
    def row() -> dict[str, Any]:
        target = resource(chance)
        rows = broker_or_topic_configs(chance, target)
        for config in rows:
            # Not among them: operations that do not exist, which fail Kafka's whole request with an internal error.
            config["config_operation"] = chance.choice([0, 0, 0, 1, 2, 3])
        return {**target, "configs": rows}

    values = {"resources": distinct(some(chance, row), "resource_name"), "validate_only": True}
    return "IncrementalAlterConfigs", any_version(chance, "IncrementalAlterConfigs"), values


@maker
def alter_configs(chance: Random) -> Request:
    def row() -> dict[str, Any]:
        target = resource(chance)
        return {**target, "configs": broker_or_topic_configs(chance, target)}

    values = {"resources": distinct(some(chance, row), "resource_name"), "validate_only": True}
    return "AlterConfigs", any_version(chance, "AlterConfigs"), values


@maker
def describe_topic_partitions(chance: Random) -> Request:
    def name() -> str:
        return topic_name(chance) or "odd-plain"  # Kafka fails at a topic without a name

    rows = distinct([{"name": name()} for _ in range(chance.choice([1, 1, 2, 5]))], "name")
    cursor = {"topic_name": name(), "partition_index": chance.choice([0, 1, 2, 3, -1, 99])}
    limit = chance.choice([2000, 1, 2, 3, 0, -1])
    values = {"topics": rows, "response_partition_limit": limit, "cursor": chance.choice([None, cursor])}
    return "DescribeTopicPartitions", 0, values


@maker
def describe_log_dirs(chance: Random) -> Request:
    def topic() -> dict[str, Any]:
        return {"topic": measured_topic(chance), "partitions": some(chance, lambda: partition_index(chance))}

    return (
        "DescribeLogDirs",
        any_version(chance, "DescribeLogDirs"),
        {"topics": distinct([topic() for _ in range(chance.choice([1, 2]))], "topic")},
    )


@maker
def elect_leaders(chance: Random) -> Request:
    def topic() -> dict[str, Any]:
        return {"topic": topic_name(chance), "partitions": sorted({partition_index(chance) for _ in range(2)})}

    rows = chance.choice([None, distinct(some(chance, topic), "topic")])
    kind = chance.choice([0, 0, 1, 2, -1])
    values = {"election_type": kind, "topic_partitions": rows, "timeout_ms": 5000}
    return "ElectLeaders", any_version(chance, "ElectLeaders"), values


@maker
def update_features(chance: Random) -> Request:
    names = ["metadata.version", "group.version", "transaction.version", "share.version", "streams.version"]
    names += ["eligible.leader.replicas.version", "kraft.version", "no.such", ""]

    def row() -> dict[str, Any]:
        level = chance.choice([0, 1, 2, 3, 7, 20, 28, 29, 30, 31, 99, -1])
        kind = chance.choice([1, 1, 2, 3, 0, 4])
        return {"feature": chance.choice(names), "max_version_level": level, "upgrade_type": kind}

    values = {"feature_updates": distinct(some(chance, row), "feature"), "validate_only": True, "timeout_ms": 5000}
    return "UpdateFeatures", chance.choice([1, 2]), values


@maker
def describe_producers(chance: Random) -> Request:
    def topic() -> dict[str, Any]:
        return {"name": topic_name(chance), "partition_indexes": some(chance, lambda: partition_index(chance))}

    return "DescribeProducers", 0, {"topics": distinct(some(chance, topic), "name")}


@maker
def describe_cluster(chance: Random) -> Request:
    values = {
        "include_cluster_authorized_operations": chance.random() < 0.5,
        "endpoint_type": chance.choice([1, 1, 2, 0, 3, -1]),
        "include_fenced_brokers": chance.random() < 0.5,
    }
    return "DescribeCluster", any_version(chance, "DescribeCluster"), values


@maker
def list_config_resources(chance: Random) -> Request:
    kinds = chance.sample([0, 2, 4, 8, 16, 32, 99, -1], 2)
    return "ListConfigResources", 1, {"resource_types": kinds}


@maker
def init_producer_id(chance: Random) -> Request:
    """Only what is refused: ids that are given out differ."""
    values = chance.choice(
        [
            {"transactional_id": "", "transaction_timeout_ms": 1000},
            {"transactional_id": "t", "transaction_timeout_ms": 0},
            {"transactional_id": "t", "transaction_timeout_ms": 1 << 30},
            {"transactional_id": "t", "transaction_timeout_ms": 1000, "producer_id": 5, "producer_epoch": -1},
            {"transactional_id": "t", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": 5},
            {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": 5},
        ]
    )
    version = any_version(chance, "InitProducerId")
    if "producer_id" in values and version < 3:
        version = 3
    return "InitProducerId", version, values


@maker
def find_coordinator(chance: Random) -> Request:
    kind = chance.choice([3, 2, 9, -1])
    values = {"key": "a", "key_type": kind, "coordinator_keys": chance.choice([["a"], ["a", "b"], ["a:x:1", ""], []])}
    return "FindCoordinator", chance.choice([1, 2, 3, 4, 5, 6]), values


@maker
def reassignments(chance: Random) -> Request:
    def topic() -> dict[str, Any]:
        replicas = chance.choice([None, [], [2], [1, 1], [1, 2], [-1]])
        parts = [{"partition_index": partition_index(chance), "replicas": replicas}]
        return {"name": topic_name(chance), "partitions": parts}

    values = {"topics": distinct(some(chance, topic), "name"), "timeout_ms": 5000}
    return "AlterPartitionReassignments", any_version(chance, "AlterPartitionReassignments"), values


@maker
def list_reassignments(chance: Random) -> Request:
    def topic() -> dict[str, Any]:
        return {"name": topic_name(chance), "partition_indexes": [partition_index(chance)]}

    rows = chance.choice([None, distinct(some(chance, topic), "name")])
    return "ListPartitionReassignments", 0, {"topics": rows, "timeout_ms": 5000}
