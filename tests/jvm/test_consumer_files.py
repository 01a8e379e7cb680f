"""Kafka's own tools on groups of the new consumer protocol, and Kafka itself on the files that hold them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pylogd.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pylogd.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pylogd.protocol.messages.find_coordinator import FindCoordinatorRequest
from support.admin import Admin
from support.clients import CLIENTS, Message
from support.daemon import Daemon
from support.jvm import ToolHost, compiled, tool_command
from support.members import Members
from support.rawclient import Client
from support.tools import Tools, assert_files_clean, dump, group_rows
from support.transcript import build
from support.wait import eventually

pytestmark = pytest.mark.jvm

NEW = {"group_protocol": "consumer"}


def fill(broker: Daemon, topic: str) -> None:
    """Two partitions with ten records each."""
    Admin(broker.bootstrap).create(topic, partitions=2, retention_ms=-1)
    values = [Message(str(n).encode(), partition=p) for n in range(10) for p in range(2)]
    CLIENTS[0].produce(broker.bootstrap, topic, values)


@pytest.fixture
def members(broker: Daemon, topic_name: str) -> Iterator[Members]:
    fill(broker, topic_name)
    made = Members(broker.bootstrap, f"group.{topic_name}", topic_name, 2)
    yield made
    made.stop()


def test_describe_a_live_group(kafka_tools: Tools, members: Members) -> None:
    member = members.start("confluent-kafka", group_instance_id="i", **NEW)
    members.wait_shared(member)
    members.wait_read(20)
    group, topic = members.group, members.topic

    def described(*options: str) -> str:
        return kafka_tools.run("consumer-groups", "--describe", "--group", group, *options)

    wanted = [(topic, "0", "10", "10", "0"), (topic, "1", "10", "10", "0")]
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    eventually(lambda: group_rows(described(), *columns) == wanted)
    verbose = described("--members", "--verbose")
    assert group_rows(verbose, "GROUP-INSTANCE-ID", "#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH") == [
        ("i", "2", "2", "2")
    ], verbose
    assert f"{topic}:0,1" in verbose.replace("(", ":").replace(")", "")
    assert group_rows(described("--state"), "STATE", "#MEMBERS") == [("Stable", "1")]
    assert "uniform" in described("--state")
    listed = kafka_tools.run("consumer-groups", "--list", "--state", "--type", "consumer")
    assert [group, "Consumer", "Stable"] in [line.split() for line in listed.splitlines()]
    for refused in (["--delete"], ["--reset-offsets", "--to-earliest", "--all-topics", "--execute"]):
        result = kafka_tools.try_("consumer-groups", *refused, "--group", group)
        assert "not empty" in result.stdout + result.stderr or "inactive" in result.stdout + result.stderr
    again = kafka_tools.try_("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert "subscribed" in again.stdout + again.stderr


def test_console_consumer_in_a_group(kafka_tools: Tools, members: Members) -> None:
    """The second goes on where the first one stopped."""
    options = ["--topic", members.topic, "--group", members.group, "--from-beginning", "--timeout-ms", "20000"]
    options += ["--command-property", "group.protocol=consumer"]
    first = kafka_tools.run("console-consumer", *options, "--max-messages", "8").split()
    second = kafka_tools.run("console-consumer", *options, "--max-messages", "12").split()
    assert len(first) == 8
    assert sorted(first + second, key=int) == sorted([str(n) for n in range(10)] * 2, key=int)
    text = kafka_tools.run("consumer-groups", "--describe", "--group", members.group)
    assert [row[1] for row in group_rows(text, "PARTITION", "CURRENT-OFFSET")] == ["10", "10"]
    assert "successful" in kafka_tools.run("consumer-groups", "--delete", "--group", members.group)
    assert members.group not in kafka_tools.run("consumer-groups", "--list").split()


def test_java_consumer_with_a_pattern(broker: Daemon, topic_name: str) -> None:
    """The broker matches it, as RE2 does."""
    for name in ("one", "two", "three"):
        fill(broker, f"{topic_name}-{name}")
    command = tool_command(
        "PatternConsumer", broker.bootstrap, f"pattern.{topic_name}", f"{topic_name}-(one|two)", "40"
    )
    command[command.index("-cp") + 1] += os.pathsep + str(compiled("PatternConsumer.java"))
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()
    assert sorted(found) == sorted(
        f"{topic_name}-{name}-{partition}@{offset}"
        for name in ("one", "two")
        for partition in range(2)
        for offset in range(10)
    )
    command[-2] = "broken("
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["InvalidRegularExpression"]


# -- the files

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "group.consumer.assignment.interval.ms": "0",
}


class Group:
    """One group, spoken to without a client library, so that it stands where a test leaves it."""

    def __init__(self, broker: Daemon, group_id: str) -> None:
        self.broker = broker
        self.group_id = group_id

    def beat(self, member: str, epoch: int, **values: Any) -> Any:
        given = {"group_id": self.group_id, "member_id": member, "member_epoch": epoch, **values}
        with Client(self.broker.port) as client:
            return client.ask(build(ConsumerGroupHeartbeatRequest, 1, given), 1)

    def join(self, member: str, **values: Any) -> Any:
        def joined() -> Any:
            answer = self.beat(member, 0, rebalance_timeout_ms=300_000, topic_partitions=[], **values)
            return answer if answer.error_code == 0 else None

        return eventually(joined)

    def describe(self) -> Any:
        def described() -> Any:
            with Client(self.broker.port) as client:
                answer = client.ask(ConsumerGroupDescribeRequest(group_ids=[self.group_id]), 1)
            return answer if answer.groups[0].error_code == 0 else None

        (group,) = eventually(described).groups
        members = [
            (
                member.member_id,
                member.member_epoch,
                member.instance_id,
                member.subscribed_topic_regex,
                [(part.topic_name, sorted(part.partitions)) for part in member.assignment.topic_partitions],
                [(part.topic_name, sorted(part.partitions)) for part in member.target_assignment.topic_partitions],
            )
            for member in group.members
        ]
        return group.group_epoch, group.assignment_epoch, group.group_state, sorted(members)


def use_groups(broker: Daemon) -> dict[str, Any]:
    """A group in the middle of a reconciliation, one with a pattern, one with a static member that is away."""
    fill(broker, "t")
    with Client(broker.port) as client:
        client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
    # Coordinators hear of a topic on their own time: a group that is given its partitions knows it.
    scout = Group(broker, "scout")

    def knows() -> bool:
        given = scout.join("s", subscribed_topic_names=["t"]).assignment.topic_partitions
        scout.beat("s", -1)
        return bool(given)

    eventually(knows)
    half = Group(broker, "half")
    first = half.join("a", subscribed_topic_names=["t"])
    assert first.member_epoch == 2
    half.join("b", subscribed_topic_names=["t"])
    half.beat("a", 2)
    pattern = Group(broker, "pattern")
    pattern.join("a", subscribed_topic_regex="t.*")
    eventually(lambda: pattern.beat("a", 1).member_epoch == 2)
    static = Group(broker, "static")
    static.join("a", subscribed_topic_names=["t"], instance_id="i")
    static.beat("a", -2, instance_id="i")
    gone = Group(broker, "gone")
    gone.join("a", subscribed_topic_names=["t"])
    gone.beat("a", -1)
    return {name: Group(broker, name).describe() for name in ("half", "pattern", "static", "gone")}


def check_groups(broker: Daemon, before: dict[str, Any]) -> None:
    assert {name: Group(broker, name).describe() for name in before} == before
    half = Group(broker, "half")
    topic_id = half.beat("a", 2).error_code == 0 and _topic_id(broker)
    # They go on where they stood: a has revoked, b gets its half.
    kept = [{"topic_id": topic_id, "partitions": [0]}]
    assert half.beat("a", 2, topic_partitions=kept).member_epoch == 3
    given = half.beat("b", 3).assignment.topic_partitions
    assert [(part.topic_id, list(part.partitions)) for part in given] == [(topic_id, [1])]
    back = Group(broker, "static").join("b", subscribed_topic_names=["t"], instance_id="i")
    assert sorted(back.assignment.topic_partitions[0].partitions) == [0, 1]


def _topic_id(broker: Daemon) -> bytes:
    from pylogd.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    with Client(broker.port) as client:
        found: bytes = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics[0].topic_id
    return found


def same_ports(daemon: Daemon) -> dict[str, str]:
    return {name: daemon.properties[name] for name in ("listeners", "controller.quorum.bootstrap.servers")}


def test_records_as_kafka_decodes_them(new_broker: Callable[..., Daemon], tools: ToolHost) -> None:
    broker = new_broker(SETTINGS)
    use_groups(broker)
    broker.stop()
    (segment,) = broker.data.glob("__consumer_offsets-0/*.log")
    text = dump(tools, segment, "--offsets-decoder", "--deep-iteration")
    found = [
        (json.loads(key), json.loads(value) if value not in ("", "<DELETE>") else None)
        for key, value in re.findall(r" key: (\{.*?\}) payload: (.*)$", text, re.MULTILINE)
    ]
    assert {key["type"] for key, _ in found} >= {"3", "5", "6", "7", "8", "16"}
    current = [
        value["data"]
        for key, value in found
        if key["type"] == "8" and key["data"] == {"groupId": "half", "memberId": "a"}
    ]
    assert [(each["memberEpoch"], each["state"]) for each in current] == [(2, 0), (2, 1)]
    assert [part["partitions"] for part in current[-1]["partitionsPendingRevocation"]] == [[1]]
    (regex,) = [value["data"] for key, value in found if key["type"] == "16"]
    assert regex["topics"] == ["t"]
    assert_files_clean(tools, broker.data)


@pytest.mark.parametrize("stop", ["cleanly", "killed"])
def test_kafka_takes_over_our_groups(
    new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon], stop: str
) -> None:
    ours = new_broker(SETTINGS)
    before = use_groups(ours)
    ours.stop() if stop == "cleanly" else ours.kill()
    copy = ours.directory / "copy"
    shutil.copytree(ours.data, copy)
    theirs = new_kafka({**SETTINGS, **same_ports(ours)}, data=copy)
    check_groups(theirs, before)
    assert "ERROR" not in theirs.log_text(), theirs.log_tail()


def test_we_take_over_kafkas_groups(new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon]) -> None:
    theirs = new_kafka(SETTINGS)
    before = use_groups(theirs)
    theirs.stop()
    ours = new_broker({**SETTINGS, **same_ports(theirs)}, data=theirs.data)
    check_groups(ours, before)
