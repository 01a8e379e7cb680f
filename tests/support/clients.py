"""kafka-python, aiokafka and confluent-kafka (librdkafka) behind one small face, so that one test runs with each.

Only what the tests need: produce some records and say where they went; read a partition from an offset on without a
group. Each call opens its own client, as a fresh process would.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import aiokafka
import confluent_kafka
import kafka

CREATE_TIME, LOG_APPEND_TIME = 0, 1
REQUEST_BYTES_MAX = 12_000_000
TIMEOUT_S = 60


@dataclass(frozen=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0
    offset: int = -1
    timestamp_type: int = field(default=CREATE_TIME, compare=False)

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        return self.key, self.value, self.headers


class Client(ABC):
    name: str

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Iterable[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotence: bool = False,
    ) -> list[tuple[int, int]]:
        """Sends all, waits for all; partition and offset of each in the order sent (offset -1 with acks=0)."""

    @abstractmethod
    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: object
    ) -> list[Message]:
        """The next `count` records of a partition, assigned by hand."""

    @abstractmethod
    def offsets_for_time(self, bootstrap: str, topic: str, timestamps: Sequence[int]) -> list[int]:
        """For each timestamp the first offset at or after it in partition 0; -1 where there is none."""

    @abstractmethod
    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        """Log start offset and high watermark."""


class KafkaPython(Client):
    name = "kafka-python"

    def produce(self, bootstrap, topic, messages, *, codec="none", acks=-1, idempotence=False):  # type: ignore[no-untyped-def]
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all" if acks == -1 else acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotence,
            linger_ms=5,
            max_request_size=REQUEST_BYTES_MAX,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=m.value,
                    key=m.key,
                    headers=list(m.headers),
                    partition=m.partition,
                    timestamp_ms=m.timestamp,
                )
                for m in messages
            ]
            producer.flush(TIMEOUT_S)
            sent = [f.get(TIMEOUT_S) for f in futures]
            return [(r.partition, r.offset) for r in sent]
        finally:
            producer.close()

    def _consumer(self, bootstrap, **settings):  # type: ignore[no-untyped-def]
        return kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            **{"max_partition_fetch_bytes": REQUEST_BYTES_MAX, **settings},
        )

    def consume(self, bootstrap, topic, count, *, partition=0, offset=0, **settings):  # type: ignore[no-untyped-def]
        consumer = self._consumer(bootstrap, **settings)
        try:
            tp = kafka.TopicPartition(topic, partition)
            consumer.assign([tp])
            consumer.seek(tp, offset)
            found: list[Message] = []
            for _ in range(TIMEOUT_S * 2):
                for records in consumer.poll(timeout_ms=500).values():
                    found += [
                        Message(
                            r.value,
                            r.key,
                            tuple(r.headers),
                            r.timestamp,
                            r.partition,
                            r.offset,
                            r.timestamp_type,
                        )
                        for r in records
                    ]
                if len(found) >= count:
                    break
            return found[:count]
        finally:
            consumer.close()

    def offsets_for_time(self, bootstrap, topic, timestamps):  # type: ignore[no-untyped-def]
        consumer = self._consumer(bootstrap)
        try:
            tp = kafka.TopicPartition(topic, 0)
            answers = [consumer.offsets_for_times({tp: t})[tp] for t in timestamps]
            return [-1 if a is None else a.offset for a in answers]
        finally:
            consumer.close()

    def watermarks(self, bootstrap, topic, partition=0):  # type: ignore[no-untyped-def]
        consumer = self._consumer(bootstrap)
        try:
            tp = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
        finally:
            consumer.close()


class AioKafka(Client):
    name = "aiokafka"

    def produce(self, bootstrap, topic, messages, *, codec="none", acks=-1, idempotence=False):  # type: ignore[no-untyped-def]
        async def run() -> list[tuple[int, int]]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks="all" if acks == -1 else acks,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotence,
                linger_ms=5,
                max_request_size=REQUEST_BYTES_MAX,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=m.value,
                        key=m.key,
                        headers=list(m.headers),
                        partition=m.partition,
                        timestamp_ms=m.timestamp,
                    )
                    for m in messages
                ]
                sent = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
                # With acks=0 there is no metadata to answer.
                return [(r.partition, r.offset) if r is not None else (0, -1) for r in sent]
            finally:
                await producer.stop()

        return asyncio.run(run())

    @staticmethod
    def _consumer(bootstrap, **settings):  # type: ignore[no-untyped-def]
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            **{"max_partition_fetch_bytes": REQUEST_BYTES_MAX, **settings},
        )

    def consume(self, bootstrap, topic, count, *, partition=0, offset=0, **settings):  # type: ignore[no-untyped-def]
        async def run() -> list[Message]:
            consumer = self._consumer(bootstrap, **settings)
            await consumer.start()
            try:
                tp = aiokafka.TopicPartition(topic, partition)
                consumer.assign([tp])
                consumer.seek(tp, offset)
                found: list[Message] = []
                for _ in range(TIMEOUT_S * 2):
                    for records in (await consumer.getmany(tp, timeout_ms=500)).values():
                        found += [
                            Message(
                                r.value, r.key, tuple(r.headers), r.timestamp, r.partition, r.offset, r.timestamp_type
                            )
                            for r in records
                        ]
                    if len(found) >= count:
                        break
                return found[:count]
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def offsets_for_time(self, bootstrap, topic, timestamps):  # type: ignore[no-untyped-def]
        async def run() -> list[int]:
            consumer = self._consumer(bootstrap)
            await consumer.start()
            try:
                tp = aiokafka.TopicPartition(topic, 0)
                answers = [(await consumer.offsets_for_times({tp: t}))[tp] for t in timestamps]
                return [-1 if a is None else a.offset for a in answers]
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def watermarks(self, bootstrap, topic, partition=0):  # type: ignore[no-untyped-def]
        async def run() -> tuple[int, int]:
            consumer = self._consumer(bootstrap)
            await consumer.start()
            try:
                tp = aiokafka.TopicPartition(topic, partition)
                return (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            finally:
                await consumer.stop()

        return asyncio.run(run())


class Confluent(Client):
    name = "confluent-kafka"

    def produce(self, bootstrap, topic, messages, *, codec="none", acks=-1, idempotence=False):  # type: ignore[no-untyped-def]
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotence,
                "linger.ms": 5,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "message.timeout.ms": TIMEOUT_S * 1000,
            }
        )
        reports: dict[int, tuple[int, int]] = {}

        def deliver(number, error, message):  # type: ignore[no-untyped-def]
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            reports[number] = (message.partition(), -1 if message.offset() is None else message.offset())

        total = 0
        for number, m in enumerate(messages):
            total += 1
            settings = {} if m.timestamp is None else {"timestamp": m.timestamp}
            producer.produce(
                topic,
                value=m.value,
                key=m.key,
                headers=list(m.headers),
                partition=m.partition,
                on_delivery=lambda error, message, n=number: deliver(n, error, message),
                **settings,
            )
            producer.poll(0)
        left = producer.flush(TIMEOUT_S)
        assert left == 0, f"{left} records were not acknowledged"
        return [reports[number] for number in range(total)]

    @staticmethod
    def _consumer(bootstrap, **settings):  # type: ignore[no-untyped-def]
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "group.id": "assigned by hand",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": REQUEST_BYTES_MAX,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def consume(self, bootstrap, topic, count, *, partition=0, offset=0, **settings):  # type: ignore[no-untyped-def]
        consumer = self._consumer(bootstrap, **settings)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
            found: list[Message] = []
            for _ in range(TIMEOUT_S * 2):
                for m in consumer.consume(count - len(found), timeout=0.5):
                    if m.error():
                        raise confluent_kafka.KafkaException(m.error())
                    kind, timestamp = m.timestamp()
                    found.append(
                        Message(
                            m.value(),
                            m.key(),
                            tuple(m.headers() or ()),
                            timestamp,
                            m.partition(),
                            m.offset(),
                            LOG_APPEND_TIME if kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
                        )
                    )
                if len(found) >= count:
                    break
            return found
        finally:
            consumer.close()

    def offsets_for_time(self, bootstrap, topic, timestamps):  # type: ignore[no-untyped-def]
        consumer = self._consumer(bootstrap)
        try:
            found = [
                consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, t)], timeout=TIMEOUT_S)[0].offset
                for t in timestamps
            ]
            # librdkafka turns "none" into the logical end of the partition.
            return [-1 if o == confluent_kafka.OFFSET_END else o for o in found]
        finally:
            consumer.close()

    def watermarks(self, bootstrap, topic, partition=0):  # type: ignore[no-untyped-def]
        consumer = self._consumer(bootstrap)
        try:
            return consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=TIMEOUT_S)
        finally:
            consumer.close()


CLIENTS: list[Client] = [KafkaPython(), AioKafka(), Confluent()]
