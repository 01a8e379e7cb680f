"""Groups as a play: a script of requests and passing time, and what the coordinator says and writes.

A line that starts with "> " is an event, the lines below it are what comes of it: `name: answer` is a reply to the
request called `name` (perhaps one parked long ago), `write ...` a record. Time is a number that `wait` moves; timers
fire on the way. `reload` throws the state away and replays the bytes of every record written so far, as a new
coordinator does.

    > NAME = join GROUP [member=ID] [instance=ID] [protocols=range:x,roundrobin:y] [type=consumer] [version=9]
                        [session=10000] [rebalance=60000]
    > NAME = sync GROUP member=ID generation=N [instance=ID] [protocol=range] [assign=ID:x,ID:y]
    > NAME = heartbeat GROUP member=ID generation=N [instance=ID]
    > NAME = leave GROUP member=ID[,ID] | instance=ID
    > NAME = commit GROUP topic-partition=offset ... [member=ID] [generation=N] [version=9] [retention=MS]
    > NAME = fetch GROUP [topic-partition ...] [stable]
    > NAME = delete-offsets GROUP topic-partition ... | delete GROUP | describe GROUP | list
    > wait MS | expire | reload | topic-deleted NAME
    > writable no|yes              are enough replicas in sync?

and what consumer_transcript has for the new consumer protocol.
"""

from __future__ import annotations

import difflib
import itertools
import re
from typing import Any

from pylogd.config.broker import BrokerConfig
from pylogd.coordinators.groups.commits import Commit
from pylogd.coordinators.groups.group import Caller
from pylogd.coordinators.groups.groups import GroupState
from pylogd.coordinators.shard.effects import WRITE_ERRORS, Effects
from pylogd.coordinators.shard.record_pairs import decode_record
from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.metadata.registrations import Topic
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import (
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from pylogd.protocol.uuids import ZERO

from support import consumer_transcript
from support.consumer_transcript import ConsumerVerbs, embed, embedded

DEFAULTS = BrokerConfig({"node.id": "1", "process.roles": "broker"})
CONFIG = {
    "group.initial.rebalance.delay.ms": 3000,
    "group.max.size": 100,
    "offset.metadata.max.bytes": 20,
    "offsets.retention.minutes": 60,
    "offsets.retention.check.interval.ms": 10**9,
}


class Settings(dict[str, Any]):
    """A broker's settings: its defaults, unless a script says otherwise."""

    def __missing__(self, name: str) -> Any:
        return DEFAULTS[name]


class Play(ConsumerVerbs):
    def __init__(self, **config: Any) -> None:
        self.config = Settings({**CONFIG, **{name.replace("_", "."): value for name, value in config.items()}})
        self.image = ClusterImage()
        self._ids = itertools.count(1)
        self.now_ms = 1_000_000
        self.written: list[tuple[bytes, bytes | None, int]] = []
        self.lines: list[str] = []
        self.writable = True
        self.timers: dict[Any, tuple[int, Any]] = {}
        self.state = self._new_state()

    def _new_state(self) -> GroupState:
        return GroupState(self.config, lambda: str(next(self._ids)), LatestImage(self.image))

    # -- events

    def run(self, event: Any, name: str = "", *, producer_id: int = -1) -> None:
        effects = Effects(self.now_ms, self.state, base_offset=len(self.written), producer_id=producer_id)
        effects.writable = self.writable
        try:
            event(effects)
        except KafkaError as refusal:
            assert not effects.records, "an event that wrote something was refused"
            effects.answer(name, WRITE_ERRORS.get(refusal.code, refusal.code))
        for record, (key, value) in zip(effects.records, effects.encoded):
            self.written.append((bytes(key), None if value is None else bytes(value), producer_id))
            self.lines.append("write " + _record(record))
        for label, answer in effects.replies:
            self.lines.append(f"{label}: {_answer(answer)}")
        for timer, what in effects.timers.items():
            if what is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = (self.now_ms + what[0], what[1])

    def wait(self, ms: int) -> None:
        end = self.now_ms + ms
        while True:
            due = min(self.timers, key=lambda name: self.timers[name][0], default=None)
            if due is None or self.timers[due][0] > end:
                break
            self.now_ms, event = self.timers.pop(due)
            if self.writable:
                self.run(event)
            else:
                self.timers[due] = (self.now_ms + 500, event)
        self.now_ms = end

    def reload(self) -> None:
        self.state = self._new_state()
        self.timers.clear()
        for offset, (key, value, producer_id) in enumerate(self.written):
            record = decode_record(self.state.classes, key, value)
            assert record is not None
            self.state.replay(record, offset, producer_id)
        self.run(self.state.loaded)

    # -- the script

    def perform(self, line: str) -> list[str]:
        self.lines = []
        label, _, command = line.rpartition(" = ")
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if re.match(r"[a-z]+=", word))
        plain = [word for word in words if not re.match(r"[a-z]+=", word)]
        getattr(self, "_" + verb.replace("-", "_"))(label, plain, options)
        return self.lines

    def _wait(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.wait(int(plain[0]))

    def _writable(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.writable = plain == ["yes"]

    def _reload(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.reload()

    def _expire(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.run(self.state.expire)

    def _topic_deleted(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        delta = ImageDelta()
        delta.topic_deleted(Topic(plain[0], _topic_id(plain[0])))
        self.run(lambda effects: self.state.metadata_changed(effects, delta, None))  # type: ignore[arg-type]

    def _join(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        protocols = [each.split(":") for each in options.get("protocols", "range:").split(",")]
        request = join_group.JoinGroupRequest(
            group_id=plain[0],
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=[join_group.JoinGroupRequestProtocol(name, data.encode()) for name, data in protocols],
        )
        caller = Caller(int(options.get("version", 9)), "m", "/host")
        self.run(lambda effects: self.state.join(effects, label, request, caller), label)

    def _sync(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        given = [each.split(":", 1) for each in options.get("assign", "").split(",") if each]
        request = sync_group.SyncGroupRequest(
            group_id=plain[0],
            generation_id=int(options["generation"]),
            member_id=options["member"],
            group_instance_id=options.get("instance"),
            protocol_name=options.get("protocol"),
            assignments=[sync_group.SyncGroupRequestAssignment(name, embed(data)) for name, data in given],
        )
        self.run(lambda effects: self.state.sync(effects, label, request), label)

    def _heartbeat(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        request = heartbeat.HeartbeatRequest(
            plain[0], int(options["generation"]), options["member"], options.get("instance")
        )
        self.run(lambda effects: self.state.heartbeat(effects, label, request), label)

    def _leave(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        members = [
            leave_group.MemberIdentity(member_id=each, group_instance_id=options.get("instance"))
            for each in options.get("member", "").split(",")
        ]
        request = leave_group.LeaveGroupRequest(group_id=plain[0], members=members)
        self.run(lambda effects: self.state.leave(effects, label, request), label)

    def _commit(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        request = offset_commit.OffsetCommitRequest(
            group_id=plain[0],
            generation_id_or_member_epoch=int(options.get("generation", -1)),
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            retention_time_ms=int(options.get("retention", -1)),
        )
        version = int(options.get("version", 4 if "retention" in options else 9))
        commits, answers = [], []
        for word in plain[1:]:
            place, offset = word.split("=")
            topic, index = place.rsplit("-", 1)
            partition = offset_commit.OffsetCommitRequestPartition(
                int(index), int(offset), committed_metadata=options.get("metadata", "")
            )
            answer = offset_commit.OffsetCommitResponsePartition(int(index))
            commits.append(Commit(plain[0], topic, _topic_id(topic), partition, answer))
            answers.append(offset_commit.OffsetCommitResponseTopic(topic, ZERO, [answer]))
        response = offset_commit.OffsetCommitResponse(topics=answers)
        self.run(
            lambda effects: self.state.commit(effects, label, request, version, commits, response),
            label,
            producer_id=int(options.get("producer", -1)),
        )

    def _end(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        """The transaction of a producer ends: `> end commit producer=1`."""
        self.state.replay_end_transaction(int(options["producer"]), plain[0] == "commit")

    def _fetch(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        stable = "stable" in plain
        places = [word.rsplit("-", 1) for word in plain[1:] if word != "stable"]
        topics = [offset_fetch.OffsetFetchRequestTopics(name=t, partition_indexes=[int(p)]) for t, p in places]
        request = offset_fetch.OffsetFetchRequestGroup(group_id=plain[0], topics=topics if places else None)
        self.run(lambda effects: self.state.fetch(effects, label, request, stable), label)

    def _delete_offsets(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        topics = [
            offset_delete.OffsetDeleteRequestTopic(topic, [offset_delete.OffsetDeleteRequestPartition(int(index))])
            for topic, index in (word.rsplit("-", 1) for word in plain[1:])
        ]
        request = offset_delete.OffsetDeleteRequest(group_id=plain[0], topics=topics)
        response = offset_delete.OffsetDeleteResponse()
        self.run(lambda effects: self.state.delete_offsets(effects, label, request, response), label)

    def _delete(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.run(lambda effects: self.state.delete(effects, label, plain), label)

    def _describe(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.run(lambda effects: self.state.describe(effects, label, plain, 6), label)

    def _list(self, label: str, plain: list[str], options: dict[str, str]) -> None:
        self.run(lambda effects: self.state.list(effects, label, set(plain), set()), label)


def check(script: str, **config: Any) -> Play:
    """Perform a script; what it says must be what happens."""
    play = Play(**config)
    wanted = [line.strip() for line in script.strip().splitlines() if line.strip() and not line.strip().startswith("#")]
    happened: list[str] = []
    for line in wanted:
        if line.startswith("> "):
            happened.append(line)
            happened += play.perform(line[2:].strip())
    if happened != wanted:
        raise AssertionError("\n" + "\n".join(difflib.ndiff(wanted, happened)))
    return play


def _topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\1")


def _name(code: int) -> str:
    return ErrorCode(code).name  # type: ignore[call-arg]


def _text(data: bytes) -> str:
    return data.decode()


def _brief(data: bytes) -> str:
    """Metadata as a script gave it; of Kafka's own bytes only that they are there."""
    return "..." if data[:2] == b"\0\3" else _text(data)


def _answer(answer: Any) -> str:
    if isinstance(answer, ErrorCode):
        return answer.name
    if isinstance(answer, list):
        return ", ".join(_answer(each) for each in answer) or "nothing"
    kind = type(answer).__name__
    return _ANSWERS[kind](answer)


def _joined(answer: Any) -> str:
    if answer.error_code:
        return _name(answer.error_code) + (f" {answer.member_id}" if answer.member_id else "")
    members = " ".join(f"{each.member_id}({_brief(each.metadata)})" for each in answer.members)
    leader = answer.leader or "nobody"
    return (
        f"{answer.member_id} generation {answer.generation_id} {answer.protocol_name} leader {leader}"
        + (f" members {members}" if members else "")
        + (" skip" if answer.skip_assignment else "")
    )


def _described(answer: Any) -> str:
    if answer.error_code:
        return f"{answer.group_id} {answer.group_state} {_name(answer.error_code)}"
    members = [f"{m.member_id}({_brief(m.member_metadata)}|{embedded(m.member_assignment)})" for m in answer.members]
    words = [answer.group_id, answer.group_state, answer.protocol_type, answer.protocol_data, *members]
    return " ".join(word for word in words if word)


def _fetched(answer: Any) -> str:
    found = [
        f"{topic.name}-{each.partition_index}={_name(each.error_code) if each.error_code else each.committed_offset}"
        for topic in answer.topics
        for each in topic.partitions
    ]
    return " ".join(found) or "nothing"


def _partitions(answer: Any) -> str:
    return " ".join(
        f"{topic.name}-{each.partition_index} {_name(each.error_code)}"
        for topic in answer.topics
        for each in topic.partitions
    )


_ANSWERS = {
    "JoinGroupResponse": _joined,
    "SyncGroupResponse": lambda a: _name(a.error_code) if a.error_code else f"assignment {embedded(a.assignment)}",
    "HeartbeatResponse": lambda a: _name(a.error_code),
    "LeaveGroupResponse": lambda a: ", ".join(
        f"{each.member_id or each.group_instance_id} {_name(each.error_code)}" for each in a.members
    ),
    "OffsetCommitResponse": _partitions,
    "OffsetDeleteResponse": _partitions,
    "OffsetFetchResponseGroup": _fetched,
    "DeletableGroupResult": lambda a: f"{a.group_id} {_name(a.error_code)}",
    "ListedGroup": lambda a: f"{a.group_id} {a.group_state} {a.group_type}",
    "DescribedGroup": lambda a: _described(a) if hasattr(a, "protocol_data") else consumer_transcript.described(a),
    "ConsumerGroupHeartbeatResponse": consumer_transcript.heartbeat_answer,
}


def _record(record: Any) -> str:
    text = consumer_transcript.record_text(record)
    if text is not None:
        return text
    key, value = record.key, record.value
    if key.API_KEY == 2:
        if value is None:
            return f"group {key.group} gone"
        members = "".join(
            f" {member.member_id}({_brief(member.subscription)}|{embedded(member.assignment)})"
            for member in value.members
        )
        return f"group {key.group} generation {value.generation} {value.protocol} leader {value.leader}{members}"
    place = f"{key.group} {key.topic}-{key.partition}"
    return f"offset {place} gone" if value is None else f"offset {place} {value.offset}"
