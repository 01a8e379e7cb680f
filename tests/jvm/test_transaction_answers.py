"""The transaction APIs at every version, asked of us and of Apache Kafka in the same order: the answers must be the
same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.daemon import Daemon
from support.produce import records
from support.transcript import Talker, beside_kafka, differences, versions
from support.wait import eventually

pytestmark = pytest.mark.jvm

SETTINGS = {"auto.create.topics.enable": "false", "transaction.max.timeout.ms": "60000"}
NOBODY = 999_999


class TransactionTalker(Talker):
    """Producer ids are numbered in the order in which they were given out; times are left out."""

    def __init__(self, broker: Daemon) -> None:
        super().__init__(broker)
        self._producers: dict[int, str] = {}

    def plain(self, value: Any, version: int, field: str = "") -> Any:
        if field == "producer_id" and isinstance(value, int) and value not in (-1, NOBODY):
            return self._producers.setdefault(value, f"#{len(self._producers) + 1}")
        if field in ("transaction_start_time_ms", "timestamp"):
            return min(value, 0)
        return super().plain(value, version, field)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with beside_kafka(tmp_path_factory.mktemp("transactions"), SETTINGS) as both:
        yield both


Scenario = Callable[[TransactionTalker], None]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


# -- steps


def coordinated(talker: Talker) -> None:
    """Both internal topics are there and loaded."""

    def ready() -> bool:
        for kind in (0, 1):
            found = talker.ask_quietly("FindCoordinator", 4, key_type=kind, coordinator_keys=["g"]).coordinators[0]
            if found.error_code != 0:
                return False
        group = talker.ask_quietly("OffsetFetch", 8, groups=[{"group_id": "g", "topics": None}])
        listed = talker.ask_quietly("ListTransactions", 0)
        described = talker.ask_quietly("DescribeTransactions", 0, transactional_ids=["none"])
        # The first producer id makes the broker ask for a block of them.
        identity = talker.ask_quietly("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
        codes = (group.groups[0].error_code, listed.error_code, identity.error_code)
        return codes == (0, 0, 0) and _state(described).error_code == 105

    eventually(ready)


def _state(described: Any) -> Any:
    return described.transaction_states[0]


def init(talker: Talker, name: str, version: int = 4, **more: Any) -> tuple[int, int]:
    """Until the coordinator has ended what was open."""
    found: list[Any] = []

    def done() -> bool:
        ask = {"transactional_id": name, "transaction_timeout_ms": 30_000, **more}
        found[:] = [talker.ask_quietly("InitProducerId", version, **ask)]
        return found[0].error_code not in (14, 51)

    eventually(done)
    talker.note("InitProducerId", version, talker.plain(found[0], version))
    return found[0].producer_id, found[0].producer_epoch


def settled(talker: Talker, name: str) -> None:
    """Its markers are written; then what is known of it is noted."""

    def complete() -> bool:
        answer = talker.ask_quietly("DescribeTransactions", 0, transactional_ids=[name])
        return not _state(answer).transaction_state.startswith("Prepare")

    eventually(complete)
    talker.ask("DescribeTransactions", 0, transactional_ids=[name])


def topics(*partitions: tuple[str, int]) -> list[dict[str, Any]]:
    names = dict.fromkeys(topic for topic, _ in partitions)
    return [{"name": name, "partitions": [i for t, i in partitions if t == name]} for name in names]


def add(talker: Talker, version: int, name: str, who: tuple[int, int], *partitions: tuple[str, int]) -> Any:
    return talker.ask(
        "AddPartitionsToTxn",
        version,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=topics(*partitions),
    )


def end(talker: Talker, version: int, name: str, who: tuple[int, int], commit: bool) -> Any:
    return talker.ask(
        "EndTxn", version, transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit
    )


def produce(
    talker: Talker, version: int, name: str, who: tuple[int, int], topic: str, index: int = 0, sequence: int = 0
) -> Any:
    data = records(b"x", producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=True)
    return talker.ask(
        "Produce",
        version,
        transactional_id=name,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            {"name": topic, "topic_id": talker.topic_id(topic), "partition_data": [{"index": index, "records": data}]}
        ],
    )


def commit_offsets(
    talker: Talker, version: int, name: str, who: tuple[int, int], group: str, topic: str, index: int = 0, **more: Any
) -> Any:
    return talker.ask(
        "TxnOffsetCommit",
        version,
        transactional_id=name,
        group_id=group,
        producer_id=who[0],
        producer_epoch=who[1],
        topics=[{"name": topic, "partitions": [{"partition_index": index, "committed_offset": version}]}],
        **more,
    )


def offsets(talker: Talker, group: str, topic: str, stable: bool = False) -> Any:
    wanted = [{"name": topic, "partition_indexes": [0]}]
    return talker.ask("OffsetFetch", 8, groups=[{"group_id": group, "topics": wanted}], require_stable=stable)


# -- scenarios


@scenario
def identities(talker: TransactionTalker) -> None:
    for version in versions("InitProducerId"):
        for name in (f"id-{version}", ""):
            for timeout_ms in (0, -1, 60_001, 60_000):
                talker.ask("InitProducerId", version, transactional_id=name, transaction_timeout_ms=timeout_ms)
        name = f"id-{version}"
        producer_id, epoch = init(talker, name, version)
        for expected in ((producer_id, epoch), (producer_id, epoch), (producer_id, epoch + 9), (NOBODY, 0), (-1, 3)):
            talker.ask(
                "InitProducerId",
                version,
                transactional_id=name,
                transaction_timeout_ms=1000,
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
        talker.ask(
            "InitProducerId",
            version,
            transactional_id=f"new-{version}",
            transaction_timeout_ms=1000,
            producer_id=NOBODY,
            producer_epoch=7,
        )


@scenario
def classic(talker: TransactionTalker) -> None:
    """The first generation: partitions added by the client."""
    talker.create_topic("classic", 2)
    for version in range(4):
        name, group = f"classic-{version}", f"group-{version}"
        who = init(talker, name)
        stranger, stale, future = (NOBODY, 0), (who[0], who[1] - 1), (who[0], who[1] + 1)
        end(talker, version, name, who, True)
        end(talker, version, name, who, False)
        produce(talker, 9 + version % 3, name, who, "classic", version % 2)
        for other in (stranger, stale, future):
            add(talker, version, name, other, ("classic", 0))
        add(talker, version, "", who, ("classic", 0))
        add(talker, version, "nobody", who, ("classic", 0))
        add(talker, version, name, who, ("classic", 0), ("classic", 7), ("missing", 0))
        add(talker, version, name, who, ("classic", 0), ("classic", 1))
        add(talker, version, name, who, ("classic", 1))
        talker.ask("DescribeTransactions", 0, transactional_ids=[name, "", "nobody"])
        for sequence, other in ((0, who), (0, who), (1, who), (5, who), (0, stale), (0, future), (0, stranger)):
            produce(talker, 3 + version * 2, name, other, "classic", 0, sequence)
        commit_offsets(talker, version, name, who, group, "classic")
        for other in (stranger, stale, future, who):
            talker.ask(
                "AddOffsetsToTxn",
                version,
                transactional_id=name,
                producer_id=other[0],
                producer_epoch=other[1],
                group_id=group,
            )
        for other in (stranger, stale, future, who):
            commit_offsets(talker, version, name, other, group, "classic")
        commit_offsets(talker, version, name, who, group, "missing")
        commit_offsets(talker, version, name, who, group, "classic", 9)
        commit_offsets(talker, version, name, who, "", "classic")
        if version == 3:
            commit_offsets(talker, version, name, who, group, "classic", generation_id=4, member_id="m")
        offsets(talker, group, "classic")
        offsets(talker, group, "classic", stable=True)
        for other in (stranger, stale, future):
            end(talker, version, name, other, True)
        end(talker, version, "", who, True)
        end(talker, version, "nobody", who, True)
        end(talker, version, name, who, version % 2 == 0)
        settled(talker, name)
        offsets(talker, group, "classic", stable=True)
        end(talker, version, name, who, True)
        end(talker, version, name, who, False)
        # Ended: what comes now was not part of it.
        produce(talker, 10, name, who, "classic", 0, 2)
        produce(talker, 11, name, who, "classic", 0, 2)
        commit_offsets(talker, version, name, who, group, "classic")
        # A new producer aborts what the old one left open.
        add(talker, version, name, who, ("classic", 0))
        produce(talker, 10, name, who, "classic", 0, 2)
        successor = init(talker, name)
        settled(talker, name)
        produce(talker, 10, name, who, "classic", 0, 3)
        add(talker, version, name, who, ("classic", 0))
        add(talker, version, name, successor, ("classic", 0))
        produce(talker, 10, name, successor, "classic", 0, 0)
        end(talker, version, name, successor, True)
        settled(talker, name)


@scenario
def second(talker: TransactionTalker) -> None:
    """The second generation: partitions are added by what is written, and every end raises the epoch."""
    talker.create_topic("second", 2)
    for round_, version in enumerate((12, 13, 12)):
        name, group = f"second-{round_}", f"second-group-{round_}"
        who = init(talker, name, 5)
        end(talker, 5, name, who, True)
        produce(talker, version, name, (NOBODY, 0), "second")
        produce(talker, version, name, (who[0], who[1] + 1), "second")
        produce(talker, version, "nobody", who, "second")
        produce(talker, version, name, who, "second", 0, 3)
        produce(talker, version, name, who, "second", 0, 0)
        produce(talker, version, name, who, "second", 0, 1)
        produce(talker, version, name, who, "second", 1, 0)
        produce(talker, version, name, who, "second", 8, 0)
        commit_offsets(talker, 5, name, who, group, "second")
        commit_offsets(talker, 5, name, (who[0], who[1] + 1), group, "second")
        commit_offsets(talker, 5, name, (NOBODY, 0), group, "second")
        talker.ask("DescribeTransactions", 0, transactional_ids=[name])
        end(talker, 5, name, (who[0], who[1] + 1), True)
        answer = end(talker, 5, name, who, round_ != 1)
        after = (answer.producer_id, answer.producer_epoch)
        settled(talker, name)
        end(talker, 5, name, who, True)
        end(talker, 5, name, who, False)
        end(talker, 5, name, after, True)
        produce(talker, version, name, who, "second", 0, 2)
        offsets(talker, group, "second", stable=True)
        answer = end(talker, 5, name, after, False)
        settled(talker, name)
        bumped = (answer.producer_id, answer.producer_epoch)
        produce(talker, version, name, bumped, "second", 0, 1)
        produce(talker, version, name, bumped, "second", 0, 0)
        end(talker, 4, name, bumped, True)
        settled(talker, name)
        init(talker, name, 5)


@scenario
def verification(talker: TransactionTalker) -> None:
    """What brokers ask each other: versions 4 and 5 of AddPartitionsToTxn."""
    talker.create_topic("verified", 2)
    for version in (4, 5):
        first, other = f"verify-{version}-a", f"verify-{version}-b"
        who, them = init(talker, first), init(talker, other)

        def ask(*wanted: Any, version: int = version) -> None:
            talker.ask(
                "AddPartitionsToTxn",
                version,
                transactions=[
                    {
                        "transactional_id": name,
                        "producer_id": identity[0],
                        "producer_epoch": identity[1],
                        "verify_only": only,
                        "topics": topics(*partitions),
                    }
                    for name, identity, only, partitions in wanted
                ],
            )

        zero, one = ("verified", 0), ("verified", 1)
        ask((first, who, True, (zero,)))
        ask((first, who, False, (zero,)), (other, them, True, (one,)))
        ask((first, who, True, (zero, one)), (other, them, False, (zero, one)))
        ask((first, (NOBODY, 0), True, (zero,)), (other, (them[0], 9), False, (zero,)))
        ask(("nobody", who, True, (zero,)), ("", who, True, (zero,)))
        ask((first, who, True, (("missing", 0), zero)))
        end(talker, 4, first, who, True)
        settled(talker, first)
        ask((first, who, True, (zero,)))


@scenario
def markers(talker: TransactionTalker) -> None:
    talker.create_topic("marked", 2)

    def write(version: int, who: tuple[int, int], coordinator_epoch: int, index: int = 0, **more: Any) -> None:
        talker.ask(
            "WriteTxnMarkers",
            version,
            markers=[
                {
                    "producer_id": who[0],
                    "producer_epoch": who[1],
                    "transaction_result": False,
                    "coordinator_epoch": coordinator_epoch,
                    "topics": [{"name": "marked", "partition_indexes": [index]}],
                    **more,
                }
            ],
        )

    def describe() -> None:
        answer = talker.ask_quietly("DescribeProducers", 0, topics=[{"name": "marked", "partition_indexes": [0, 1]}])
        talker.note("DescribeProducers", 0, talker.plain(answer, 0))

    for version in versions("WriteTxnMarkers"):
        talker.ask("WriteTxnMarkers", version, markers=[])
        name = f"marked-{version}"
        init(talker, name)
        who = init(talker, name)
        add(talker, 3, name, who, ("marked", 0))
        produce(talker, 11, name, who, "marked")
        describe()
        write(version, who, 5, 9)
        write(version, (who[0], who[1] - 1), 5)
        if version == 2:
            write(version, who, 5, transaction_version=2)
        write(version, (who[0], who[1] + 1), 5, transaction_version=2)
        describe()
        write(version, (who[0], who[1] + 1), 5, transaction_version=2)
        write(version, (who[0], who[1] + 2), 4)
        write(version, (who[0], who[1] + 2), 5)
        describe()


@scenario
def listings(talker: TransactionTalker) -> None:
    talker.create_topic("listed", 2)
    first = init(talker, "list.a")
    init(talker, "list.b")
    add(talker, 3, "list.a", first, ("listed", 0))

    def ask(version: int, **filters: Any) -> None:
        answer = talker.ask_quietly("ListTransactions", version, **filters)
        rows = [(row.transactional_id, row.transaction_state) for row in answer.transaction_states]
        talker.note("ListTransactions", version, [answer.error_code, answer.unknown_state_filters, str(sorted(rows))])

    for version in versions("ListTransactions"):
        for states in ([], ["Ongoing"], ["Empty", "Ongoing"], ["Nonsense", "CompleteCommit"], ["Dead"]):
            ask(version, state_filters=states)
        ask(version, producer_id_filters=[first[0]])
        ask(version, producer_id_filters=[NOBODY])
        for duration_ms in (-1, 3_600_000):
            ask(version, duration_filter=duration_ms, state_filters=["Ongoing"])
        for pattern in ("list.*", "list\\..", "list", "", None, "(", "[a-"):
            ask(version, transactional_id_pattern=pattern)


@scenario
def isolation(talker: TransactionTalker) -> None:
    """What consumers of both isolation levels are told while transactions are open, aborted and committed."""
    topic_id = talker.create_topic("isolated", 1)

    def look() -> None:
        for level in (0, 1):
            for version in (4, 12, 16):
                partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                answer = talker.ask_quietly(
                    "Fetch",
                    version,
                    max_wait_ms=0,
                    max_bytes=1 << 20,
                    isolation_level=level,
                    session_epoch=-1,
                    topics=[{"topic": "isolated", "topic_id": topic_id, "partitions": [partition]}],
                )
                [found] = answer.responses[0].partitions
                aborted = (
                    None
                    if found.aborted_transactions is None
                    else [
                        (talker.plain(row.producer_id, 0, "producer_id"), row.first_offset)
                        for row in found.aborted_transactions
                    ]
                )
                talker.note("Fetch", version, [found.high_watermark, found.last_stable_offset, str(aborted)])
                talker.note("records", version, len(bytes(found.records or b"")))
            for timestamp in (-1, -2, -3):
                talker.ask(
                    "ListOffsets",
                    7,
                    replica_id=-1,
                    isolation_level=level,
                    topics=[
                        {
                            "name": "isolated",
                            "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}],
                        }
                    ],
                )

    first, other = init(talker, "isolated-a"), init(talker, "isolated-b")
    add(talker, 3, "isolated-a", first, ("isolated", 0))
    add(talker, 3, "isolated-b", other, ("isolated", 0))
    look()
    produce(talker, 11, "isolated-a", first, "isolated")
    look()
    produce(talker, 11, "isolated-b", other, "isolated")
    produce(talker, 11, "isolated-a", first, "isolated", 0, 1)
    look()
    end(talker, 4, "isolated-b", other, False)
    settled(talker, "isolated-b")
    look()
    end(talker, 4, "isolated-a", first, True)
    settled(talker, "isolated-a")
    look()


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_answers_are_kafkas(pair: tuple[Daemon, Daemon], play: Scenario) -> None:
    talkers = [TransactionTalker(broker) for broker in pair]
    for talker in talkers:
        coordinated(talker)
        play(talker)
        talker.client.socket.close()
    found = differences(*talkers)
    assert found == [], "\n".join(found)
