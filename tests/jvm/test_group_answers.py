"""The group APIs at every version, asked of us and of Apache Kafka in the same order: the answers must be the same."""

from __future__ import annotations

import itertools
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.protocol.uuids import ZERO
from support.daemon import Daemon
from support.jvm import ToolHost
from support.kafka import ApacheKafka
from support.rawclient import Client
from support.target import TARGET, TARGETS
from support.tools import dump
from support.transcript import BY_NAME, Talker, beside_kafka, build, differences, versions
from support.wait import eventually

pytestmark = pytest.mark.jvm

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offset.metadata.max.bytes": "20",
    "group.max.size": "3",
    "group.initial.rebalance.delay.ms": "0",
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27


class GroupTalker(Talker):
    """Member ids are random: they are numbered in the order in which they were given out."""

    def __init__(self, broker: Daemon) -> None:
        super().__init__(broker)
        self._members: dict[str, str] = {}
        self.others: list[Client] = []

    def plain(self, value: Any, version: int, field: str = "") -> Any:
        if isinstance(value, str):
            return UUID.sub(lambda found: self._members.setdefault(found[0], f"#{len(self._members) + 1}"), value)
        return super().plain(value, version, field)

    def park(self, name: str, version: int, **values: Any) -> Callable[[], Any]:
        """Ask on a connection of its own; what is returned waits for the answer and notes it."""
        client = Client(self.broker.port)
        self.others.append(client)
        client.send(build(BY_NAME[name].request, version, values), version)

        def answered() -> Any:
            answer = client.reply()
            self.note(f"parked {name}", version, self.plain(answer, version))
            return answer

        return answered


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with beside_kafka(tmp_path_factory.mktemp("groups"), SETTINGS) as both:
        yield both


Scenario = Callable[[GroupTalker], None]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def coordinated(talker: Talker, group: str = "g") -> None:
    """Until the coordinator is found and has loaded the group's partition."""

    def ready() -> bool:
        found = talker.ask_quietly("FindCoordinator", 4, key_type=0, coordinator_keys=[group]).coordinators[0]
        if found.error_code != 0:
            return False
        answer = talker.ask_quietly("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])
        return bool(answer.groups[0].error_code == 0)

    eventually(ready)


def join(group: str, member: str = "", **more: Any) -> dict[str, Any]:
    protocols = [
        {"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"},
        {"name": "other", "metadata": b"o"},
    ]
    return {
        "group_id": group,
        "member_id": member,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": protocols,
        **more,
    }


def sync(group: str, member: str, generation: int, assign: bytes | None = None, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "generation_id": generation,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [] if assign is None else [{"member_id": member, "assignment": assign}],
        **more,
    }


def alone(talker: GroupTalker, group: str, version: int = 9, **more: Any) -> str:
    """A group of one, stable in generation 1; its member."""
    answer = talker.ask("JoinGroup", version, **join(group, **more))
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = talker.ask("JoinGroup", version, **join(group, answer.member_id, **more))
    talker.ask("SyncGroup", min(version, 5), **sync(group, answer.member_id, 1, b"mine"))
    member: str = answer.member_id
    return member


@scenario
def finding(talker: GroupTalker) -> None:
    coordinated(talker)
    for version in versions("FindCoordinator"):
        for kind in (0, 2, 3, -1) if version else (0,):
            for keys in (["a", "b", ""], ["g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:nonsense:0", "::"]):
                talker.ask("FindCoordinator", version, key=keys[0], key_type=kind, coordinator_keys=keys)


@scenario
def joining(talker: GroupTalker) -> None:
    coordinated(talker)
    for version in versions("JoinGroup"):
        group = f"join-{version}"
        member = alone(talker, group, version)
        talker.ask("JoinGroup", version, **join(group, member))
        for wrong in (
            join(group, "nobody"),
            join("no group", "nobody"),
            join("", member),
            join(group, member, session_timeout_ms=1),
            join(group, member, session_timeout_ms=10_000_000),
            join(group, member, protocol_type="connect"),
            join(group, member, protocols=[{"name": "unknown", "metadata": b""}]),
            join(group, member, protocols=[]),
            join(f"new-{version}", protocols=[]),
            join(f"new-{version}", protocol_type=""),
        ):
            talker.ask("JoinGroup", version, **wrong)
        if version >= 5:
            talker.ask("JoinGroup", version, **join(group, member, group_instance_id="unknown"))
        talker.ask("DescribeGroups", 6, groups=[group, f"new-{version}", "no group"])


@scenario
def syncing(talker: GroupTalker) -> None:
    coordinated(talker)
    for version in versions("SyncGroup"):
        group = f"sync-{version}"
        member = alone(talker, group)
        for request in (
            sync(group, member, 1),
            sync(group, member, 0),
            sync(group, member, 2),
            sync(group, "nobody", 1),
            sync("no group", member, 1),
            sync("", member, 1),
            sync(group, member, 1, protocol_type="connect"),
            sync(group, member, 1, protocol_name="other"),
            sync(group, member, 1, protocol_name=None),
            sync(group, member, 1, protocol_type=None),
        ):
            talker.ask("SyncGroup", version, **request)
        if version >= 3:
            talker.ask("SyncGroup", version, **sync(group, member, 1, group_instance_id="unknown"))


@scenario
def heartbeats_and_leaving(talker: GroupTalker) -> None:
    coordinated(talker)
    for version in versions("Heartbeat"):
        group = f"beat-{version}"
        member = alone(talker, group)
        for name, generation, who in (
            (group, 1, member),
            (group, 0, member),
            (group, 2, member),
            (group, 1, "nobody"),
            (group, 0, "nobody"),
            ("no group", 1, member),
            ("", 1, member),
        ):
            talker.ask("Heartbeat", version, group_id=name, generation_id=generation, member_id=who)
        if version >= 3:
            talker.ask(
                "Heartbeat", version, group_id=group, generation_id=1, member_id=member, group_instance_id="unknown"
            )
    for version in versions("LeaveGroup"):
        group = f"leave-{version}"
        member = alone(talker, group)
        for name, who in (("no group", member), ("", member), (group, "nobody"), (group, member), (group, member)):
            rows = [{"member_id": who, "group_instance_id": None}, {"member_id": "", "group_instance_id": "unknown"}]
            talker.ask("LeaveGroup", version, group_id=name, member_id=who, members=rows)
        talker.ask("Heartbeat", 4, group_id=group, generation_id=1, member_id=member)
        talker.ask("Heartbeat", 4, group_id=group, generation_id=2, member_id=member)
        talker.ask("SyncGroup", 5, **sync(group, member, 2))
        talker.ask("JoinGroup", 9, **join(group, member))
        talker.ask("DescribeGroups", 6, groups=[group])


@scenario
def rebalancing(talker: GroupTalker) -> None:
    """A second member joins a stable group, then the first leaves while the second waits for its assignment."""
    coordinated(talker)
    for version in (3, 5, 9):
        group = f"pair-{version}"
        first = alone(talker, group, version)
        second = ""
        if version >= 4:
            second = talker.ask("JoinGroup", version, **join(group)).member_id
        waiting = talker.park("JoinGroup", version, **join(group, second))
        beat = {"group_id": group, "generation_id": 1, "member_id": first}

        def rebalancing(beat: dict[str, Any] = beat) -> bool:
            return bool(talker.ask_quietly("Heartbeat", 4, **beat).error_code == REBALANCE_IN_PROGRESS)

        eventually(rebalancing)
        talker.ask("SyncGroup", 5, **sync(group, first, 1))
        talker.ask("ListGroups", 5, states_filter=["preparingREBALANCE "])
        talker.ask("DescribeGroups", 6, groups=[group])
        talker.ask("JoinGroup", version, **join(group, first))
        second = waiting().member_id
        talker.ask("Heartbeat", 4, group_id=group, generation_id=2, member_id=second)
        talker.ask("DescribeGroups", 6, groups=[group])
        talker.ask("JoinGroup", version, **join(group, second))
        waiting = talker.park("SyncGroup", 5, **sync(group, second, 2))
        talker.ask("LeaveGroup", 5, group_id=group, members=[{"member_id": first}])
        waiting()
        talker.ask("JoinGroup", version, **join(group, second))
        talker.ask("SyncGroup", 5, **sync(group, second, 3, b"all"))
        talker.ask("DescribeGroups", 6, groups=[group])


@scenario
def crowding(talker: GroupTalker) -> None:
    coordinated(talker)
    waiting = [talker.park("JoinGroup", 9, **join("crowd", group_instance_id=f"i{n}")) for n in range(1)]
    first = waiting[0]().member_id
    talker.ask("SyncGroup", 5, **sync("crowd", first, 1, b"x"))
    talker.park("JoinGroup", 9, **join("crowd", group_instance_id="i1"))
    talker.park("JoinGroup", 9, **join("crowd", group_instance_id="i2"))

    def members() -> int:
        return len(talker.ask_quietly("DescribeGroups", 5, groups=["crowd"]).groups[0].members)

    eventually(lambda: members() == 3)
    talker.park("JoinGroup", 9, **join("crowd", group_instance_id="i3"))
    eventually(lambda: members() == 4)
    talker.ask("JoinGroup", 9, **join("crowd", group_instance_id="i4"))
    talker.ask("JoinGroup", 9, **join("crowd", first, group_instance_id="i0"))


@scenario
def static_members(talker: GroupTalker) -> None:
    coordinated(talker)
    for version in range(5, 10):
        group = f"static-{version}"
        first = alone(talker, group, version, group_instance_id="i1")
        again = talker.ask("JoinGroup", version, **join(group, group_instance_id="i1")).member_id
        talker.ask("SyncGroup", 5, **sync(group, again, 1, group_instance_id="i1"))
        talker.ask("DescribeGroups", 6, groups=[group])
        old = {"group_id": group, "member_id": first, "group_instance_id": "i1"}
        talker.ask("JoinGroup", version, **join(group, first, group_instance_id="i1"))
        talker.ask("SyncGroup", 5, **sync(group, first, 1, group_instance_id="i1"))
        talker.ask("Heartbeat", 4, **old, generation_id=1)
        talker.ask("LeaveGroup", 5, group_id=group, members=[{"member_id": first, "group_instance_id": "i1"}])
        changed = [{"name": "other", "metadata": b"n"}, {"name": "range", "metadata": b"n"}]
        new = talker.ask("JoinGroup", version, **join(group, group_instance_id="i1", protocols=changed))
        talker.ask("DescribeGroups", 6, groups=[group])
        talker.ask("SyncGroup", 5, **sync(group, new.member_id, 2, b"z", group_instance_id="i1", protocol_name="other"))
        talker.ask("LeaveGroup", 5, group_id=group, members=[{"member_id": "", "group_instance_id": "i1"}])
        talker.ask("DescribeGroups", 6, groups=[group])


@scenario
def offsets(talker: GroupTalker) -> None:
    coordinated(talker)
    topic_id = talker.create_topic("t", 2)

    def commit(version: int, group: str, name: str = "t", index: int = 0, offset: int = 5, **more: Any) -> None:
        row = {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": 3}
        row["committed_metadata"] = more.pop("metadata", "note")
        wanted = topic_id if name == "t" else bytes(range(16))
        topics = [{"name": name, "topic_id": wanted, "partitions": [row]}]
        talker.ask("OffsetCommit", version, group_id=group, topics=topics, **more)

    for version in versions("OffsetCommit"):
        group = f"offsets-{version}"
        commit(version, group)
        commit(version, group, index=1, metadata=None)
        for metadata in ("x" * 21, "ä" * 20, "ä" * 21, "😀" * 10, "😀" * 10 + "x"):
            commit(version, group, index=1, metadata=metadata)
        commit(version, group, index=2)
        commit(version, group, name="no such topic")
        commit(version, group, generation_id_or_member_epoch=3, member_id="nobody")
        commit(version, f"none-{version}", generation_id_or_member_epoch=3, member_id="nobody")
        commit(version, "")
        talker.ask("OffsetCommit", version, group_id=group, topics=[])
        busy = f"busy-{version}"
        member = alone(talker, busy)
        commit(version, busy, generation_id_or_member_epoch=1, member_id=member)
        commit(version, busy, generation_id_or_member_epoch=0, member_id=member)
        commit(version, busy, generation_id_or_member_epoch=1, member_id="nobody")
        commit(version, busy)
        for asked in versions("OffsetFetch"):
            fetch_offsets(talker, asked, group, topic_id)


def fetch_offsets(talker: GroupTalker, version: int, group: str, topic_id: bytes) -> None:
    row = {"name": "t", "topic_id": topic_id, "partition_indexes": [0, 1, 7]}
    other = {"name": "no such topic", "topic_id": bytes(range(16)), "partition_indexes": [0]}

    def ask(topics: Any, name: str = group, **more: Any) -> None:
        if version < 8:
            if version >= 2 or topics is not None:
                talker.ask("OffsetFetch", version, group_id=name, topics=topics, **more)
        else:
            groups = [{"group_id": name, "topics": topics}, {"group_id": "no group", "topics": topics}]
            talker.ask("OffsetFetch", version, groups=groups, **more)

    if version < 8:
        row.pop("topic_id")
        other.pop("topic_id")
    ask([row, other])
    ask(None)
    ask([], "no group")
    if version >= 7:
        ask([row], require_stable=True)


@scenario
def offsets_in_transactions(talker: GroupTalker) -> None:
    coordinated(talker)
    topic_id = talker.create_topic("t", 2)
    rows = [{"partition_index": index, "committed_offset": 7, "committed_metadata": "m"} for index in (0, 1, 2)]
    for version in versions("TxnOffsetCommit"):
        for committed in (True, False):
            name = f"txn-{version}-{committed}"
            who = {"transactional_id": name, **_producer(talker, name)}
            if version < 5:
                talker.ask("AddOffsetsToTxn", min(version, 4), **who, group_id=name)
            topics = [{"name": "t", "partitions": rows}, {"name": "no such topic", "partitions": rows}]
            talker.ask("TxnOffsetCommit", version, **who, group_id=name, topics=topics)
            fetch_offsets(talker, 8, name, topic_id)
            assert talker.ask_quietly("EndTxn", min(version, 5), **who, committed=committed).error_code == 0
            eventually(lambda name=name: _transaction_state(talker, name).startswith("Complete"))
            fetch_offsets(talker, 8, name, topic_id)
            fetch_offsets(talker, 10, name, topic_id)


def _producer(talker: GroupTalker, name: str) -> dict[str, Any]:
    """The id and epoch of a new transactional producer."""
    found: list[Any] = []

    def known() -> bool:
        coordinator = talker.ask_quietly("FindCoordinator", 4, key_type=1, coordinator_keys=[name]).coordinators[0]
        if coordinator.error_code == 0:
            found[:] = [talker.ask_quietly("InitProducerId", 5, transactional_id=name, transaction_timeout_ms=60_000)]
        return bool(found) and found[0].error_code == 0

    eventually(known)
    return {"producer_id": found[0].producer_id, "producer_epoch": found[0].producer_epoch}


def _transaction_state(talker: GroupTalker, name: str) -> str:
    described = talker.ask_quietly("DescribeTransactions", 0, transactional_ids=[name])
    state: str = described.transaction_states[0].transaction_state
    return state


@scenario
def deleting(talker: GroupTalker) -> None:
    coordinated(talker)
    talker.create_topic("t", 2)
    talker.create_topic("u", 2)
    rows = [{"partition_index": index, "committed_offset": 5} for index in (0, 1)]
    topics = [{"name": name, "partitions": rows} for name in ("t", "u")]
    for version in versions("DeleteGroups"):
        for group in (f"simple-{version}", f"used-{version}"):
            talker.ask("OffsetCommit", 8, group_id=group, topics=topics)
        alone(talker, f"used-{version}")
        wanted = [{"name": name, "partitions": [{"partition_index": n} for n in (0, 5)]} for name in ("t", "u", "v")]
        for group in (f"simple-{version}", f"used-{version}", "no group", ""):
            talker.ask("OffsetDelete", 0, group_id=group, topics=wanted)
            groups = [{"group_id": group, "topics": None}]
            talker.ask("OffsetFetch", 8, groups=groups)
        names = [f"simple-{version}", f"used-{version}", "no group", f"simple-{version}"]
        talker.ask("DeleteGroups", version, groups_names=names)
        talker.ask("DeleteGroups", version, groups_names=names)
    for version in versions("ListGroups"):
        for states in ([], ["Stable"], ["empty", "stable"], ["nonsense"]) if version >= 4 else ([],):
            for types in ([], ["classic"], ["Consumer"], ["nonsense"]) if version >= 5 else ([],):
                talker.ask("ListGroups", version, states_filter=states, types_filter=types)
    for version in versions("DescribeGroups"):
        for operations in (False, True):
            talker.ask(
                "DescribeGroups",
                version,
                groups=["used-0", "simple-0", "no group", ""],
                include_authorized_operations=operations,
            )


@scenario
def the_topic_itself(talker: GroupTalker) -> None:
    coordinated(talker)
    talker.ask(
        "DescribeConfigs",
        4,
        resources=[{"resource_type": 2, "resource_name": "__consumer_offsets", "configuration_keys": None}],
    )
    talker.ask("Metadata", 12, topics=[{"name": "__consumer_offsets", "topic_id": ZERO}])


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_answers(pair: tuple[Daemon, Daemon], run: Scenario) -> None:
    talkers = [GroupTalker(broker) for broker in pair]
    try:
        for talker in talkers:
            run(talker)
        found = differences(*talkers)
        assert not found, "\n".join(found)
    finally:
        for talker in talkers:
            for client in (talker.client, *talker.others):
                client.socket.close()


def records(talker: GroupTalker, tools: ToolHost) -> list[Any]:
    """What was written to __consumer_offsets, without times: a record with the producer epoch of its batch, or a
    transaction's marker."""
    (segment,) = talker.broker.data.glob("__consumer_offsets-0/*.log")
    text = dump(tools, segment, "--offsets-decoder", "--deep-iteration")
    found = []
    epoch = ""
    for line in text.splitlines():
        if opened := re.search(r" producerEpoch: (-?\d+) ", line):
            epoch = opened[1]
        if marker := re.search(r" endTxnMarker: .*$", line):
            found.append([epoch, marker[0]])
        elif pair := re.search(r" key: (\{.*?\}) payload: (.*)$", line):
            key, value = pair.groups()
            record = [json.loads(key), json.loads(value) if value.startswith("{") else None, epoch]
            found.append(_timeless(talker, talker.plain(json.dumps(record), 0)))
    # Tombstones that follow each other come in the order of a hash map.
    runs = [list(run) for _, run in itertools.groupby(found, key=lambda record: record[1] is None)]
    return [record for run in runs for record in (sorted(run, key=repr) if run[0][1] is None else run)]


def _timeless(talker: GroupTalker, text: str) -> Any:
    """Members in the order of their ids: Kafka writes them in that of a hash map. A topic's name for its id."""
    record = json.loads(text)
    data = (record[1] or {}).get("data", {})
    for name in ("commitTimestamp", "currentStateTimestamp"):
        data.pop(name, None)
    if "topicId" in data:
        id_ = urlsafe_b64decode(data["topicId"] + "==")
        data["topicId"] = "none" if id_ == ZERO else talker.names[id_]
    if "members" in data:
        data["members"].sort(key=lambda member: member["memberId"])
    return record


def test_same_records(tmp_path: Path, tools: ToolHost) -> None:
    """The same requests leave the same records, in the same order."""
    talkers = []
    for kind, folder in ((TARGETS[TARGET], "ours"), (ApacheKafka, "kafka")):
        broker = kind(tmp_path / folder, SETTINGS)
        broker.start()
        talker = GroupTalker(broker)
        talkers.append(talker)
        try:
            for run in (
                joining,
                syncing,
                rebalancing,
                heartbeats_and_leaving,
                static_members,
                offsets,
                offsets_in_transactions,
                deleting,
            ):
                run(talker)
        finally:
            for client in (talker.client, *talker.others):
                client.socket.close()
            broker.stop()
    ours, theirs = (records(talker, tools) for talker in talkers)
    assert len(ours) > 100
    assert sum("endTxnMarker" in record[1] for record in ours if isinstance(record[1], str)) == 12
    for mine, wanted in zip(ours, theirs, strict=False):
        assert mine == wanted
    assert len(ours) == len(theirs)
