"""Transactional producers of kafka-python, aiokafka and confluent-kafka behind one small face."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

TIMEOUT_S = 60


class Fenced(Exception):
    """The library says that another producer with the same transactional id has taken over."""


class TransactionalProducer(ABC):
    """Open transactions with `begin`; `send` returns the offset, so the record is in the log when it returns."""

    name: str

    @abstractmethod
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        """Returns when the producer has its id and epoch."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> int: ...

    @abstractmethod
    def send_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class KafkaPythonTransactions(TransactionalProducer):
    name = "kafka-python"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()

    def _run(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise Fenced from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        future = self._run(lambda: self._producer.send(topic, value=value, partition=partition))
        return self._run(future.get, TIMEOUT_S).offset  # type: ignore[no-any-return]

    def send_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        wanted = {kafka.TopicPartition(*tp): kafka.OffsetAndMetadata(at, "", -1) for tp, at in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction, wanted, group)

    def commit(self) -> None:
        self._run(self._producer.commit_transaction)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=5)


class AioKafkaTransactions(TransactionalProducer):
    """On a loop of its own, which runs only while something is asked."""

    name = "aiokafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            await producer.start()
            return producer

        self._producer = self._loop.run_until_complete(start())

    def _run(self, coroutine: Any) -> Any:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(coroutine, TIMEOUT_S))
        except aiokafka.errors.ProducerFenced as error:
            raise Fenced from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        return self._run(self._producer.send_and_wait(topic, value, partition=partition)).offset  # type: ignore[no-any-return]

    def send_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        wanted = {aiokafka.TopicPartition(*tp): at for tp, at in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.stop())
        self._loop.close()


class ConfluentTransactions(TransactionalProducer):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._run(self._producer.init_transactions, TIMEOUT_S)

    def _run(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() in (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED):
                raise Fenced from error
            raise

    def begin(self) -> None:
        self._run(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        done: list[tuple[Any, Any]] = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, message: done.append((error, message))
        )
        self._run(self._producer.flush, TIMEOUT_S)
        [(error, message)] = done
        if error is not None:
            self._run(self._raise, error)
        return message.offset()  # type: ignore[no-any-return]

    @staticmethod
    def _raise(error: Any) -> None:
        raise confluent_kafka.KafkaException(error)

    def send_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        wanted = [confluent_kafka.TopicPartition(topic, index, at) for (topic, index), at in offsets.items()]
        # The group's metadata comes from a consumer, which need not have joined.
        consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0})
        try:
            self._run(self._producer.send_offsets_to_transaction, wanted, consumer.consumer_group_metadata(), TIMEOUT_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._run(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        with contextlib.suppress(confluent_kafka.KafkaException):
            self._producer.flush(1)


PRODUCERS: list[type[TransactionalProducer]] = [KafkaPythonTransactions, AioKafkaTransactions, ConfluentTransactions]


def read(bootstrap: str, topic: str, *, committed: bool, partition: int = 0) -> list[bytes]:
    """Everything a consumer of this isolation level can see now."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_auto_commit=False,
    )
    try:
        tp = kafka.TopicPartition(topic, partition)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        end = consumer.end_offsets([tp])[tp]
        found: list[bytes] = []
        while consumer.position(tp) < end:
            for records in consumer.poll(timeout_ms=200).values():
                found += [record.value for record in records if record.offset < end]
        return found
    finally:
        consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int | None:
    """What a group has committed, once no transaction holds it open."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        [found] = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], TIMEOUT_S)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()
