"""An Apache Kafka broker under a pylogd controller, beside a broker of ours: it registers, leads and follows, carries
a group, is fenced when it dies and gives its leaderships away when it is asked to stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.cluster import KafkaBroker, PylogdBroker, PylogdController, cluster_id_of, wait_for_brokers
from support.daemon import Daemon
from support.wait import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.pylogd_only]
JVM, OURS = 1, 2
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "offsets.topic.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, Daemon]]:
    quick = {"broker.session.timeout.ms": "4000", "auto.leader.rebalance.enable": "false"}
    controller = PylogdController(tmp_path / "controller", quick, 100)
    controller.start()
    where = controller.address
    made: dict[int, Daemon] = {
        JVM: KafkaBroker(tmp_path / "jvm", JVM, where, cluster_id_of(controller), SETTINGS),
        OURS: PylogdBroker(tmp_path / "ours", OURS, where, SETTINGS),
    }
    try:
        for broker in made.values():
            broker.launch()
        for broker in made.values():
            broker.wait_until_ready()
            wait_for_brokers(broker.port, 2)
        yield made
        controller.assert_log_clean()
        made[OURS].assert_log_clean()
    finally:
        for daemon in (*made.values(), controller):
            daemon.kill()


def test_a_broker_of_the_other_make(brokers: dict[int, Daemon]) -> None:
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    admin = AdminClient({"bootstrap.servers": brokers[OURS].bootstrap, "log_level": 0})

    def state() -> dict[int, tuple[int, set[int]]]:
        parts = admin.list_topics("both", timeout=30).topics["both"].partitions
        return {part.id: (part.leader, set(part.isrs)) for part in parts.values()}

    sent: list[bytes] = []

    def produce(count: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})
        failed = []
        for _ in range(count):
            sent.append(b"%08d" % len(sent))
            partition = len(sent) % 2
            producer.produce(
                "both", sent[-1], partition=partition, on_delivery=lambda error, _: error and failed.append(error)
            )
        assert producer.flush(60) == 0
        assert failed == []

    admin.create_topics([NewTopic("both", 2, replica_assignment=[[JVM, OURS], [OURS, JVM]])])["both"].result(30)
    whole = {0: (JVM, {JVM, OURS}), 1: (OURS, {JVM, OURS})}
    eventually(lambda: state() == whole)
    produce(1000)

    # A crash is noticed, and the leadership comes over.
    alone = {0: (OURS, {OURS}), 1: (OURS, {OURS})}
    brokers[JVM].kill()
    eventually(lambda: state() == alone)
    produce(200)
    brokers[JVM].start()
    eventually(lambda: state() == {0: (OURS, {JVM, OURS}), 1: (OURS, {JVM, OURS})}, timeout_s=60)
    produce(200)

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "both", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["both"])
    found: list[bytes] = []
    while len(found) < len(sent):
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {len(sent)}"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    assert sorted(found) == sent
    for partition in range(2):
        copies = {
            b"".join(path.read_bytes() for path in sorted((broker.data / f"both-{partition}").glob("*.log")))
            for broker in brokers.values()
        }
        assert len(copies) == 1
    brokers[JVM].terminate()
    eventually(lambda: state() == alone)
