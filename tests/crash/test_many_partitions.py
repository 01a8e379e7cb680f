"""Thousands of partitions in one process: created, written, restarted, read; few files open, little memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.admin import Admin
from support.clients import Confluent, Message
from support.daemon import Daemon
from support.scale import scaled

confluent = Confluent()
TOPICS, PER_TOPIC = scaled(test=8, soak=8), 500
EVERY = scaled(test=20, soak=1)


@pytest.mark.pylogd_only
@pytest.mark.timeout(scaled(test=300, soak=1200))
def test_four_thousand_partitions(new_broker: Callable[..., Daemon]) -> None:
    broker = new_broker()
    admin = Admin(broker.bootstrap)
    names = [admin.create(f"many-{n}", partitions=PER_TOPIC) for n in range(TOPICS)]
    written = range(0, PER_TOPIC, EVERY)
    for name in names:
        placed = confluent.produce(broker.bootstrap, name, [Message(b"%d" % p, partition=p) for p in written])
        assert placed == [(p, 0) for p in written]
    for stop in ("cleanly", "killed"):
        if stop == "cleanly":
            broker.restart()
        else:
            broker.kill()
            broker.start()
        # Opening a partition costs no descriptor until it is used.
        assert broker.open_files() < 1000
        for name in names:
            assert Admin(broker.bootstrap).partitions(name) == PER_TOPIC
            for partition in written[:: max(1, len(written) // 5)]:
                [message] = confluent.consume(broker.bootstrap, name, 1, partition=partition)
                assert message.value == b"%d" % partition
        assert broker.rss_bytes() < 250_000_000
    placed = confluent.produce(broker.bootstrap, names[0], [Message(b"again", partition=p) for p in written])
    assert placed == [(p, 1) for p in written]


@pytest.mark.pylogd_only
def test_an_idle_broker_is_small(new_broker: Callable[..., Daemon]) -> None:
    broker = new_broker()
    assert broker.rss_bytes() < 60_000_000


def test_topics_that_are_deleted_at_once(new_broker: Callable[..., Daemon]) -> None:
    """What is written behind a creation must not stumble over the deletion."""
    broker = new_broker()
    admin = Admin(broker.bootstrap)
    for _ in range(scaled(test=100, soak=3000)):
        admin.create("fleeting", partitions=3)
        admin.delete("fleeting")
    admin.create("fleeting")
    assert confluent.produce(broker.bootstrap, "fleeting", [Message(b"x")]) == [(0, 0)]
    broker.restart()
    assert [m.value for m in confluent.consume(broker.bootstrap, "fleeting", 1)] == [b"x"]
