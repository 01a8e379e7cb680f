"""Requests by chance to us and to Apache Kafka: whatever is asked, the answers must be the same.

`make soak` asks many more of them; PYLOGD_SEED chooses other ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest
from support.daemon import Daemon
from support.odd_requests import MAKERS, Request, prepare, resolved
from support.scale import scaled
from support.transcript import beside_kafka, differences, talking

pytestmark = pytest.mark.jvm

COUNT = scaled(test=60, soak=3000)
SEED = int(os.environ.get("PYLOGD_SEED", "1"))
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "num.partitions": "3",
    # Kafka unpacks every batch, and we do if told to.
    "pylogd.record.validation": "full",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with beside_kafka(tmp_path_factory.mktemp("odd"), SETTINGS) as both:
        with talking(*both) as talkers:
            now_ms = int(time.time() * 1000)
            for talker in talkers:
                prepare(talker, now_ms)
        yield both


@pytest.mark.parametrize("make", MAKERS, ids=lambda function: function.__name__)
def test_same_answers(pair: tuple[Daemon, Daemon], make: Callable[[Random], Request]) -> None:
    chance = Random(f"{make.__name__} {SEED}")
    requests = [make(chance) for _ in range(COUNT)]
    found = []
    with talking(*pair) as talkers:
        for request in requests:
            name, version, values = request
            for talker in talkers:
                talker.transcript.clear()
                talker.ask(name, version, **resolved(talker, values))
            lines = differences(*talkers)
            if lines:
                found.append("\n  ".join([f"{name} v{version} {values}", *lines]))
    assert not found, f"{len(found)} of {COUNT} differ:\n" + "\n".join(found[:30])
