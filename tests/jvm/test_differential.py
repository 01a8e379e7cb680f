"""Every API at every version, asked of us and of Apache Kafka in the same order: the answers must be the same.

This is where error codes, defaults, orderings and odd corners are compared; what must differ is left out in
`support.transcript`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pylogd.protocol import batch
from pylogd.protocol.uuids import ZERO
from support.daemon import Daemon
from support.transcript import Talker, beside_kafka, differences, talking, versions
from support.wait import eventually

pytestmark = pytest.mark.jvm

NOW = int(time.time() * 1000)
SETTINGS = {"auto.create.topics.enable": "false", "log.retention.ms": "-1", "num.partitions": "3"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with beside_kafka(tmp_path_factory.mktemp("differential"), SETTINGS) as both:
        yield both


SCENARIOS: list[Callable[[Talker], None]] = []


def scenario(function: Callable[[Talker], None]) -> Callable[[Talker], None]:
    SCENARIOS.append(function)
    return function


def records(*values: bytes | None, key: bytes | None = b"k", **options: Any) -> bytes:
    made = [batch.Record(n, NOW + n, key, value, []) for n, value in enumerate(values)]
    return bytes(batch.build_batch(made, **options))


def create(talker: Talker, topic: str, partitions: int = 1, **configs: str) -> bytes:
    """A topic, and its id once this broker serves it."""
    return talker.create_topic(topic, partitions, {name.replace("_", "."): value for name, value in configs.items()})


def produce(talker: Talker, version: int, topic: str, data: bytes | None, *, note: bool = True, **options: Any) -> Any:
    """To partition 0 unless told; by name or by id as the version has it."""
    part = {"index": options.pop("index", 0), "records": data}
    rows = [{"name": topic, "topic_id": talker.topic_id(topic), "partition_data": [part]}]
    ask = talker.ask if note else talker.ask_quietly
    return ask("Produce", version, **{"acks": -1, "timeout_ms": 5000, "topic_data": rows, **options})


#: SASL, access control, delegation tokens, quotas, SCRAM credentials, share groups, groups of Streams.
NOT_SERVED = {17, 29, 30, 31, 36, 38, 39, 40, 41, 48, 49, 50, 51, *range(76, 80), *range(83, 93)}


@scenario
def api_versions(talker: Talker) -> None:
    for version in versions("ApiVersions"):
        answer = talker.ask_quietly("ApiVersions", version, client_software_name="tests", client_software_version="1.0")
        talker.note("error", version, answer.error_code)
        supported = [(f.name, f.min_version, f.max_version) for f in answer.supported_features]
        talker.note("features", version, sorted(supported))
        finalized = [(f.name, f.max_version_level, f.min_version_level) for f in answer.finalized_features]
        talker.note("finalized", version, sorted(finalized))
        rows = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        talker.note("ranges", version, {key: row for key, row in rows.items() if key not in NOT_SERVED})
    bad = talker.ask_quietly("ApiVersions", 3, client_software_name="", client_software_version="???")
    talker.note("bad software name", 3, bad.error_code)


@scenario
def metadata(talker: Talker) -> None:
    create(talker, "metadata-a", 2)
    unknown_id = bytes(range(16))
    for version in versions("Metadata"):
        names = [{"name": "metadata-a"}, {"name": "metadata-missing"}, {"name": "bad name!"}]
        talker.ask("Metadata", version, topics=names, allow_auto_topic_creation=False)
        talker.ask("Metadata", version, topics=[], allow_auto_topic_creation=False)
        if version >= 8:
            talker.ask(
                "Metadata",
                version,
                topics=names[:1],
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
        if version >= 12:
            by_id = [{"name": None, "topic_id": talker.topic_id("metadata-a")}, {"name": None, "topic_id": unknown_id}]
            talker.ask("Metadata", version, topics=by_id, allow_auto_topic_creation=False)
    for version in (10, 11):
        talker.ask("Metadata", version, topics=[{"name": None, "topic_id": unknown_id}])


@scenario
def produce_versions(talker: Talker) -> None:
    create(talker, "produce-v", 1)
    for version in versions("Produce"):
        for acks in (1, -1):
            produce(talker, version, "produce-v", records(b"a", b"b"), acks=acks)


@scenario
def produce_refusals(talker: Talker) -> None:
    create(talker, "produce-plain", 1, max_message_bytes="1000")
    create(talker, "produce-compacted", 1, cleanup_policy="compact")
    good = records(b"a")
    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    bad_magic = bytearray(good)
    bad_magic[16] = 7
    control = records(b"a", control=True)
    # Not among them: null records, which Kafka never answers.
    cases: list[tuple[str, str, bytes, dict[str, Any]]] = [
        ("no such partition", "produce-plain", good, {"index": 5}),
        ("no such topic", "produce-missing", good, {}),
        ("too large", "produce-plain", records(b"x" * 2000), {}),
        ("corrupt", "produce-plain", bytes(corrupt), {}),
        ("magic 1", "produce-plain", bytes(old_magic), {}),
        ("magic 7", "produce-plain", bytes(bad_magic), {}),
        ("control", "produce-plain", control, {}),
        ("two batches", "produce-plain", good + good, {}),
        ("truncated", "produce-plain", good[:-3], {}),
        ("garbage", "produce-plain", b"garbage", {}),
        ("empty", "produce-plain", b"", {}),
        ("no key", "produce-compacted", records(b"a", key=None), {}),
        ("acks 2", "produce-plain", good, {"acks": 2}),
        ("sequence without epoch", "produce-plain", records(b"a", producer_id=5, base_sequence=0), {}),
        ("transactional bit alone", "produce-plain", records(b"a", transactional=True), {}),
    ]
    for version in (3, 7, 8, 9, 12, 13):
        for label, topic, data, options in cases:
            talker.note(label, version, "")
            produce(talker, version, topic, data, **options)
    # What stands at the end is what the good ones wrote.
    list_end(talker, "produce-plain")
    list_end(talker, "produce-compacted")


def list_end(talker: Talker, topic: str) -> None:
    row = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    talker.ask("ListOffsets", 9, replica_id=-1, topics=row)


def initialized(talker: Talker) -> Any:
    answer = talker.ask_quietly("InitProducerId", 5, transactional_id=None, transaction_timeout_ms=1000)
    return answer if answer.error_code == 0 else None


@scenario
def idempotent_produce(talker: Talker) -> None:
    create(talker, "idempotent", 1)
    # Kafka loads its first block of ids in the background.
    first = eventually(lambda: initialized(talker))
    talker.note("init", 5, (first.error_code, first.producer_epoch, first.producer_id >= 0))
    pid = first.producer_id

    def send(label: str, sequence: int, count: int = 2, epoch: int = 0, producer: int = pid) -> None:
        data = records(*[b"x"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        talker.note(label, 0, "")
        produce(talker, 11, "idempotent", data)

    send("first", 0)
    send("second", 2)
    send("duplicate of the first", 0)
    send("duplicate of the second", 2)
    send("gap", 10)
    send("overlap", 3, 3)
    for n in range(6):
        send("more", 4 + 2 * n)
    send("older than the last five", 0)
    send("fifth last", 6)
    send("epoch one, not from zero", 5, epoch=1)
    send("epoch one from zero", 0, epoch=1)
    send("old epoch", 16, epoch=0)
    send("unknown producer, not from zero", 7, producer=pid + 1000)
    for version in versions("InitProducerId"):
        answer = talker.ask_quietly("InitProducerId", version, transactional_id=None, transaction_timeout_ms=1000)
        talker.note("init", version, (answer.error_code, answer.producer_epoch))
    bumped = talker.ask_quietly(
        "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000, producer_id=pid, producer_epoch=3
    )
    talker.note("init again", 4, (bumped.error_code, bumped.producer_epoch, bumped.producer_id == pid))
    described = talker.ask_quietly("DescribeProducers", 0, topics=[{"name": "idempotent", "partition_indexes": [0, 7]}])
    for part in described.topics[0].partitions:
        rows = [
            (p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
            for p in part.active_producers
        ]
        talker.note("producers", 0, (part.partition_index, part.error_code, rows))
    talker.ask("DescribeProducers", 0, topics=[{"name": "idempotent-missing", "partition_indexes": [0]}])


def fetch_topic(talker: Talker, topic: str, offset: int, **options: Any) -> dict[str, Any]:
    part = {"partition": options.pop("partition", 0), "fetch_offset": offset, "partition_max_bytes": 1 << 20, **options}
    return {"topic": topic, "topic_id": talker.topic_id(topic), "partitions": [part]}


@scenario
def fetch(talker: Talker) -> None:
    create(talker, "fetch-a", 1)
    create(talker, "fetch-b", 2)
    for n in range(5):
        produce(talker, 9, "fetch-a", records(b"%d" % n, b"second"), note=False)
    for version in versions("Fetch"):

        def ask(*rows: dict[str, Any], version: int = version, **options: Any) -> Any:
            values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": list(rows), **options}
            return talker.ask("Fetch", version, **values)

        ask(fetch_topic(talker, "fetch-a", 0))
        ask(fetch_topic(talker, "fetch-a", 3), isolation_level=1)
        ask(fetch_topic(talker, "fetch-a", 10))
        ask(fetch_topic(talker, "fetch-a", 11))
        ask(fetch_topic(talker, "fetch-a", -1))
        ask(fetch_topic(talker, "fetch-a", 0, partition=9))
        ask(fetch_topic(talker, "fetch-missing", 0))
        ask(fetch_topic(talker, "fetch-a", 0, partition_max_bytes=1))
        ask(fetch_topic(talker, "fetch-a", 0), fetch_topic(talker, "fetch-b", 0, partition=1), max_bytes=1)
        ask(fetch_topic(talker, "fetch-a", 0, current_leader_epoch=0))
        ask(fetch_topic(talker, "fetch-a", 0, current_leader_epoch=5))
        if version >= 12:
            ask(fetch_topic(talker, "fetch-a", 4, last_fetched_epoch=0))
            ask(fetch_topic(talker, "fetch-a", 4, last_fetched_epoch=7))
        if version >= 13:
            row = fetch_topic(talker, "fetch-a", 0)
            ask({**row, "topic_id": bytes(range(16))})


@scenario
def fetch_sessions(talker: Talker) -> None:
    create(talker, "session-a", 1)
    create(talker, "session-b", 1)
    for version in (7, 12, 13, 17, 18):

        def ask(session: int, epoch: int, *rows: dict[str, Any], version: int = version, **options: Any) -> Any:
            values = {"max_wait_ms": 0, "min_bytes": 0, "topics": list(rows), **options}
            return talker.ask("Fetch", version, session_id=session, session_epoch=epoch, **values)

        opened = ask(0, 0, fetch_topic(talker, "session-a", 0), fetch_topic(talker, "session-b", 0))
        number = opened.session_id
        talker.note("opened", version, number != 0)
        ask(number, 1)
        end = produce(talker, 9, "session-a", records(b"news"), note=False).responses[0].partition_responses[0]
        ask(number, 2)
        ask(number, 3, fetch_topic(talker, "session-a", end.base_offset + 1))
        forgotten = {"topic": "session-b", "topic_id": talker.topic_id("session-b"), "partitions": [0]}
        produce(talker, 9, "session-b", records(b"unseen"), note=False)
        ask(number, 4, forgotten_topics_data=[forgotten])
        ask(number, 9)
        ask(12345, 1)
        ask(number, -1)
        ask(number, 5)


@scenario
def list_offsets(talker: Talker) -> None:
    create(talker, "offsets", 1)
    for stamp in (1000, 5000, 3000):
        made = [batch.Record(0, stamp, b"k", b"v", []), batch.Record(1, stamp + 1, b"k", b"v", [])]
        produce(talker, 9, "offsets", bytes(batch.build_batch(made)), note=False)
    for version in versions("ListOffsets"):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 1001, 4000, 5001, 5002):
            row = {"name": "offsets", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
            for isolation in (0, 1):
                talker.ask("ListOffsets", version, replica_id=-1, isolation_level=isolation, topics=[row])
        for part in (
            {"partition_index": 3, "timestamp": -1},
            {"partition_index": 0, "timestamp": -1, "current_leader_epoch": 0},
            {"partition_index": 0, "timestamp": -1, "current_leader_epoch": 4},
        ):
            talker.ask("ListOffsets", version, replica_id=-1, topics=[{"name": "offsets", "partitions": [part]}])
        talker.ask(
            "ListOffsets",
            version,
            replica_id=-1,
            topics=[{"name": "offsets-missing", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )
        twice = [{"partition_index": 0, "timestamp": -1}] * 2
        talker.ask("ListOffsets", version, replica_id=-1, topics=[{"name": "offsets", "partitions": twice}])


@scenario
def leader_epochs(talker: Talker) -> None:
    create(talker, "epochs", 1)
    produce(talker, 9, "epochs", records(b"a", b"b"), note=False)
    for version in versions("OffsetForLeaderEpoch"):
        for current, asked in ((-1, 0), (0, 0), (0, 5), (7, 0), (-1, -1)):
            part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
            row = {"topic": "epochs", "partitions": [part]}
            talker.ask("OffsetForLeaderEpoch", version, replica_id=-1, topics=[row])
        part = {"partition": 4, "current_leader_epoch": -1, "leader_epoch": 0}
        talker.ask("OffsetForLeaderEpoch", version, replica_id=-1, topics=[{"topic": "epochs", "partitions": [part]}])


@scenario
def create_topics(talker: Talker) -> None:
    def row(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
        return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}

    def config(name: str, value: str | None) -> dict[str, Any]:
        return {"configs": [{"name": name, "value": value}]}

    for version in versions("CreateTopics"):
        suffix = f"v{version}"
        for validate in (True, False):
            talker.ask(
                "CreateTopics",
                version,
                timeout_ms=10_000,
                validate_only=validate,
                topics=[
                    row(f"made-{suffix}", 2, **config("retention.ms", "77777")),
                    row(f"default-{suffix}", -1, -1),
                    row("bad name"),
                    row(""),
                    row(".."),
                    row("x" * 250),
                    row(f"zero-{suffix}", 0),
                    row(f"minus-{suffix}", -2),
                    row(f"replicas-{suffix}", 1, 3),
                    row(f"zero-replicas-{suffix}", 1, 0),
                    row(f"config-{suffix}", **config("no.such.config", "1")),
                    row(f"value-{suffix}", **config("retention.ms", "soon")),
                    row(f"range-{suffix}", **config("segment.bytes", "5")),
                    row(f"null-{suffix}", **config("retention.ms", None)),
                    row(f"policy-{suffix}", **config("cleanup.policy", "burn")),
                    row(f"assigned-{suffix}", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
                    row(f"gap-{suffix}", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
                    row(f"nobody-{suffix}", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [9]}]),
                    row(f"both-{suffix}", 1, 1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
                    row(f"doubled-{suffix}", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1, 1]}]),
                ],
            )
        talker.ask("CreateTopics", version, timeout_ms=10_000, topics=[row(f"made-{suffix}")])
        talker.ask("CreateTopics", version, timeout_ms=10_000, topics=[row("twice"), row("twice")])
        talker.ask("CreateTopics", version, timeout_ms=10_000, topics=[row("twice", 2), row("twice", 3)])


@scenario
def create_partitions(talker: Talker) -> None:
    for version in versions("CreatePartitions"):
        topic = f"grow-v{version}"
        create(talker, topic, 2)

        def ask(count: int, topic: str = topic, validate: bool = False, version: int = version, **more: Any) -> None:
            row = {"name": topic, "count": count, "assignments": None, **more}
            talker.ask("CreatePartitions", version, topics=[row], timeout_ms=10_000, validate_only=validate)

        for count in (1, 2, 0, -1, 3):
            ask(count, validate=True)
        ask(3)
        ask(2)
        ask(5, assignments=[{"broker_ids": [1]}])
        ask(5, assignments=[{"broker_ids": [1]}, {"broker_ids": [9]}])
        ask(5, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}])
        ask(4, topic="grow-missing")
        eventually(lambda topic=topic: talker.leads(topic, 5))
        rows = [{"name": topic, "count": 6, "assignments": None}] * 2
        talker.ask("CreatePartitions", version, topics=rows, timeout_ms=10_000)


@scenario
def delete_topics(talker: Talker) -> None:
    for version in versions("DeleteTopics"):
        topic = f"gone-v{version}"
        create(talker, topic)
        if version < 6:
            talker.ask("DeleteTopics", version, topic_names=[topic, "gone-missing"], timeout_ms=10_000)
            talker.ask("DeleteTopics", version, topic_names=[topic], timeout_ms=10_000)
            continue
        number = talker.topic_id(topic)
        both = [{"name": topic, "topic_id": number}]
        talker.ask("DeleteTopics", version, topics=both, timeout_ms=10_000)
        rows = [{"name": None, "topic_id": number}, {"name": None, "topic_id": bytes(range(16))}]
        talker.ask("DeleteTopics", version, topics=rows, timeout_ms=10_000)
        talker.ask("DeleteTopics", version, topics=[{"name": "gone-missing", "topic_id": ZERO}], timeout_ms=10_000)
        talker.ask("DeleteTopics", version, topics=[{"name": None, "topic_id": ZERO}], timeout_ms=10_000)


@scenario
def delete_records(talker: Talker) -> None:
    create(talker, "cut", 1)
    create(talker, "cut-compacted", 1, cleanup_policy="compact")
    produce(talker, 9, "cut", records(*[b"x"] * 10), note=False)
    for version in versions("DeleteRecords"):
        for topic, partition, offset in (
            ("cut", 0, 2 + version),
            ("cut", 0, 1),
            ("cut", 0, 11),
            ("cut", 0, -2),
            ("cut", 3, 0),
            ("cut-missing", 0, 0),
            ("cut-compacted", 0, 0),
        ):
            row = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
            talker.ask("DeleteRecords", version, topics=[row], timeout_ms=5000)
    talker.ask(
        "DeleteRecords",
        2,
        topics=[{"name": "cut", "partitions": [{"partition_index": 0, "offset": -1}]}],
        timeout_ms=5000,
    )


TOPIC, BROKER = 2, 4


@scenario
def describe_topic_configs(talker: Talker) -> None:
    create(talker, "described", 1, retention_ms="123456", cleanup_policy="compact,delete")
    for version in versions("DescribeConfigs"):
        for synonyms in (False, True):
            row = {"resource_type": TOPIC, "resource_name": "described", "configuration_keys": None}
            talker.ask("DescribeConfigs", version, resources=[row], include_synonyms=synonyms)
        some = {"resource_type": TOPIC, "resource_name": "described"}
        talker.ask(
            "DescribeConfigs",
            version,
            resources=[{**some, "configuration_keys": ["retention.ms", "no.such.config"]}],
        )
        wrong = [(TOPIC, "described-missing"), (TOPIC, "bad name"), (BROKER, "7"), (BROKER, "x"), (1, "x"), (99, "x")]
        for kind, name in wrong:
            row = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            talker.ask("DescribeConfigs", version, resources=[row])


OF_THE_INSTALLATION = {
    "advertised.listeners",
    "controller.quorum.bootstrap.servers",
    "listeners",
    "log.dirs",
    "log.dir",
    "metadata.log.dir",
}


@scenario
def describe_broker_configs(talker: Talker) -> None:
    row = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
    answer = talker.ask_quietly("DescribeConfigs", 4, resources=[row])
    for entry in sorted(answer.results[0].configs, key=lambda entry: str(entry.name)):
        if entry.name not in OF_THE_INSTALLATION and not entry.name.startswith("pylogd."):
            kind = [entry.read_only, entry.config_source, entry.is_sensitive, entry.config_type]
            talker.note(entry.name, 4, [entry.value, *kind])


@scenario
def alter_configs(talker: Talker) -> None:
    create(talker, "altered", 1, retention_ms="1111")

    def shown(label: str) -> None:
        keys = ["retention.ms", "segment.bytes", "cleanup.policy"]
        row = {"resource_type": TOPIC, "resource_name": "altered", "configuration_keys": keys}
        talker.note(label, 0, "")
        talker.ask("DescribeConfigs", 4, resources=[row])

    def settle(name: str, value: str) -> None:
        row = {"resource_type": TOPIC, "resource_name": "altered", "configuration_keys": [name]}

        def current() -> bool:
            answer = talker.ask_quietly("DescribeConfigs", 4, resources=[row])
            return bool(answer.results[0].configs[0].value == value)

        eventually(current)

    for version in versions("IncrementalAlterConfigs"):

        def change(*configs: tuple[str, int, str | None], version: int = version, **more: Any) -> None:
            rows = [{"name": name, "config_operation": kind, "value": value} for name, kind, value in configs]
            target = {"resource_type": TOPIC, "resource_name": "altered", **more.pop("target", {}), "configs": rows}
            talker.ask("IncrementalAlterConfigs", version, resources=[target], **more)

        change(("retention.ms", 0, f"22{version}"))
        settle("retention.ms", f"22{version}")
        change(("retention.ms", 0, "333"), validate_only=True)
        change(("cleanup.policy", 2, "compact"))
        settle("cleanup.policy", "delete,compact")
        change(("cleanup.policy", 3, "compact"))
        settle("cleanup.policy", "delete")
        change(("retention.ms", 2, "5"))
        change(("retention.ms", 0, None))
        change(("retention.ms", 0, "x"))
        change(("no.such", 0, "x"))
        change(("retention.ms", 0, "1"), ("retention.ms", 1, None))
        change(("retention.ms", 0, "1"), target={"resource_name": "altered-missing"})
        change(("retention.ms", 0, "1"), target={"resource_name": ""})
        change(("retention.ms", 0, "1"), target={"resource_type": 1})
        change(("log.retention.ms", 0, "-1"), target={"resource_type": BROKER, "resource_name": "9"})
        change(("node.id", 0, "4"), target={"resource_type": BROKER, "resource_name": "1"})
        change(("log.cleaner.threads", 0, "none"), target={"resource_type": BROKER, "resource_name": ""})
        shown("after the refusals")
    for version in versions("AlterConfigs"):
        rows = [{"name": "segment.bytes", "value": str(2_000_000 + version)}]
        target = {"resource_type": TOPIC, "resource_name": "altered", "configs": rows}
        talker.ask("AlterConfigs", version, resources=[target], validate_only=True)
        talker.ask("AlterConfigs", version, resources=[target])
        settle("segment.bytes", str(2_000_000 + version))
        shown("replaced as a whole")
        bad = {**target, "configs": [{"name": "segment.bytes", "value": "x"}]}
        talker.ask("AlterConfigs", version, resources=[bad])
        talker.ask("AlterConfigs", version, resources=[{**target, "resource_name": "altered-missing"}])


@scenario
def list_config_resources(talker: Talker) -> None:
    for version in versions("ListConfigResources"):
        answer = talker.ask_quietly("ListConfigResources", version, resource_types=[])
        kinds = sorted({r.resource_type for r in answer.config_resources})
        talker.note("kinds", version, (answer.error_code, kinds))
    for kinds in ([BROKER], [8], [99], [16, 32]):
        talker.ask("ListConfigResources", 1, resource_types=kinds)


@scenario
def log_dirs(talker: Talker) -> None:
    create(talker, "dirs", 2)
    produce(talker, 9, "dirs", records(b"a", b"b"), note=False)
    for version in versions("DescribeLogDirs"):
        talker.ask("DescribeLogDirs", version, topics=[{"topic": "dirs", "partitions": [0, 1]}])
        talker.ask("DescribeLogDirs", version, topics=[{"topic": "dirs", "partitions": [5]}])
        talker.ask("DescribeLogDirs", version, topics=[])
    [here] = talker.ask_quietly("DescribeLogDirs", 4, topics=[]).results
    for version in versions("AlterReplicaLogDirs"):
        for path in (here.log_dir, "/no/such/directory"):
            for name, indexes in (("dirs", [0, 1, 5]), ("dirs-missing", [0]), ("d" * 240, [0])):
                rows = [{"path": path, "topics": [{"name": name, "partitions": indexes}]}]
                answer = talker.ask_quietly("AlterReplicaLogDirs", version, dirs=rows)
                codes = sorted((p.partition_index, p.error_code) for t in answer.results for p in t.partitions)
                talker.note("moved", version, codes)


@scenario
def cluster(talker: Talker) -> None:
    for version in versions("DescribeCluster"):
        talker.ask("DescribeCluster", version)
        talker.ask("DescribeCluster", version, include_cluster_authorized_operations=True)
        talker.ask("DescribeCluster", version, endpoint_type=9)
    for version in versions("DescribeQuorum"):
        row = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        answer = talker.ask_quietly("DescribeQuorum", version, topics=[row])
        [part] = answer.topics[0].partitions
        voters = [v.replica_id for v in part.current_voters]
        talker.note("quorum", version, (answer.error_code, part.error_code, part.leader_id, voters))
        talker.note("observers", version, [o.replica_id for o in part.observers])
        talker.note("nodes", version, [(n.node_id, [x.name for x in n.listeners]) for n in answer.nodes])
        wrong = [{"topic_name": "other", "partitions": [{"partition_index": 0}]}]
        talker.ask("DescribeQuorum", version, topics=wrong)


@scenario
def topic_partitions(talker: Talker) -> None:
    create(talker, "pages-a", 3)
    create(talker, "pages-b", 2)
    rows = [{"name": "pages-b"}, {"name": "pages-a"}, {"name": "pages-missing"}]
    talker.ask("DescribeTopicPartitions", 0, topics=rows)
    talker.ask("DescribeTopicPartitions", 0, topics=rows, response_partition_limit=2)
    cursor = {"topic_name": "pages-a", "partition_index": 2}
    talker.ask("DescribeTopicPartitions", 0, topics=rows, response_partition_limit=2, cursor=cursor)
    talker.ask("DescribeTopicPartitions", 0, topics=[{"name": "bad name"}])
    beyond = {"topic_name": "pages-b", "partition_index": 9}
    talker.ask("DescribeTopicPartitions", 0, topics=rows, cursor=beyond)
    missing = {"topic_name": "pages-aa", "partition_index": 0}
    talker.ask("DescribeTopicPartitions", 0, topics=rows, cursor=missing)
    wrong = {"topic_name": "pages-a", "partition_index": -1}
    talker.ask("DescribeTopicPartitions", 0, topics=rows, cursor=wrong)


@scenario
def elections(talker: Talker) -> None:
    create(talker, "elected", 1)
    for version in versions("ElectLeaders"):
        for kind in (0, 1):
            rows = [{"topic": "elected", "partitions": [0]}]
            talker.ask("ElectLeaders", version, election_type=kind, topic_partitions=rows, timeout_ms=5000)
        rows = [{"topic": "elected", "partitions": [4]}, {"topic": "elected-missing", "partitions": [0]}]
        talker.ask("ElectLeaders", version, topic_partitions=rows, timeout_ms=5000)
        talker.ask("ElectLeaders", version, topic_partitions=None, timeout_ms=5000)


@scenario
def features(talker: Talker) -> None:
    for version in versions("UpdateFeatures"):

        def ask(feature: str, level: int, kind: int = 1, version: int = version, validate: bool = True) -> None:
            row = {"feature": feature, "max_version_level": level, "upgrade_type": kind}
            talker.ask("UpdateFeatures", version, feature_updates=[row], validate_only=validate, timeout_ms=5000)

        ask("no.such.feature", 1, validate=False)
        if version >= 1:
            ask("metadata.version", 30000)
            ask("metadata.version", 5)
            ask("metadata.version", 7, kind=2)
            ask("transaction.version", 2)
            ask("transaction.version", 99)
            ask("kraft.version", 1)
            ask("group.version", 0)
            ask("group.version", 1, kind=9)


@scenario
def telemetry(talker: Talker) -> None:
    talker.note("subscriptions", 0, "")
    answer = talker.ask_quietly("GetTelemetrySubscriptions", 0, client_instance_id=ZERO)
    talker.note("subscriptions", 0, answer and answer.error_code)


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda function: function.__name__)
def test_same_answers(pair: tuple[Daemon, Daemon], run: Callable[[Talker], None]) -> None:
    with talking(*pair) as (ours, theirs):
        run(theirs)
        run(ours)
        found = differences(ours, theirs)
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:60])
