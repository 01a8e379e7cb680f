"""What time does to groups and transactions, here and in Apache Kafka: offsets and transactional ids expire,
transactions time out. And a policy of migration other than the default.

Both brokers are given short times; what is compared is what is left when they are over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.protocol.uuids import ZERO
from support.daemon import Daemon
from support.jvm import java
from support.kafka import ApacheKafka
from support.scale import SOAK
from support.target import TARGET, TARGETS
from support.transcript import Talker, differences, talking
from support.wait import eventually

pytestmark = pytest.mark.jvm

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "300",
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "upgrade",
}
NOT_FOUND = 105
#: Of a consumer that subscribes to "kept".
SUBSCRIPTION = b"\0\0\0\0\0\1\0\4kept\xff\xff\xff\xff"


class Timeless(Talker):
    def __init__(self, broker: Daemon) -> None:
        super().__init__(broker)
        self._producers: dict[int, str] = {}

    def plain(self, value: Any, version: int, field: str = "") -> Any:
        if field == "producer_id" and isinstance(value, int) and value >= 0:
            return self._producers.setdefault(value, f"#{len(self._producers) + 1}")
        if field == "member_id":
            return bool(value)
        if field == "transaction_start_time_ms":
            return min(value, 0)
        return super().plain(value, version, field)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    java()
    folder: Path = tmp_path_factory.mktemp("time")
    ours, theirs = TARGETS[TARGET](folder / "ours", SETTINGS), ApacheKafka(folder / "kafka", SETTINGS)
    with contextlib.ExitStack() as stack:
        for daemon in (ours, theirs):
            daemon.start()
            stack.callback(daemon.stop)
        with talking(ours, theirs) as talkers:
            for talker in talkers:
                eventually(lambda talker=talker: coordinated(talker), timeout_s=60)
                for topic in ("kept", "given-up"):
                    new = {"name": topic, "num_partitions": 1, "replication_factor": 1}
                    talker.ask_quietly("CreateTopics", 7, topics=[new], timeout_ms=10_000)
                    eventually(lambda talker=talker, topic=topic: talker.topic_id(topic) != ZERO)
        yield ours, theirs


def coordinated(talker: Talker) -> bool:
    for kind in (0, 1):
        found = talker.ask_quietly("FindCoordinator", 4, key_type=kind, coordinator_keys=["g"]).coordinators[0]
        if found.error_code != 0:
            return False
    group = talker.ask_quietly("OffsetFetch", 8, groups=[{"group_id": "g", "topics": None}])
    described = talker.ask_quietly("DescribeTransactions", 0, transactional_ids=["none"])
    return group.groups[0].error_code == 0 and described.transaction_states[0].error_code == NOT_FOUND


def init(talker: Talker, name: str, timeout_ms: int = 60_000) -> tuple[int, int]:
    found: list[Any] = []

    def done() -> bool:
        ask = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
        found[:] = [talker.ask_quietly("InitProducerId", 4, **ask)]
        return found[0].error_code not in (14, 51)

    eventually(done)
    talker.note("InitProducerId", 4, talker.plain(found[0], 4))
    return found[0].producer_id, found[0].producer_epoch


def add(talker: Talker, name: str, who: tuple[int, int]) -> None:
    talker.ask(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[{"name": "kept", "partitions": [0]}],
    )


def join(talker: Talker, group: str, kind: str) -> str:
    """A group of one in generation 1; its member."""
    asked = {
        "group_id": group,
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": kind,
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    member: str = talker.ask_quietly("JoinGroup", 3, member_id="", **asked).member_id
    talker.ask_quietly(
        "SyncGroup",
        3,
        group_id=group,
        generation_id=1,
        member_id=member,
        assignments=[{"member_id": member, "assignment": b""}],
    )
    return member


def commit(talker: Talker, version: int, group: str, retention_ms: int, **who: Any) -> None:
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    talker.ask(
        "OffsetCommit",
        version,
        group_id=group,
        retention_time_ms=retention_ms,
        topics=[{"name": name, "partitions": rows} for name in ("kept", "given-up")],
        **who,
    )


def offsets(talker: Talker, group: str) -> int:
    answer = talker.ask_quietly("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])
    return sum(len(topic.partitions) for topic in answer.groups[0].topics)


def left(talker: Talker, group: str) -> None:
    talker.ask("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])
    talker.ask("DescribeGroups", 6, groups=[group])


def offsets_expire(talker: Talker, version: int, retention_ms: int) -> None:
    """Which of them, the state of the group and its subscription say."""
    simple, member, foreign, empty = (f"{kind}-{version}" for kind in ("simple", "member", "foreign", "empty"))
    commit(talker, version, simple, retention_ms)
    for group, kind in ((member, "consumer"), (foreign, "connect"), (empty, "consumer")):
        who = join(talker, group, kind)
        commit(talker, version, group, retention_ms, generation_id_or_member_epoch=1, member_id=who)
        if group == empty:
            talker.ask_quietly("LeaveGroup", 5, group_id=group, members=[{"member_id": who}])
    eventually(lambda: offsets(talker, simple) == 0 == offsets(talker, empty), timeout_s=120)
    eventually(lambda: offsets(talker, member) == 1, timeout_s=120)

    def gone() -> bool:
        """Whoever has no offsets and no members is gone with the next look at it."""
        listed = talker.ask_quietly("ListGroups", 4).groups
        return not {simple, empty}.intersection(row.group_id for row in listed)

    eventually(gone)
    for group in (simple, member, foreign, empty):
        left(talker, group)


def offsets_expire_by_a_time_of_their_own(talker: Talker) -> None:
    for version in (2, 3, 4):
        commit(talker, version, f"lasting-{version}", 3_600_000)
        offsets_expire(talker, version, 1)
        left(talker, f"lasting-{version}")


def offsets_expire_by_the_retention_of_the_broker(talker: Talker) -> None:
    offsets_expire(talker, 8, -1)


def transactional_ids_expire(talker: Talker) -> None:
    used = init(talker, "expires")
    add(talker, "expires", used)
    talker.ask("EndTxn", 3, transactional_id="expires", producer_id=used[0], producer_epoch=used[1], committed=True)
    busy = init(talker, "stays")
    add(talker, "stays", busy)

    def expired() -> bool:
        answer = talker.ask_quietly("DescribeTransactions", 0, transactional_ids=["expires"])
        return bool(answer.transaction_states[0].error_code == NOT_FOUND)

    eventually(expired, timeout_s=60)
    add(talker, "expires", used)
    # An open transaction keeps its id.
    talker.ask("DescribeTransactions", 0, transactional_ids=["stays", "expires"])
    init(talker, "expires")


def transactions_time_out(talker: Talker) -> None:
    who = init(talker, "hangs", 500)
    add(talker, "hangs", who)

    def ended() -> bool:
        answer = talker.ask_quietly("DescribeTransactions", 0, transactional_ids=["hangs"])
        return bool(answer.transaction_states[0].transaction_state == "CompleteAbort")

    eventually(ended, timeout_s=60)
    talker.ask("DescribeTransactions", 0, transactional_ids=["hangs"])
    add(talker, "hangs", who)
    for committed in (True, False):
        end = {"transactional_id": "hangs", "producer_id": who[0], "producer_epoch": who[1], "committed": committed}
        talker.ask("EndTxn", 3, **end)
    init(talker, "hangs")


def groups_may_only_be_upgraded(talker: Talker) -> None:
    member = join(talker, "upgraded", "consumer")
    joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["kept"], "topic_partitions": []}
    beat = {"group_id": "upgraded", "member_id": "n"}
    answer = talker.ask_quietly("ConsumerGroupHeartbeat", 1, **beat, member_epoch=0, **joining)
    talker.note("upgraded", 1, (answer.error_code, answer.member_epoch))
    answer = talker.ask_quietly(
        "ConsumerGroupHeartbeat",
        1,
        **beat,
        member_epoch=-1,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=None,
        topic_partitions=None,
    )
    talker.note("left", 1, answer.error_code)
    described = talker.ask_quietly("ConsumerGroupDescribe", 1, group_ids=["upgraded"]).groups[0]
    talker.note("described", 1, (described.error_code, described.group_state, len(described.members)))
    again = talker.ask_quietly("Heartbeat", 4, group_id="upgraded", generation_id=1, member_id=member)
    talker.note("heartbeat", 4, again.error_code)


MINUTES = pytest.mark.skipif(not SOAK, reason="takes two minutes (PYLOGD_SOAK=1)")
SCENARIOS: list[Any] = [
    offsets_expire_by_a_time_of_their_own,
    pytest.param(offsets_expire_by_the_retention_of_the_broker, marks=MINUTES),
    transactional_ids_expire,
    transactions_time_out,
    groups_may_only_be_upgraded,
]


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_answers_are_kafkas(pair: tuple[Daemon, Daemon], play: Callable[[Talker], None]) -> None:
    talkers = [Timeless(broker) for broker in pair]
    for talker in talkers:
        play(talker)
        talker.client.socket.close()
    found = differences(*talkers)
    assert found == [], "\n".join(found)
