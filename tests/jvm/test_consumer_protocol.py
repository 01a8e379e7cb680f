"""The new consumer protocol (KIP-848) asked of us and of Apache Kafka in the same order: epochs, assignments, error
codes and the records written to __consumer_offsets must be the same.

Groups have one topic where the order of topics would matter: it follows their ids, which differ between two clusters.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pylogd.coordinators.groups.groups import GroupState
from pylogd.coordinators.shard.record_pairs import decode_record
from pylogd.protocol import batch
from pylogd.protocol.codec import encode
from pylogd.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from pylogd.protocol.schema import Struct, fields
from pylogd.protocol.uuids import ZERO
from support.daemon import Daemon
from support.transcript import Talker, beside_kafka, differences, talking
from support.wait import eventually

pytestmark = pytest.mark.jvm

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.max.size": "5",
}
#: A member that has nothing to say but that it is there.
NOTHING: dict[str, Any] = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with beside_kafka(tmp_path_factory.mktemp("consumer-protocol"), SETTINGS) as both:
        with talking(*both) as talkers:
            for talker in talkers:
                eventually(lambda talker=talker: _coordinator(talker), timeout_s=60)
        yield both


def _coordinator(talker: Talker) -> bool:
    """Is the coordinator there for every group?"""
    talker.ask_quietly("FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
    answer = talker.ask_quietly("ListGroups", 4)
    described = talker.ask_quietly("DescribeGroups", 5, groups=[f"g{n}" for n in range(40)])
    return answer.error_code == 0 and all(group.error_code == 0 for group in described.groups)


def create(talker: Talker, topic: str, partitions: int) -> bytes:
    new = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    talker.ask_quietly("CreateTopics", 7, topics=[new], timeout_ms=10_000)
    eventually(lambda: talker.topic_id(topic) != ZERO)
    # Coordinators hear of a topic on their own time: a group that is given its partitions knows it.
    scout = Group(talker, f"scout-{topic}")
    eventually(lambda: scout.join("scout", topic, quietly=True).assignment.topic_partitions or scout.leave("scout"))
    scout.leave("scout")
    return talker.topic_id(topic)


class Group:
    """One group seen through one talker."""

    def __init__(self, talker: Talker, group_id: str) -> None:
        self.talker = talker
        self.group_id = group_id

    def beat(self, member: str, epoch: int, *, quietly: bool = False, version: int = 1, **values: Any) -> Any:
        given = {"group_id": self.group_id, "member_id": member, "member_epoch": epoch, **NOTHING, **values}
        ask = self.talker.ask_quietly if quietly else self.talker.ask
        return ask("ConsumerGroupHeartbeat", version, **given)

    def join(self, member: str, *topics: str, **values: Any) -> Any:
        given = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
        return self.beat(member, 0, **{**given, **values})

    def leave(self, member: str) -> None:
        self.beat(member, -1, quietly=True)

    def own(self, member: str, epoch: int, topic: str, *partitions: int, **values: Any) -> Any:
        rows = [{"topic_id": self.talker.topic_id(topic), "partitions": list(partitions)}] if partitions else []
        return self.beat(member, epoch, topic_partitions=rows, **values)

    def describe(self) -> None:
        self.talker.ask("ConsumerGroupDescribe", 1, group_ids=[self.group_id])

    def commit(self, topic: str, partition: int, member: str, epoch: int, *, version: int = 9, **values: Any) -> Any:
        rows = [{"partition_index": partition, "committed_offset": 1, "committed_metadata": ""}]
        where = {"name": topic, "topic_id": self.talker.topic_id(topic), "partitions": rows}
        given = {"group_id": self.group_id, "member_id": member, "generation_id_or_member_epoch": epoch}
        return self.talker.ask("OffsetCommit", version, **given, topics=[where], **values)

    def fetch(self, topic: str, member: str | None, epoch: int) -> Any:
        where = {"name": topic, "partition_indexes": [0, 1]}
        group = {"group_id": self.group_id, "member_id": member, "member_epoch": epoch, "topics": [where]}
        return self.talker.ask("OffsetFetch", 9, groups=[group])

    # -- the classic protocol

    def classic_join(self, member: str, *topics: str, **values: Any) -> Any:
        owned = values.pop("owned", {})
        given = {
            "group_id": self.group_id,
            "member_id": member,
            "session_timeout_ms": 20_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(topics, owned)}],
        }
        return self.talker.ask_quietly("JoinGroup", values.pop("version", 3), **{**given, **values})

    def classic_sync(self, member: str, generation: int, **values: Any) -> Any:
        given = {"group_id": self.group_id, "member_id": member, "generation_id": generation}
        return self.talker.ask_quietly("SyncGroup", 5, **given, **values)

    def classic_heartbeat(self, member: str, generation: int) -> Any:
        given = {"group_id": self.group_id, "member_id": member, "generation_id": generation}
        return self.talker.ask("Heartbeat", 4, **given)


def subscription(topics: tuple[str, ...], owned: dict[str, list[int]]) -> bytes:
    rows = [TopicPartition(topic, indexes) for topic, indexes in owned.items()]
    return struct.pack(">h", 1) + encode(ConsumerProtocolSubscription(list(topics), None, rows), 1)


SCENARIOS: list[Callable[[Talker], None]] = []


def scenario(function: Callable[[Talker], None]) -> Callable[[Talker], None]:
    SCENARIOS.append(function)
    return function


@scenario
def two_members_share(talker: Talker) -> None:
    create(talker, "share", 4)
    group = Group(talker, "share")
    group.join("a", "share")
    group.own("a", 2, "share", 0, 1, 2, 3)
    group.join("b", "share")
    group.describe()
    group.beat("a", 2)
    group.beat("b", 3)
    group.describe()
    group.own("a", 2, "share", 0, 1)
    group.beat("b", 3)
    group.own("b", 3, "share", 2, 3)
    group.describe()
    group.commit("share", 0, "a", 3)
    group.commit("share", 0, "a", 2)
    group.commit("share", 2, "b", 2)
    group.commit("share", 0, "b", 2)
    group.commit("share", 0, "a", 4)
    group.commit("share", 0, "nobody", 3)
    group.commit("share", 0, "a", 3, version=8)
    group.commit("share", 0, "a", 3, version=10)
    group.commit("share", 0, "", -1)
    group.fetch("share", "a", 3)
    group.fetch("share", "a", 2)
    group.fetch("share", "nobody", 3)
    group.fetch("share", None, -1)
    group.beat("b", -1)
    group.beat("b", 3)
    group.describe()
    group.beat("a", 3)
    group.own("a", 4, "share", 0, 1, 2, 3)
    group.describe()
    for states, kinds in (([], []), (["Stable"], ["Consumer"]), (["empty"], ["consumer"]), ([], ["classic"])):
        answer = talker.ask_quietly("ListGroups", 5, states_filter=states, types_filter=kinds)
        found = [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]
        talker.note("listed", 5, [row for row in found if row[0] == "share"])
    talker.ask("DescribeGroups", 6, groups=["share"])
    talker.ask("DeleteGroups", 2, groups_names=["share"])
    group.beat("a", -1)
    group.describe()
    group.commit("share", 0, "", -1)
    talker.ask("OffsetDelete", 0, group_id="share", topics=[{"name": "share", "partitions": [{"partition_index": 0}]}])
    talker.ask("DeleteGroups", 2, groups_names=["share"])
    group.describe()


@scenario
def requests_that_make_no_sense(talker: Talker) -> None:
    create(talker, "sense", 2)
    group = Group(talker, "sense")
    group.beat("a", 1)
    group.beat("a", -1)
    group.beat("a", -2)
    group.beat("a", -3)
    group.beat("", 0)
    group.join("", "sense")
    group.join("a", "sense", rebalance_timeout_ms=-1)
    group.join("a", "sense", topic_partitions=None)
    group.join("a", "sense", subscribed_topic_names=None)
    group.join("a", "sense", instance_id="")
    group.join("a", "sense", rack_id=" ")
    group.join("a", "sense", server_assignor="magic")
    group.join("a", "sense", group_id="")
    group.join("a", subscribed_topic_names=None, subscribed_topic_regex="foo(")
    group.describe()
    group.join("a", "sense")
    group.beat("a", 9)
    group.beat("a", 1)
    group.own("a", 1, "sense", 0)
    group.beat("nobody", 2)
    group.beat("a", 2, instance_id="unknown")
    group.join("a", "sense")
    answer = group.join("", "sense", version=0, quietly=True)
    talker.note("own id", 0, (len(answer.member_id) in (22, 36), answer.member_epoch))


@scenario
def an_epoch_that_was_lost_on_the_way(talker: Talker) -> None:
    create(talker, "lost", 2)
    group = Group(talker, "lost")
    group.join("a", "lost")
    group.own("a", 2, "lost", 0, 1)
    group.join("b")
    group.beat("b", 3, subscribed_topic_names=["lost"])
    group.own("a", 2, "lost", 0)
    group.own("a", 2, "lost", 0)
    group.own("a", 2, "lost", 0, 1)
    group.beat("a", 3)


@scenario
def static_members_come_back(talker: Talker) -> None:
    create(talker, "static", 3)
    group = Group(talker, "static")
    group.join("a", "static", instance_id="i")
    group.join("b", "static", instance_id="k", rack_id="r")
    group.join("c", "static", instance_id="i")
    group.own("a", 2, "static", 0, 1, instance_id="i")
    group.own("b", 3, "static", instance_id="k")
    group.beat("x", -2, instance_id="i")
    group.beat("a", -2, instance_id="i")
    group.describe()
    group.beat("a", 3, instance_id="i")
    group.join("c", "static", instance_id="i")
    group.describe()
    group.beat("a", 3, instance_id="i")
    group.beat("a", -1, instance_id="i")
    group.beat("b", 3, instance_id="k")
    group.beat("b", -1, instance_id="k")
    group.describe()
    members = [{"member_id": "", "group_instance_id": "i"}, {"member_id": "", "group_instance_id": "none"}]
    talker.ask("LeaveGroup", 5, group_id="static", members=members)
    group.describe()


@scenario
def a_member_changes_its_mind(talker: Talker) -> None:
    create(talker, "mind-1", 2)
    create(talker, "mind-2", 3)
    group = Group(talker, "mind")
    group.join("a", "mind-1", server_assignor="range")
    group.describe()
    group.own("a", 2, "mind-1", 0, 1)
    group.beat("a", 2, subscribed_topic_names=["mind-2"])
    group.describe()
    group.own("a", 2, "mind-1")
    group.beat("a", 3, subscribed_topic_names=["mind-1", "mind-2", "mind-none"])
    group.join("b", "mind-1", "mind-2")
    group.describe()
    group.beat("a", 4, server_assignor="uniform")
    group.beat("a", 4, subscribed_topic_names=[])
    group.own("a", 4, "mind-1")
    group.describe()


@scenario
def topics_come_grow_and_go(talker: Talker) -> None:
    group = Group(talker, "topics")
    group.join("a", "topics-new")
    group.describe()
    create(talker, "topics-new", 1)
    _until_epoch(group, "a", 3)
    group.describe()
    rows = [{"name": "topics-new", "count": 3, "assignments": None}]
    talker.ask_quietly("CreatePartitions", 3, topics=rows, timeout_ms=10_000)
    _until_epoch(group, "a", 4)
    group.describe()
    talker.ask_quietly("DeleteTopics", 5, topic_names=["topics-new"], timeout_ms=10_000)
    _until_epoch(group, "a", 5)
    group.describe()


def _until_epoch(group: Group, member: str, epoch: int) -> None:
    """The member owns whatever it is given, until it is in an epoch."""
    at = {"epoch": epoch - 1, "owned": []}

    def there() -> bool:
        answer = group.beat(member, at["epoch"], topic_partitions=at["owned"], quietly=True)
        if answer.assignment is not None:
            at["owned"] = [
                {"topic_id": each.topic_id, "partitions": each.partitions}
                for each in answer.assignment.topic_partitions
            ]
        at["epoch"] = answer.member_epoch
        return bool(answer.member_epoch == epoch)

    eventually(there)


@scenario
def patterns(talker: Talker) -> None:
    create(talker, "pattern-a", 2)
    group = Group(talker, "patterns")
    by_regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "pattern-.*"}
    group.join("a", **by_regex)
    _until_epoch(group, "a", 2)
    group.describe()
    group.join("b", **by_regex)
    group.own("a", 2, "pattern-a", 0, 1)
    group.describe()
    group.own("a", 2, "pattern-a", 0)
    group.beat("b", 3)
    group.describe()
    group.beat("b", 3, subscribed_topic_regex="")
    group.describe()
    group.beat("b", 3, subscribed_topic_regex="[")
    group.beat("b", -1)
    group.beat("a", -1)
    group.describe()


@scenario
def a_group_has_a_size(talker: Talker) -> None:
    create(talker, "size", 6)
    group = Group(talker, "size")
    for member in "abcdef":
        group.join(member, "size")
    group.describe()


@scenario
def sessions_end(talker: Talker) -> None:
    create(talker, "sessions", 2)
    configs = [
        {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "300"},
        {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "100"},
    ]
    resource = {"resource_type": 32, "resource_name": "sessions", "configs": configs}
    answer = talker.ask_quietly("IncrementalAlterConfigs", 1, resources=[resource])
    talker.note("configs", 1, answer.responses[0].error_code)
    group = Group(talker, "sessions")
    eventually(lambda: group.join("x", "sessions", quietly=True).heartbeat_interval_ms == 100)
    eventually(lambda: group.beat("x", 2, quietly=True).error_code == 0)
    eventually(lambda: _members(group) == 0)
    group.describe()
    group.beat("x", 2)


def _members(group: Group) -> int:
    return len(group.talker.ask_quietly("ConsumerGroupDescribe", 1, group_ids=[group.group_id]).groups[0].members)


@scenario
def a_classic_group_is_upgraded_and_downgraded(talker: Talker) -> None:
    create(talker, "upgrade", 4)
    group = Group(talker, "upgrade")
    joined = group.classic_join("", "upgrade", version=3)
    member = joined.member_id
    assignment = struct.pack(">hih7siiiiii", 1, 1, 7, b"upgrade", 4, 0, 1, 2, 3, -1)
    given = [{"member_id": member, "assignment": assignment}]
    synced = group.classic_sync(member, 1, protocol_type="consumer", protocol_name="range", assignments=given)
    talker.note("synced", 5, (synced.error_code, bytes(synced.assignment)))
    group.commit("upgrade", 0, member, 1, version=8)
    group.join("n", "upgrade")
    _described(group, member)
    talker.ask("DescribeGroups", 6, groups=["upgrade"])
    group.classic_heartbeat(member, 1)
    group.commit("upgrade", 0, member, 1, version=8)
    group.commit("upgrade", 0, member, 2, version=8)
    joined = group.classic_join(member, "upgrade", owned={"upgrade": [0, 1, 2, 3]}, version=9)
    talker.note("joined", 9, (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader))
    synced = group.classic_sync(member, 1, protocol_type="consumer", protocol_name="range")
    talker.note("synced", 5, (synced.error_code, bytes(synced.assignment)))
    group.beat("n", 2)
    group.classic_heartbeat(member, 1)
    joined = group.classic_join(member, "upgrade", owned={"upgrade": [0, 1]}, version=9)
    talker.note("joined", 9, (joined.error_code, joined.generation_id))
    synced = group.classic_sync(member, 2, protocol_type="consumer", protocol_name="wrong")
    talker.note("synced", 5, synced.error_code)
    synced = group.classic_sync(member, 2, protocol_type="consumer", protocol_name="range")
    talker.note("synced", 5, (synced.error_code, bytes(synced.assignment)))
    group.classic_heartbeat(member, 2)
    group.classic_heartbeat("n", 2)
    group.beat("n", 2)
    _described(group, member)
    group.beat("n", -1)
    group.describe()
    group.classic_heartbeat(member, 3)
    group.classic_heartbeat(member, 2)
    joined = group.classic_join(member, "upgrade", version=9)
    talker.note("joined", 9, (joined.error_code, joined.generation_id, joined.leader == member))
    talker.ask("LeaveGroup", 5, group_id="upgrade", members=[{"member_id": "nobody"}])
    left = talker.ask_quietly("LeaveGroup", 5, group_id="upgrade", members=[{"member_id": member}])
    talker.note("left", 5, left.error_code)
    group.join("n", "upgrade")
    group.describe()
    group.beat("n", -1)
    joined = group.classic_join("", "upgrade", version=3)
    talker.note("joined", 3, (joined.error_code, joined.generation_id))
    described = talker.ask_quietly("DescribeGroups", 6, groups=["upgrade"])
    talker.note("described", 6, (described.groups[0].error_code, described.groups[0].group_state))


@scenario
def static_members_change_their_protocol(talker: Talker) -> None:
    create(talker, "swap", 4)
    group = Group(talker, "swap")
    group.join("a", "swap", instance_id="i")
    group.join("b", subscribed_topic_names=None, subscribed_topic_regex="swap", instance_id="k")
    _until_epoch_of(group, "b", "k")
    joined = group.classic_join("", "swap", group_instance_id="k", version=9)
    talker.note("joined", 9, (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader))
    member = joined.member_id
    _described(group, member)
    refused = group.classic_join("other", "swap", group_instance_id="k", version=9)
    talker.note("joined", 9, (refused.error_code, refused.generation_id))
    refused = group.classic_join("other", "swap", group_instance_id="none", version=9)
    talker.note("joined", 9, (refused.error_code, refused.generation_id))
    synced = group.classic_sync(member, joined.generation_id, group_instance_id="k", protocol_name="range")
    talker.note("synced", 5, (synced.error_code, bytes(synced.assignment)))
    group.classic_heartbeat("b", joined.generation_id)
    # The last one of the new protocol goes too: the group is a classic one again, and then not.
    joined = group.classic_join("", "swap", group_instance_id="i", version=9)
    talker.note("joined", 9, (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader))
    described = talker.ask_quietly("DescribeGroups", 6, groups=["swap"]).groups[0]
    talker.note("described", 6, (described.error_code, described.group_state, len(described.members)))
    answer = group.join("n", "swap", instance_id="i", quietly=True)
    talker.note("upgraded", 1, (answer.error_code, answer.member_epoch))


def _until_epoch_of(group: Group, member: str, instance: str) -> None:
    """Until its pattern is resolved."""
    eventually(lambda: group.beat(member, 2, instance_id=instance, quietly=True).member_epoch == 3)


@scenario
def names_and_a_pattern(talker: Talker) -> None:
    create(talker, "both-1", 1)
    create(talker, "both-2", 1)
    group = Group(talker, "both")
    group.join("a", "both-1", subscribed_topic_regex="both-2")
    _until_epoch(group, "a", 3)
    group.describe()
    group.join("b", "both-1")
    group.describe()
    group.beat("a", 3, subscribed_topic_names=[])
    group.describe()


def _described(group: Group, member: str) -> None:
    """Without the random id of the classic member."""
    answer = group.talker.ask_quietly("ConsumerGroupDescribe", 1, group_ids=[group.group_id])
    for described in answer.groups:
        for each in described.members:
            each.member_id = "classic" if each.member_id == member else each.member_id
    group.talker.note("described", 1, group.talker.plain(answer, 1))


def written(daemon: Daemon, talker: Talker) -> dict[str, list[Any]]:
    """Every key of __consumer_offsets with the values that it has had. Moments are left out, topics go by name."""
    found: dict[str, list[Any]] = {}
    for path in sorted((daemon.data / "__consumer_offsets-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in batch.iter_headers(data):
            for record in batch.batch_records(data, header, position):
                decoded = decode_record(GroupState.classes, record.key, record.value)
                assert decoded is not None
                key, value = _bare(decoded.key, talker), _bare(decoded.value, talker)
                values = found.setdefault(f"{type(decoded.key).__name__} {key}", [])
                # When a static member is replaced, Kafka writes the target of its new self twice.
                if not key[0].startswith(UNSTEADY) and values[-1:] != [(value, decoded.version)]:
                    values.append((value, decoded.version))
    # Members with random ids are written in the order of those.
    return {key: sorted(set(map(repr, values))) if RANDOM in key else values for key, values in found.items()}


#: Groups that write as often as they have to wait.
UNSTEADY = ("scout", "sessions")


MOMENTS = {
    "timestamp",
    "assignment_timestamp",
    "commit_timestamp",
    "current_state_timestamp",
    "metadata_hash",
    "version",
}


def _bare(value: Any, talker: Talker) -> Any:
    if isinstance(value, Struct):
        inside = [getattr(value, field.name) for field in fields(type(value)) if field.name not in MOMENTS]
        return tuple(_bare(each, talker) for each in inside)
    if isinstance(value, list):
        return sorted((_bare(each, talker) for each in value), key=repr)
    if isinstance(value, bytes) and len(value) == 16:
        return talker.plain(value, 0)
    if isinstance(value, str) and RANDOM_ID.fullmatch(value):
        return RANDOM
    return value


RANDOM = "random id"
RANDOM_ID = re.compile(r"(raw-)?[0-9a-f-]{36}|[A-Za-z0-9_-]{22}")


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_answers_are_kafkas(pair: tuple[Daemon, Daemon], play: Callable[[Talker], None]) -> None:
    with talking(*pair) as (ours, theirs):
        play(ours)
        play(theirs)
        found = differences(ours, theirs)
        mine, kafkas = (written(daemon, talker) for daemon, talker in zip(pair, (ours, theirs), strict=True))
        for key in sorted(mine.keys() | kafkas.keys()):
            if mine.get(key) != kafkas.get(key):
                found.append(f"{key}: {mine.get(key)}, Kafka {kafkas.get(key)}")
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:60])
