"""Kafka Streams with `processing.guarantee=exactly_once_v2`: a word count that is killed and started again misses no
word and counts none twice."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.jvm import compiled, tool_command
from support.scale import scaled

pytestmark = pytest.mark.jvm
PARTITIONS = 2
KILLS = scaled(test=2, soak=20)
LINES = 200
WORDS = ["log", "offset", "leader", "epoch", "batch", "fetch", "commit"]


def counts(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """Every committed count of every word, in order."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, isolation_level="read_committed")
    try:
        partitions = [kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: dict[str, list[int]] = {}
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=200).values():
                for record in records:
                    found.setdefault(record.key.decode(), []).append(int(record.value))
        return found
    finally:
        consumer.close()


def test_words_are_counted_exactly_once(new_broker: Callable[..., Daemon], tmp_path: Path, topic_name: str) -> None:
    broker = new_broker({"group.min.session.timeout.ms": "100"})
    admin = Admin(broker.bootstrap)
    source, target = f"{topic_name}.lines", f"{topic_name}.counts"
    admin.create(source, partitions=PARTITIONS)
    admin.create(target, partitions=PARTITIONS)
    command = tool_command("WordCount", broker.bootstrap, topic_name, str(tmp_path / "state"), source, target)
    command[command.index("-cp") + 1] += os.pathsep + str(compiled("WordCount.java"))
    log = tmp_path / "streams.log"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    chance = random.Random(3)
    written: Counter[str] = Counter()

    def write() -> None:
        for _ in range(LINES):
            line = chance.choices(WORDS, k=3)
            written.update(line)
            producer.produce(source, " ".join(line), partition=chance.randrange(PARTITIONS))
        assert producer.flush(60) == 0

    def counted_up_to(words: int) -> None:
        deadline = time.monotonic() + 120
        while (found := sum(map(len, counts(broker.bootstrap, target).values()))) < words:
            assert time.monotonic() < deadline, f"{found} of {words}\n{log.read_text()[-5000:]}\n{broker.log_tail()}"
            time.sleep(0.05)

    process = None
    try:
        for number in range(KILLS + 1):
            with open(log, "ab") as out:
                process = subprocess.Popen(command, stdout=out, stderr=out)
            before = written.total()
            write()
            if number < KILLS:
                # Somewhere in the middle, before it has read everything.
                counted_up_to(before + chance.randrange(1, 400))
                process.kill()
                process.wait()
        counted_up_to(written.total())
    finally:
        if process is not None:
            process.kill()
            process.wait()
    assert counts(broker.bootstrap, target) == {word: list(range(1, n + 1)) for word, n in written.items()}
