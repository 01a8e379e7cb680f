"""Transactional producers and a read_committed reader that work on while brokers are killed, and what must be true of
them afterwards.

Every transaction writes its number to every partition of a topic. Its producer knows afterwards that it is committed,
that it is aborted, or, when it was fenced or gave up in the middle of the commit, neither.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from support.committed_group import committed_reader_settings

CALL_S = 10
GIVE_UP_S = 120


class Outcomes:
    def __init__(self) -> None:
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []


class TransactionLoad:
    """One producer in a thread of its own. `name` is its transactional id and begins its values."""

    def __init__(self, bootstrap: str, topic: str, name: str, partitions: int, seed: int) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 10_000,
            "socket.timeout.ms": 4000,
            "request.timeout.ms": 3000,
            "delivery.timeout.ms": 10_000,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "linger.ms": 0,
            "log_level": 0,
        }
        self._topic = topic
        self._name = name
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self.outcomes = Outcomes()
        self.failure: BaseException | None = None
        self._producer = self._new()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def done(self) -> int:
        if self.failure is not None:
            raise self.failure
        return len(self.outcomes.committed)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * GIVE_UP_S)
        assert not self._thread.is_alive(), "a producer hangs"
        if self.failure is not None:
            raise self.failure

    def _new(self) -> confluent_kafka.Producer:
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            producer = confluent_kafka.Producer(self._settings)
            try:
                self._call(producer.init_transactions, CALL_S)
                return producer
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    @staticmethod
    def _call(call: Any, *args: Any) -> None:
        """Again and again while the library says that this may help."""
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                call(*args)
                return
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                number += 1
                self._transact(f"{self._name}:{number}", self._chance.random() < 0.7)
        except BaseException as problem:
            self.failure = problem

    def _transact(self, value: str, commit: bool) -> None:
        producer = self._producer
        ending = False
        try:
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self._topic, value, partition=partition)
            if commit:
                ending = True
                self._call(producer.commit_transaction, CALL_S)
                self.outcomes.committed.append(value)
                return
            producer.flush(CALL_S)
        except KafkaException as problem:
            error = problem.args[0]
            if error.fatal() or not error.txn_requires_abort():
                # Perhaps the decision is written and the answer was lost: the successor cannot tell.
                (self.outcomes.unknown if ending else self.outcomes.aborted).append(value)
                self._producer = self._new()
                return
        try:
            self._call(producer.abort_transaction, CALL_S)
        except KafkaException:
            self._producer = self._new()
        self.outcomes.aborted.append(value)


class CommittedReader:
    """Follows a topic with read_committed from its beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = confluent_kafka.Consumer(committed_reader_settings(bootstrap, f"reader-{topic}"))
        self._consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
        self.values: dict[int, list[str]] = {index: [] for index in range(partitions)}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.values[message.partition()].append(message.value().decode())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self._consumer.close()


def check(loads: list[TransactionLoad], values: dict[int, list[str]]) -> None:
    """What a read_committed reader has seen is what the producers were told: whole transactions, once, in order."""
    committed = [value for load in loads for value in load.outcomes.committed]
    aborted = {value for load in loads for value in load.outcomes.aborted}
    unknown = {value for load in loads for value in load.outcomes.unknown}
    first = set(values[0])
    for index, found in values.items():
        twice = [value for value, count in Counter(found).items() if count > 1]
        assert not twice, f"partition {index}: read twice {twice[:5]}"
        assert not aborted.intersection(found), f"partition {index}: aborted {sorted(aborted.intersection(found))[:5]}"
        lost = [value for value in committed if value not in set(found)]
        assert not lost, f"partition {index}: lost {lost[:5]}"
        assert set(found) == first, f"partition {index}: half a transaction {sorted(first ^ set(found))[:5]}"
        assert set(found) <= unknown.union(committed)
        for load in loads:
            own = [int(value.partition(":")[2]) for value in found if value.startswith(f"{load._name}:")]
            assert own == sorted(own), f"partition {index}: {load._name} out of order"
