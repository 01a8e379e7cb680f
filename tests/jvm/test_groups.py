"""Kafka's own tools on consumer groups, and Kafka itself on the files that hold them."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.admin import Admin
from support.clients import CLIENTS, Message
from support.daemon import HOST, Daemon
from support.jvm import ToolHost, tool_command
from support.members import Members
from support.tools import Tools, assert_files_clean, dump, group_rows
from support.wait import eventually

pytestmark = pytest.mark.jvm


@pytest.fixture
def topic(broker: Daemon, admin: Admin, topic_name: str) -> str:
    """Two partitions with ten records each, one second apart from the epoch on."""
    fill(broker, topic_name)
    return topic_name


def fill(broker: Daemon, topic: str, count: int = 10) -> None:
    Admin(broker.bootstrap).create(topic, partitions=2, retention_ms=-1)
    values = [Message(str(n).encode(), partition=p, timestamp=1000 * n) for n in range(count) for p in range(2)]
    CLIENTS[0].produce(broker.bootstrap, topic, values)


@pytest.fixture
def members(broker: Daemon, topic: str) -> Iterator[Members]:
    made = Members(broker.bootstrap, f"group.{topic}", topic, 2)
    yield made
    made.stop()


def test_describe_a_live_group(kafka_tools: Tools, members: Members) -> None:
    member = members.start("kafka-python")
    members.wait_shared(member)
    members.wait_read(20)
    group, topic = members.group, members.topic

    def described(*options: str) -> str:
        return kafka_tools.run("consumer-groups", "--describe", "--group", group, *options)

    wanted = [(topic, "0", "10", "10", "0"), (topic, "1", "10", "10", "0")]
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    eventually(lambda: group_rows(described(), *columns) == wanted)
    ((host, consumer, count),) = set(group_rows(described("--members"), "HOST", "CONSUMER-ID", "#PARTITIONS"))
    assert host == f"/{HOST}"
    assert re.fullmatch(r"kafka-python-[\d.]+-[0-9a-f-]{36}", consumer)
    assert count == "2"
    assert f"{topic}:0,1" in described("--members", "--verbose").replace("(", ":").replace(")", "")
    state = described("--state")
    assert "Stable" in state
    assert "range" in state
    listed = kafka_tools.run("consumer-groups", "--list", "--state", "--type", "classic")
    assert [group, "Classic", "Stable"] in [line.split() for line in listed.splitlines()]
    assert group not in kafka_tools.run("consumer-groups", "--list", "--state", "empty")
    assert [group, "Classic", "consumer"] in [line.split() for line in kafka_tools.run("groups", "--list").splitlines()]
    for refused in (["--delete"], ["--reset-offsets", "--to-earliest", "--all-topics", "--execute"]):
        result = kafka_tools.try_("consumer-groups", *refused, "--group", group)
        assert "not empty" in result.stdout + result.stderr or "inactive" in result.stdout + result.stderr
    again = kafka_tools.try_("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert "subscribed" in again.stdout + again.stderr
    member.leave()
    eventually(lambda: "Empty" in described("--state"))


def offsets_of(tools: Tools, group: str, topic: str) -> list[str]:
    text = tools.run("consumer-groups", "--describe", "--group", group)
    return [offset for _, offset in group_rows(text, "PARTITION", "CURRENT-OFFSET")]


def test_reset_offsets_in_every_mode(kafka_tools: Tools, topic: str, tmp_path: Path) -> None:
    group = f"reset.{topic}"

    def reset(*mode: str, act: str = "--execute") -> list[str]:
        args = ["--reset-offsets", "--group", group, "--topic", topic, *mode, act]
        text = kafka_tools.run("consumer-groups", *args)
        return [offset for _, offset in group_rows(text, "PARTITION", "NEW-OFFSET")]

    assert reset("--to-offset", "4") == ["4", "4"]
    assert offsets_of(kafka_tools, group, topic) == ["4", "4"]
    assert reset("--to-latest", act="--dry-run") == ["10", "10"]
    assert offsets_of(kafka_tools, group, topic) == ["4", "4"]
    assert reset("--shift-by", "3") == ["7", "7"]
    assert reset("--shift-by", "-2") == ["5", "5"]
    assert reset("--to-current") == ["5", "5"]
    assert reset("--to-earliest") == ["0", "0"]
    assert reset("--to-latest") == ["10", "10"]
    assert reset("--to-datetime", "1970-01-01T00:00:06.500") == ["7", "7"]
    assert reset("--by-duration", "PT1H") == ["10", "10"]
    plan = tmp_path / "plan.csv"
    with plan.open("w", newline="") as file:
        csv.writer(file).writerows([[topic, 0, 2], [topic, 1, 3]])
    assert reset("--from-file", str(plan)) == ["2", "3"]
    args = ["--reset-offsets", "--group", group, "--all-topics", "--to-current", "--export", "--dry-run"]
    exported = kafka_tools.run("consumer-groups", *args)
    assert sorted(line.replace('"', "") for line in exported.split() if topic in line) == [
        f"{topic},0,2",
        f"{topic},1,3",
    ]


def test_delete_groups_and_offsets(kafka_tools: Tools, topic: str) -> None:
    group = f"doomed.{topic}"
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute"]
    kafka_tools.run("consumer-groups", *reset)
    gone = kafka_tools.run("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "Successful" in gone
    assert offsets_of(kafka_tools, group, topic) == ["10"]
    assert "successful" in kafka_tools.run("consumer-groups", "--delete", "--group", group)
    assert group not in kafka_tools.run("consumer-groups", "--list").split()
    missing = kafka_tools.try_("consumer-groups", "--describe", "--group", group)
    assert f"{group} not found" in missing.stdout + missing.stderr


def test_offsets_go_with_their_topic(kafka_tools: Tools, admin: Admin, topic: str) -> None:
    group = f"orphan.{topic}"
    kafka_tools.run(
        "consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute"
    )
    admin.delete(topic)

    def described() -> str:
        result = kafka_tools.try_("consumer-groups", "--describe", "--group", group)
        return result.stdout + result.stderr

    eventually(lambda: topic not in described().replace(group, ""))


def test_console_consumer_in_a_group(kafka_tools: Tools, topic: str) -> None:
    """The second goes on where the first one stopped."""
    options = ["--topic", topic, "--group", f"console.{topic}", "--from-beginning", "--timeout-ms", "20000"]
    first = kafka_tools.run("console-consumer", *options, "--max-messages", "8").split()
    second = kafka_tools.run("console-consumer", *options, "--max-messages", "12").split()
    assert len(first) == 8
    assert sorted(first + second, key=int) == sorted([str(n) for n in range(10)] * 2, key=int)


def test_verifiable_consumer(broker: Daemon, topic: str) -> None:
    args = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", f"verifiable.{topic}"]
    args += ["--max-messages", "20", "--reset-policy", "earliest", "--verbose"]
    done = subprocess.run(
        tool_command("org.apache.kafka.tools.VerifiableConsumer", *args), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    names = [event["name"] for event in events]
    assert names[0] == "startup_complete"
    assert "shutdown_complete" in names[-2:]
    assigned = [event for event in events if event["name"] == "partitions_assigned"]
    assert {(p["topic"], p["partition"]) for p in assigned[0]["partitions"]} == {(topic, 0), (topic, 1)}
    read = {(e["partition"], e["offset"]) for e in events if e["name"] == "record_data"}
    assert read == {(partition, offset) for partition in range(2) for offset in range(10)}
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in commits)
    assert {(p["partition"], p["offset"]) for p in commits[-1]["offsets"]} <= {
        (p, n) for p in (0, 1) for n in range(11)
    }


# -- the files

SMALL = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}


def use_groups(broker: Daemon) -> None:
    """A group that is stable, one that became empty, one that never had members, and one that was deleted."""
    fill(broker, "t")
    with contextlib.ExitStack() as stack:
        kept = Members(
            broker.bootstrap, "stable", "t", 2, {"session.timeout.ms": "300000", "max.poll.interval.ms": "600000"}
        )
        stack.callback(kept.stop)
        gone = Members(broker.bootstrap, "empty", "t", 2)
        stack.callback(gone.stop)
        kept.wait_shared(kept.start("confluent-kafka", group_instance_id="i"))
        member = gone.start("kafka-python")
        gone.wait_shared(member)
        kept.wait_read(20)
        gone.wait_read(20)
        eventually(lambda: committed(broker, "stable") == [10, 10] == committed(broker, "empty"))
        member.leave()
    commit(broker, "simple", 4)
    commit(broker, "deleted", 4)
    admin = Admin(broker.bootstrap)
    admin.client.delete_consumer_groups(["deleted"])["deleted"].result(30)


def committed(broker: Daemon, group: str) -> list[int]:
    """-1001 where nothing is committed."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        return [
            each.offset
            for each in consumer.committed([confluent_kafka.TopicPartition("t", n) for n in range(2)], timeout=30)
        ]
    finally:
        consumer.close()


def commit(broker: Daemon, group: str, offset: int) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    offsets = [confluent_kafka.TopicPartition("t", n, offset) for n in range(2)]

    def done() -> bool:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return True

    eventually(done)
    consumer.close()


def check_groups(broker: Daemon, tools: Tools) -> None:
    eventually(lambda: "stable" in tools.run("consumer-groups", "--list").split())
    listed = tools.run("consumer-groups", "--list", "--state", "--type")
    found = {
        tuple(line.split()[i] for i in (0, -1)) for line in listed.splitlines() if line.split()[1:2] == ["Classic"]
    }
    assert found == {("stable", "Stable"), ("empty", "Empty"), ("simple", "Empty")}
    assert committed(broker, "stable") == committed(broker, "empty") == [10, 10]
    assert committed(broker, "simple") == [4, 4]
    assert committed(broker, "deleted") == [-1001, -1001]
    members = tools.run("consumer-groups", "--describe", "--group", "stable", "--members", "--verbose")
    ((instance, count),) = set(group_rows(members, "GROUP-INSTANCE-ID", "#PARTITIONS"))
    assert (instance, count) == ("i", "2")


def same_ports(daemon: Daemon) -> dict[str, str]:
    return {name: daemon.properties[name] for name in ("listeners", "controller.quorum.bootstrap.servers")}


def test_records_as_kafka_decodes_them(new_broker: Callable[..., Daemon], tools: ToolHost) -> None:
    broker = new_broker(SMALL)
    started_ms = int(time.time() * 1000)
    use_groups(broker)
    broker.stop()
    (segment,) = broker.data.glob("__consumer_offsets-0/*.log")
    text = dump(tools, segment, "--offsets-decoder", "--deep-iteration")
    found = [
        (json.loads(key), json.loads(value) if value not in ("", "<DELETE>") else None)
        for key, value in re.findall(r" key: (\{.*?\}) payload: (.*)$", text, re.MULTILINE)
    ]
    assert {key["type"] for key, _ in found} == {"1", "2"}
    offsets = [(key["data"], value) for key, value in found if key["type"] == "1"]
    simple = [value for key, value in offsets if key["group"] == "simple"]
    assert [value["version"] for value in simple] == ["4", "4"]
    assert simple[0]["data"]["offset"] == 4
    assert simple[0]["data"]["metadata"] == ""
    assert started_ms <= simple[0]["data"]["commitTimestamp"] <= time.time() * 1000
    assert [value for key, value in offsets if key["group"] == "deleted"][-2:] == [None, None]
    groups = [value for key, value in found if key["type"] == "2" and key["data"]["group"] == "stable"]
    assert {value["version"] for value in groups} == {"3"}
    assert groups[0]["data"]["members"] == []
    last = groups[-1]["data"]
    assert (last["protocolType"], last["protocol"], last["generation"]) == ("consumer", "range", 1)
    (member,) = last["members"]
    assert member["groupInstanceId"] == "i"
    assert member["memberId"] == last["leader"]
    assert member["sessionTimeout"] == 300_000
    assert_files_clean(tools, broker.data)


@pytest.mark.parametrize("stop", ["cleanly", "killed"])
def test_kafka_takes_over_our_groups(
    new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon], tools: ToolHost, stop: str
) -> None:
    ours = new_broker(SMALL)
    use_groups(ours)
    check_groups(ours, Tools(tools, ours.bootstrap))
    ours.stop() if stop == "cleanly" else ours.kill()
    copy = ours.directory / "copy"
    shutil.copytree(ours.data, copy)
    theirs = new_kafka({**SMALL, **same_ports(ours)}, data=copy)
    check_groups(theirs, Tools(tools, theirs.bootstrap))
    commit(theirs, "simple", 6)
    assert "ERROR" not in theirs.log_text(), theirs.log_tail()
    theirs.stop()
    back = new_broker({**SMALL, **same_ports(ours)}, data=copy)
    assert eventually(lambda: committed(back, "simple") == [6, 6])


def test_we_take_over_kafkas_groups(
    new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon], tools: ToolHost
) -> None:
    theirs = new_kafka(SMALL)
    use_groups(theirs)
    theirs.stop()
    ours = new_broker({**SMALL, **same_ports(theirs)}, data=theirs.data)
    check_groups(ours, Tools(tools, ours.bootstrap))
