"""Our assignors and metadata hash against Kafka's own classes, on random groups, and what they promise."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from pylogd.coordinators.groups.consumer.assignors.assignor import (
    Assignment,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
)
from pylogd.coordinators.groups.consumer.assignors.java_order import name_order
from pylogd.coordinators.groups.consumer.assignors.offered import offered_assignors
from pylogd.coordinators.groups.consumer.subscribed_topics import TopicHashes, topic_hash
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.registrations import Broker, Partition, Topic
from pylogd.protocol.uuids import to_text
from support.jvm import compiled, tool_command

ASSIGNORS = offered_assignors(["uniform", "range"])


def ask_kafka(lines: list[str]) -> list[str]:
    command = tool_command("GroupOracle")
    command[command.index("-cp") + 1] += os.pathsep + str(compiled("GroupOracle.java"))
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Group:
    """A group that changes at random, from one assignment to the next."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.wishes: dict[str, list[str]] = {}
        self.instances: dict[str, str] = {}
        self.assigned: GroupAssignment = {}
        self.same = chance.random() < 0.5
        for _ in range(chance.randint(1, 14)):
            self.add_topic()
        for _ in range(chance.randint(1, 20)):
            self.add_member()

    def add_topic(self) -> None:
        topic_id = self.chance.randbytes(16)
        self.topics[f"topic-{self.chance.randrange(10**6)}"] = topic_id, self.chance.choice([1, 2, 3, 7, 20, 40])

    def add_member(self) -> None:
        member_id = "".join(self.chance.choices("abcdef0123456789-", k=self.chance.choice([4, 36])))
        self.wishes[member_id] = self.wish()
        if self.chance.random() < 0.3:
            self.instances[member_id] = f"i-{self.chance.randrange(1000)}-{len(self.instances)}"

    def wish(self) -> list[str]:
        names = list(self.topics)
        return names if self.same else self.chance.sample(names, self.chance.randint(0, len(names)))

    def change(self) -> None:
        what = self.chance.random()
        if what < 0.3:
            self.add_member()
        elif what < 0.5 and len(self.wishes) > 1:
            gone = self.chance.choice(list(self.wishes))
            del self.wishes[gone]
            self.assigned.pop(gone, None)
        elif what < 0.7:
            self.add_topic()
        elif what < 0.85 and len(self.topics) > 1:
            del self.topics[self.chance.choice(list(self.topics))]
        else:
            name = self.chance.choice(list(self.topics))
            topic_id, count = self.topics[name]
            self.topics[name] = topic_id, count + self.chance.randint(1, 20)
        for member_id, names in self.wishes.items():
            kept = list(self.topics) if self.same else [name for name in names if name in self.topics]
            self.wishes[member_id] = kept
        if not self.same:
            self.wishes[self.chance.choice(list(self.wishes))] = self.wish()

    def spec(self) -> GroupSpec:
        members = {}
        for member_id, names in self.wishes.items():
            ids = tuple(self.topics[name][0] for name in name_order(names))
            held = self.assigned.get(member_id, {})
            members[member_id] = MemberSpec(self.instances.get(member_id), ids, held, len(names))
        return GroupSpec(members, self.same, dict(self.topics.values()))

    def line(self, assignor: str) -> str:
        topics = ",".join(f"{name}={to_text(id_)}:{count}" for name, (id_, count) in self.topics.items())
        members = ";".join(
            "|".join([id_, self.instances.get(id_, ""), ",".join(names), show(self.assigned.get(id_, {}))])
            for id_, names in self.wishes.items()
        )
        return f"assign {assignor} {'same' if self.same else 'mixed'} {topics} {members}"


def show(assignment: Assignment) -> str:
    return ",".join(f"{to_text(id_)}:{'.'.join(map(str, sorted(parts)))}" for id_, parts in assignment.items())


def show_all(result: GroupAssignment) -> str:
    def ordered(assignment: Assignment) -> Assignment:
        return dict(sorted(assignment.items(), key=lambda item: to_text(item[0])))

    return ";".join(f"{member_id}|{show(ordered(result[member_id]))}" for member_id in sorted(result))


@pytest.mark.jvm
@pytest.mark.parametrize("name", ["uniform", "range"])
def test_assignments_are_kafkas(name: str) -> None:
    chance = random.Random(848)
    lines, ours = [], []
    for _ in range(60):
        group = Group(chance)
        for _ in range(8):
            lines.append(group.line(name))
            group.assigned = ASSIGNORS[name](group.spec())
            ours.append(show_all(group.assigned))
            group.change()
    theirs = ask_kafka(lines)
    assert len(theirs) == len(ours)
    for line, mine, kafkas in zip(lines, ours, theirs, strict=True):
        assert mine == kafkas, line


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_every_partition_has_exactly_one_subscribed_owner(name: str) -> None:
    chance = random.Random(1)
    for _ in range(40):
        group = Group(chance)
        for _ in range(6):
            spec = group.spec()
            group.assigned = ASSIGNORS[name](spec)
            owned: dict[tuple[bytes, int], str] = {}
            for member_id, assignment in group.assigned.items():
                for topic_id, indexes in assignment.items():
                    assert topic_id in spec.members[member_id].topics
                    for index in indexes:
                        assert owned.setdefault((topic_id, index), member_id) == member_id
            wanted = {topic_id for member in spec.members.values() for topic_id in member.topics}
            assert len(owned) == sum(spec.partitions[topic_id] for topic_id in wanted)
            group.change()


def test_uniform_moves_only_what_balance_needs() -> None:
    topic_id = bytes(range(16))
    members = {name: MemberSpec(None, (topic_id,), {}, 1) for name in "abc"}
    first = ASSIGNORS["uniform"](GroupSpec(members, True, {topic_id: 9}))
    assert [len(first[name][topic_id]) for name in "abc"] == [3, 3, 3]
    members = {name: MemberSpec(None, (topic_id,), first.get(name, {}), 1) for name in "abcd"}
    second = ASSIGNORS["uniform"](GroupSpec(members, True, {topic_id: 9}))
    kept = sum(len(first[name][topic_id] & second[name][topic_id]) for name in "abc")
    assert (kept, sorted(len(second[name][topic_id]) for name in "abcd")) == (7, [2, 2, 2, 3])


@pytest.mark.jvm
def test_metadata_hashes_are_kafkas() -> None:
    chance = random.Random(2)
    racks = {1: "east", 2: "wëst", 3: None, 4: "\U0001d52b", 5: "\ufb00"}
    lines, ours = [], []
    for _ in range(20):
        image = ClusterImage()
        image.brokers = {
            number: Broker(number, 0, bytes(16), {}, {}, rack=rack, fenced=False) for number, rack in racks.items()
        }
        texts = []
        for number in range(chance.randint(1, 5)):
            topic = Topic(f"t{number}-ü", chance.randbytes(16))
            for _ in range(chance.randint(1, 4)):
                replicas = tuple(chance.sample(sorted(racks), chance.randint(1, 4)))
                topic.partitions.append(Partition(replicas, (bytes(16),) * len(replicas), replicas, replicas[0]))
            image.topics[topic.name] = image.topics_by_id[topic.id] = topic
            placed = "/".join(".".join(filter(None, (racks[id_] for id_ in p.replicas))) for p in topic.partitions)
            texts.append(f"{topic.name}={to_text(topic.id)}:{len(topic.partitions)}:{placed}")
        lines.append("hash " + ",".join(texts))
        hashes = [f"{name}={topic_hash(image, topic)}" for name, topic in sorted(image.topics.items())]
        ours.append(" ".join([str(TopicHashes().of_group(image, image.topics)), *hashes]))
    assert ask_kafka(lines) == ours
