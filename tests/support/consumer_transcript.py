"""The part of a group's play (see group_transcript) that is about the new consumer protocol.

    > NAME = beat GROUP MEMBER EPOCH [topics=a,b] [regex=X] [owned=a:0.1,b:2] [instance=ID] [assignor=range]
                                     [rebalance=60000] [version=1]
    > NAME = classic-join GROUP topics=a,b [member=ID] [owned=a:0.1] [instance=ID] [version=9]
    > NAME = describe-consumer GROUP
    > topic NAME PARTITIONS        a topic appears or grows
    > configure GROUP name=value   a setting of the group

A member's answer shows its epoch, and what it is given in brackets when it is told. With epoch 0 a member that says
nothing else subscribes to nothing.
"""

from __future__ import annotations

import struct
from typing import Any

from pylogd.coordinators.groups.consumer.member import MemberState
from pylogd.coordinators.groups.consumer.migration.embedded import decode_assignment, encode_assignment
from pylogd.coordinators.groups.group import Caller
from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.image import GROUP_RESOURCE
from pylogd.metadata.registrations import Partition, Topic
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import consumer_group_heartbeat as heartbeat
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages import join_group
from pylogd.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition

_PAD = b"\1"


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, _PAD)


def topic_name(id_: bytes) -> str:
    return bytes(id_).rstrip(_PAD).decode()


class ConsumerVerbs:
    def _topic(self: Any, label: str, plain: list[str], options: dict[str, str]) -> None:
        name, count = plain[0], int(plain[1])
        delta = ImageDelta()
        topic = self.image.topics.get(name)
        if topic is None:
            topic = self.image.topics[name] = Topic(name, topic_id(name))
            self.image.topics_by_id[topic.id] = topic
            delta.new_topics.add(topic.id)
        for index in range(len(topic.partitions), count):
            topic.partitions.append(Partition((1,), (bytes(16),), (1,), 1))
            delta.partition(topic.id, index)
        self._publish(delta)

    def _topic_gone(self: Any, label: str, plain: list[str], options: dict[str, str]) -> None:
        topic = self.image.topics.pop(plain[0])
        del self.image.topics_by_id[topic.id]
        delta = ImageDelta()
        delta.topic_deleted(topic)
        self._publish(delta)

    def _publish(self: Any, delta: ImageDelta) -> None:
        self.image.offset += 1
        self.run(lambda effects: self.state.metadata_changed(effects, delta, self.image))

    def _configure(self: Any, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.image.configs[GROUP_RESOURCE, plain[0]] = dict(word.split("=") for word in plain[1:])

    def _beat(self: Any, label: str, plain: list[str], options: dict[str, str]) -> None:
        group_id, member_id, epoch = plain[0], plain[1], int(plain[2])
        joins = epoch == 0
        owned = _places(options["owned"]) if "owned" in options else {} if joins else None
        names = options.get("topics", "" if joins and "regex" not in options else None)
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000 if joins else -1)),
            subscribed_topic_names=None if names is None else [name for name in names.split(",") if name],
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=None
            if owned is None
            else [heartbeat.TopicPartitions(topic_id(topic), indexes) for topic, indexes in owned.items()],
        )
        caller = Caller(int(options.get("version", 1)), "c", "/host")
        self.run(lambda effects: self.state.consumer.heartbeat(effects, label, request, caller), label)

    def _classic_join(self: Any, label: str, plain: list[str], options: dict[str, str]) -> None:
        owned = [TopicPartition(topic, indexes) for topic, indexes in _places(options.get("owned", "")).items()]
        wish = ConsumerProtocolSubscription(options["topics"].split(","), None, owned)
        request = join_group.JoinGroupRequest(
            group_id=plain[0],
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol("range", struct.pack(">h", 3) + encode(wish, 3))],
        )
        caller = Caller(int(options.get("version", 9)), "m", "/host")
        self.run(lambda effects: self.state.join(effects, label, request, caller), label)

    def _describe_consumer(self: Any, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.run(lambda effects: self.state.describe_consumer_groups(effects, label, plain), label)


def _places(text: str) -> dict[str, list[int]]:
    found = {}
    for each in text.split(","):
        if each:
            topic, indexes = each.split(":")
            found[topic] = [int(index) for index in indexes.split(".")]
    return found


# -- what is said


def show(topics: Any) -> str:
    """Topics with their partitions, whatever the message."""
    return " ".join(sorted(f"{topic_name(each.topic_id)}:{_dots(each.partitions)}" for each in topics))


def _dots(indexes: Any) -> str:
    return ".".join(map(str, sorted(indexes)))


def heartbeat_answer(answer: Any) -> str:
    text = f"{answer.member_id} epoch {answer.member_epoch}"
    return text if answer.assignment is None else f"{text} [{show(answer.assignment.topic_partitions)}]"


def described(answer: Any) -> str:
    if answer.error_code:
        return f"{answer.group_id} {ErrorCode(answer.error_code).name}"  # type: ignore[call-arg]
    members = [
        f"{m.member_id} at {m.member_epoch} [{show(m.assignment.topic_partitions)}]"
        f"->[{show(m.target_assignment.topic_partitions)}]" + ("" if m.member_type else " classic")
        for m in answer.members
    ]
    epochs = f"{answer.group_epoch}/{answer.assignment_epoch}"
    return ", ".join([f"{answer.group_id} {answer.group_state} {epochs} {answer.assignor_name}", *members])


def embed(text: str) -> bytes:
    """Kafka's bytes for an assignment like [t:0.1], otherwise the text itself."""
    if not text.startswith("["):
        return text.encode()
    return encode_assignment(_places(text[1:-1]), 3)


def embedded(data: bytes) -> str:
    """The assignment of a classic member: text where a script made it, Kafka's bytes where the coordinator did."""
    if data[:1] != b"\0":
        return data.decode()
    parts = [f"{each.topic}:{_dots(each.partitions)}" for each in decode_assignment(data).assigned_partitions]
    return "[" + " ".join(sorted(parts)) + "]"


# -- what is written


def record_text(record: Any) -> str | None:
    """None for records of other kinds."""
    key, value = record.key, record.value
    if isinstance(key, records.ConsumerGroupMetadataKey):
        return f"epoch {key.group_id} " + ("gone" if value is None else str(value.epoch))
    if isinstance(key, records.ConsumerGroupPartitionMetadataKey):
        return f"partition-metadata {key.group_id} gone"
    if isinstance(key, records.ConsumerGroupMemberMetadataKey):
        return f"member {key.group_id} {key.member_id} " + ("gone" if value is None else _subscription(value))
    if isinstance(key, records.ConsumerGroupTargetAssignmentMetadataKey):
        return f"target {key.group_id} " + ("gone" if value is None else f"epoch {value.assignment_epoch}")
    if isinstance(key, records.ConsumerGroupTargetAssignmentMemberKey):
        target = "gone" if value is None else f"[{show(value.topic_partitions)}]"
        return f"target {key.group_id} {key.member_id} {target}"
    if isinstance(key, records.ConsumerGroupCurrentMemberAssignmentKey):
        return f"current {key.group_id} {key.member_id} " + ("gone" if value is None else _current(value))
    if isinstance(key, records.ConsumerGroupRegularExpressionKey):
        topics = "gone" if value is None else f"[{' '.join(value.topics)}]"
        return f"regex {key.group_id} {key.regular_expression} {topics}"
    return None


def _subscription(value: Any) -> str:
    words = [f"({','.join(value.subscribed_topic_names)})"]
    words += [f"regex {value.subscribed_topic_regex}"] if value.subscribed_topic_regex else []
    words += [f"instance {value.instance_id}"] if value.instance_id is not None else []
    words += [f"assignor {value.server_assignor}"] if value.server_assignor is not None else []
    words += ["classic"] if value.classic_member_metadata is not None else []
    return " ".join(words)


def _current(value: Any) -> str:
    state = MemberState(value.state).name.partition("_")[0].lower()
    text = f"{value.previous_member_epoch}->{value.member_epoch} {state} [{show(value.assigned_partitions)}]"
    if value.partitions_pending_revocation:
        text += f" revoking [{show(value.partitions_pending_revocation)}]"
    return text
