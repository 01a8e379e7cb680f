"""Transactions with the Java client in both generations of the protocol, Kafka's transaction tool, and our
`__transaction_state` in the eyes of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.java_transactions import TransactionDriver
from support.jvm import ToolHost
from support.produce import produce_request, records
from support.rawclient import Client
from support.tools import Tools, dump
from support.transactional import Fenced, TransactionalProducer, committed_offset, read
from support.wait import eventually

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module", params=[1, 2], ids=lambda version: f"transaction-version-{version}")
def generation(
    request: pytest.FixtureRequest, tools: ToolHost, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    """A broker whose cluster is at a transaction version: the client goes by it."""
    from support.target import TARGET, TARGETS

    daemon = TARGETS[TARGET](tmp_path_factory.mktemp(f"generation-{request.param}"))
    daemon.start()
    if request.param == 1:
        level = f"transaction.version={request.param}"
        Tools(tools, daemon.bootstrap).run("features", "downgrade", "--feature", level)
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def java(generation: Daemon) -> Iterator[TransactionDriver]:
    driver = TransactionDriver(generation.bootstrap)
    yield driver
    driver.close()


def late(producer: TransactionalProducer, topic: str) -> None:
    producer.send(topic, b"too-late")
    producer.commit()


def test_commit_abort_and_offsets(generation: Daemon, java: TransactionDriver, topic_name: str) -> None:
    Admin(generation.bootstrap).create(topic_name, partitions=2)
    wanted = []
    producer = java.producer(topic_name)
    for number in range(10):
        producer.begin()
        producer.send(topic_name, f"a{number}".encode())
        producer.send(topic_name, f"b{number}".encode(), 1)
        producer.send(topic_name, f"c{number}".encode())
        producer.send_offsets(f"g-{topic_name}", {(topic_name, 0): number})
        if number % 2:
            producer.commit()
            wanted += [f"a{number}".encode(), f"c{number}".encode()]
        else:
            producer.abort()
    producer.close()
    eventually(lambda: read(generation.bootstrap, topic_name, committed=True) == wanted)
    assert len(read(generation.bootstrap, topic_name, committed=False)) == 20
    assert len(read(generation.bootstrap, topic_name, committed=True, partition=1)) == 5
    eventually(lambda: committed_offset(generation.bootstrap, f"g-{topic_name}", topic_name) == 9)


def test_a_zombie_is_fenced(generation: Daemon, java: TransactionDriver, topic_name: str) -> None:
    Admin(generation.bootstrap).create(topic_name)
    zombie = java.producer(topic_name)
    zombie.begin()
    zombie.send(topic_name, b"zombie")
    successor = java.producer(topic_name)
    with pytest.raises(Fenced):
        late(zombie, topic_name)
    successor.begin()
    successor.send(topic_name, b"successor")
    successor.commit()
    eventually(lambda: read(generation.bootstrap, topic_name, committed=True) == [b"successor"])


def test_many_transactions_in_a_row(generation: Daemon, java: TransactionDriver, topic_name: str) -> None:
    """The next transaction begins while the markers of the one before may still be under way."""
    Admin(generation.bootstrap).create(topic_name, partitions=5)
    producer = java.producer(topic_name)
    for number in range(100):
        producer.begin()
        producer.send(topic_name, str(number).encode(), number % 5)
        producer.commit()
    for partition in range(5):
        wanted = [str(n).encode() for n in range(100) if n % 5 == partition]
        eventually(
            lambda p=partition, w=wanted: read(generation.bootstrap, topic_name, committed=True, partition=p) == w
        )


def test_the_transaction_log_is_clean(generation: Daemon, tools: ToolHost, topic_name: str) -> None:
    """DumpLogSegments decodes what the tests above have written."""
    texts = [
        dump(tools, path, "--deep-iteration", "--transaction-log-decoder")
        for path in sorted(generation.data.glob("__transaction_state-*/*.log"))
    ]
    text = "\n".join(texts)
    for complaint in ("isvalid: false", "invalid bytes", "Error at", "skipping", "nknown"):
        assert complaint not in text
    for status in range(6):
        assert f'"transactionStatus":{status}' in text


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_transactions_command(generation: Daemon, java: TransactionDriver, tools: ToolHost, topic_name: str) -> None:
    kafka = Tools(tools, generation.bootstrap)
    Admin(generation.bootstrap).create(topic_name)
    producer = java.producer(topic_name)
    producer.begin()
    producer.send(topic_name, b"open")
    [listed] = [row for row in rows(kafka.run("transactions", "list")) if row[0] == topic_name]
    assert listed[1] == "1"
    assert listed[3] == "Ongoing"
    described = kafka.run("transactions", "describe", "--transactional-id", topic_name)
    assert "Ongoing" in described
    assert f"{topic_name}-0" in described
    assert "60000" in described
    text = kafka.run("transactions", "describe-producers", "--topic", topic_name, "--partition", "0")
    [_, writer] = rows(text)
    assert writer[0] == listed[2]
    assert writer[-1] == "0"
    kafka.run("transactions", "abort", "--topic", topic_name, "--partition", "0", "--start-offset", "0")
    text = kafka.run("transactions", "describe-producers", "--topic", topic_name, "--partition", "0")
    assert rows(text)[1][-1] == "None"
    assert read(generation.bootstrap, topic_name, committed=True) == []


def test_a_transaction_is_terminated_by_force(
    generation: Daemon, java: TransactionDriver, tools: ToolHost, topic_name: str
) -> None:
    """It is aborted, and its producer is fenced."""
    kafka = Tools(tools, generation.bootstrap)
    Admin(generation.bootstrap).create(topic_name)
    producer = java.producer(topic_name)
    producer.begin()
    producer.send(topic_name, b"open")
    kafka.run("transactions", "forceTerminateTransaction", "--transactionalId", topic_name)
    described = kafka.run("transactions", "describe", "--transactional-id", topic_name)
    assert "Empty" in described
    with pytest.raises(Fenced):
        producer.commit()
    assert read(generation.bootstrap, topic_name, committed=True) == []


def test_listing_with_filters(generation: Daemon, java: TransactionDriver, tools: ToolHost, topic_name: str) -> None:
    kafka = Tools(tools, generation.bootstrap)
    Admin(generation.bootstrap).create(topic_name)
    names = [f"{topic_name}.{kind}" for kind in ("open", "idle")]
    producers = [java.producer(name) for name in names]
    producers[0].begin()
    producers[0].send(topic_name, b"open")

    def listed(*filters: str) -> list[str]:
        return [row[0] for row in rows(kafka.run("transactions", "list", *filters)) if row[0] in names]

    pattern = topic_name.replace(".", r"\.") + r"\.(open|idle)"
    assert sorted(listed("--transactional-id-pattern", pattern)) == sorted(names)
    assert listed("--transactional-id-pattern", pattern.replace("|idle", "")) == names[:1]
    assert listed("--transactional-id-pattern", "nobody") == []
    # An id without a transaction counts as one of long ago.
    assert listed("--duration-filter", "3600000") == names[1:]
    eventually(lambda: sorted(listed("--duration-filter", "1")) == sorted(names))
    producers[0].abort()


def test_console_consumer_in_a_group_with_an_isolation_level(
    generation: Daemon, java: TransactionDriver, tools: ToolHost, topic_name: str
) -> None:
    Admin(generation.bootstrap).create(topic_name)
    with java.producer(topic_name) as producer:
        for value, commit in ((b"first", True), (b"aborted", False), (b"second", True)):
            producer.begin()
            producer.send(topic_name, value)
            if commit:
                producer.commit()
            else:
                producer.abort()
    eventually(lambda: len(read(generation.bootstrap, topic_name, committed=True)) == 2)
    kafka = Tools(tools, generation.bootstrap)

    def consume(level: str, count: int) -> list[str]:
        options = ["--topic", topic_name, "--group", f"{topic_name}.{level}", "--from-beginning"]
        options += ["--isolation-level", level, "--max-messages", str(count), "--timeout-ms", "30000"]
        return kafka.run("console-consumer", *options).split()

    assert consume("read_committed", 2) == ["first", "second"]
    assert consume("read_uncommitted", 3) == ["first", "aborted", "second"]


def test_a_hanging_transaction_is_found_and_ended(
    new_broker: Callable[..., Daemon], tools: ToolHost, topic_name: str
) -> None:
    """Written without its coordinator's knowledge, as clients of old could: nobody will ever end it."""
    broker = new_broker({"transaction.partition.verification.enable": "false"})
    admin = Admin(broker.bootstrap)
    admin.create(topic_name)
    # A coordinator there must be, or the tool has nobody to ask.
    kafka = Tools(tools, broker.bootstrap)
    with Client(broker.port) as client:
        lost = records(b"lost", producer_id=7000, producer_epoch=3, base_sequence=0, transactional=True)
        answer = client.ask(produce_request(topic_name, lost, transactional_id="nobody"), 11)
        assert answer.responses[0].partition_responses[0].error_code == 0
        client.ask(produce_request(topic_name, records(b"behind")), 11)
    assert read(broker.bootstrap, topic_name, committed=True) == []
    found = kafka.run("transactions", "find-hanging", "--broker-id", "1")
    [hanging] = [row for row in rows(found) if row[0] == topic_name]
    assert hanging[:4] == [topic_name, "0", "7000", "3"]
    kafka.run("transactions", "abort", "--topic", topic_name, "--partition", "0", "--start-offset", "0")
    assert read(broker.bootstrap, topic_name, committed=True) == [b"behind"]
