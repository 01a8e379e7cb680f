"""What a broker remembers of idempotent producers survives its restarts, clean or not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pylogd.protocol import batch
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.init_producer_id import InitProducerIdRequest
from support.admin import Admin
from support.daemon import Daemon
from support.produce import produce_request
from support.rawclient import Client
from support.wait import eventually


def send(broker: Daemon, producer: int, sequence: int, *, epoch: int = 0, count: int = 2) -> tuple[ErrorCode, int]:
    # Of today: a producer whose last record is older than a day is forgotten when the log is loaded.
    now_ms = int(time.time() * 1000)
    rows = [batch.Record(n, now_ms, b"k", b"x", []) for n in range(count)]
    data = bytes(batch.build_batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))
    with Client(broker.port) as client:
        answer = client.ask(produce_request("sequenced", data), 9)
    part = answer.responses[0].partition_responses[0]
    return ErrorCode(part.error_code), part.base_offset


def new_producer(broker: Daemon) -> int:
    def ask() -> list[int]:
        with Client(broker.port) as client:
            answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        return [answer.producer_id] if answer.error_code == 0 else []

    [producer] = eventually(ask)
    return producer


@pytest.mark.parametrize("stop", ["cleanly", "killed"])
def test_sequences_survive(new_broker: Callable[..., Daemon], stop: str) -> None:
    broker = new_broker({"log.retention.ms": "-1"})
    Admin(broker.bootstrap).create("sequenced")
    first, second = new_producer(broker), new_producer(broker)
    assert first != second
    for n in range(6):
        assert send(broker, first, 2 * n) == (ErrorCode.NONE, 2 * n)
    assert send(broker, second, 0, epoch=3) == (ErrorCode.NONE, 12)
    if stop == "cleanly":
        broker.restart()
    else:
        broker.kill()
        broker.start()
    # The last batch of each is known by its offset; after a restart Kafka remembers no more than that.
    assert eventually(lambda: send(broker, first, 10)[0] is ErrorCode.NONE)
    assert send(broker, first, 10) == (ErrorCode.NONE, 10)
    assert send(broker, second, 0, epoch=3) == (ErrorCode.NONE, 12)
    assert send(broker, first, 20)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, second, 0, epoch=2)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(broker, first, 12) == (ErrorCode.NONE, 14)
    # Ids that were handed out are not handed out again.
    assert new_producer(broker) not in (first, second)
