"""A consumer group that reads with read_committed and commits what it has read, while brokers are killed."""

from __future__ import annotations

import threading
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException


def committed_reader_settings(bootstrap: str, group: str) -> dict[str, Any]:
    """Of a consumer that reads what is committed and is quick to notice that a broker is gone."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "socket.timeout.ms": 4000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }


class CommittedGroup:
    """Members in threads of their own. What they read again must not have been committed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, members: int, **settings: str) -> None:
        self._settings = {
            **committed_reader_settings(bootstrap, f"group-{topic}-{len(settings)}"),
            **({} if settings else {"session.timeout.ms": 6000}),
            **settings,
        }
        self._topic = topic
        self._lock = threading.Lock()
        #: partition -> offset -> value
        self._read: dict[int, dict[int, str]] = {index: {} for index in range(partitions)}
        self._committed = dict.fromkeys(range(partitions), 0)
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(members)]
        for thread in self._threads:
            thread.start()

    @property
    def values(self) -> dict[int, list[str]]:
        """In the order of the log."""
        with self._lock:
            return {index: [found[at] for at in sorted(found)] for index, found in self._read.items()}

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            ends: dict[int, int] = {}
            for message in consumer.consume(200, 0.2):
                if message.error() is None:
                    self._take(message)
                    ends[message.partition()] = message.offset() + 1
            if ends:
                self._commit(consumer, ends)
        consumer.close()

    def _take(self, message: Any) -> None:
        index, offset, value = message.partition(), message.offset(), message.value().decode()
        with self._lock:
            if offset < self._committed[index]:
                self.problems.append(f"partition {index}: {offset} again, {self._committed[index]} was committed")
            if self._read[index].setdefault(offset, value) != value:
                self.problems.append(f"partition {index}: {offset} is {value!r} and {self._read[index][offset]!r}")

    def _commit(self, consumer: Any, ends: dict[int, int]) -> None:
        """One that is refused belongs to somebody else by now, who begins where the last one that counts was."""
        wanted = [confluent_kafka.TopicPartition(self._topic, index, end) for index, end in ends.items()]
        try:
            answers = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return
        with self._lock:
            for each in answers:
                if each.error is None:
                    self._committed[each.partition] = max(self._committed[each.partition], each.offset)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
