"""A member of a consumer group as a process of its own, so that it can crash, hang and come back.

    python member.py kafka-python|aiokafka|confluent-kafka BOOTSTRAP GROUP TOPIC [setting=value ...]

Settings are librdkafka's names; each client takes those it knows. It reads, commits what it has read after every poll,
and says what happens as lines of JSON with the system's monotonic time: `assigned`, `revoked`, `read`, `committed`.
SIGTERM makes it leave in good order, SIGUSR1 makes it stop polling as a slow consumer does, until SIGUSR2.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import Any

_EVENTS = {"stop": False, "stall": False}
PAUSE_S = 0.05
# kafka-python 3.0.12 forgets a join that it began because the topic's metadata changed and that outlives its poll: the
# next poll sees no reason to join, and the member stays silent for ever. Long polls outlive joins.
KAFKA_PYTHON_POLL_MS = 2000


def say(what: str, **values: Any) -> None:
    print(json.dumps({"what": what, "at": time.monotonic_ns(), **values}), flush=True)


def _flag(name: str, value: bool = True) -> Any:
    def set_it(*_: object) -> None:
        _EVENTS[name] = value

    return set_it


def stalled() -> bool:
    return _EVENTS["stall"] and not _EVENTS["stop"]


# -- librdkafka


def run_confluent(bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            # With the new protocol the broker says how often.
            **({} if settings.get("group.protocol") == "consumer" else {"heartbeat.interval.ms": 300}),
            "topic.metadata.refresh.interval.ms": 1000,
            **settings,
        }
    )

    def numbers(partitions: list[Any]) -> list[int]:
        return sorted(each.partition for each in partitions)

    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("assigned", partitions=numbers(partitions)),
        on_revoke=lambda _, partitions: say("revoked", partitions=numbers(partitions)),
        on_lost=lambda _, partitions: say("lost", partitions=numbers(partitions)),
    )
    say("ready")
    while not _EVENTS["stop"]:
        while stalled():
            time.sleep(PAUSE_S)
        found = [each for each in consumer.consume(50, timeout=0.1) if not each.error()]
        if not found:
            continue
        say("read", records=[(each.partition(), each.offset()) for each in found])
        ends: dict[int, int] = {}
        for each in found:
            ends[each.partition()] = each.offset() + 1
        try:
            consumer.commit(
                offsets=[confluent_kafka.TopicPartition(topic, p, o) for p, o in ends.items()], asynchronous=False
            )
        except confluent_kafka.KafkaException as refusal:
            say("refused", why=str(refusal))
        else:
            say("committed", offsets=list(ends.items()))
    consumer.close()


# -- kafka-python


def run_kafka_python(bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    import kafka
    from kafka.errors import KafkaError

    options = _renamed(settings)
    strategy = options.pop("partition_assignment_strategy", None)
    if strategy:
        options["partition_assignment_strategy"] = [_kafka_python_assignor(name) for name in strategy.split(",")]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1000,
        max_poll_records=50,
        **options,
    )

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", partitions=sorted(each.partition for each in assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", partitions=sorted(each.partition for each in revoked))

    consumer.subscribe([topic], listener=Listener())
    say("ready")
    while not _EVENTS["stop"]:
        while stalled():
            time.sleep(PAUSE_S)
        found = [record for records in consumer.poll(KAFKA_PYTHON_POLL_MS).values() for record in records]
        if not found:
            continue
        say("read", records=[(each.partition, each.offset) for each in found])
        try:
            consumer.commit()
        except KafkaError as refusal:
            say("refused", why=str(refusal))
        else:
            say("committed", offsets=list({each.partition: each.offset + 1 for each in found}.items()))
    consumer.close()


def _kafka_python_assignor(name: str) -> Any:
    if name == "range":
        from kafka.coordinator.assignors.range import RangePartitionAssignor as Assignor
    elif name == "roundrobin":
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as Assignor
    elif name == "sticky":
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as Assignor
    else:
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as Assignor
    return Assignor


# -- aiokafka


async def run_aiokafka(bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
    import aiokafka
    from aiokafka.errors import KafkaError

    options = _renamed(settings)
    strategy = options.pop("partition_assignment_strategy", None)
    if strategy:
        options["partition_assignment_strategy"] = [_aiokafka_assignor(name) for name in strategy.split(",")]

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", partitions=sorted(each.partition for each in assigned))

        async def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", partitions=sorted(each.partition for each in revoked))

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1000,
        **options,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    say("ready")
    while not _EVENTS["stop"]:
        while stalled():
            await asyncio.sleep(PAUSE_S)
        found = [
            record
            for records in (await consumer.getmany(timeout_ms=100, max_records=50)).values()
            for record in records
        ]
        if not found:
            continue
        say("read", records=[(each.partition, each.offset) for each in found])
        ends = {aiokafka.TopicPartition(topic, each.partition): each.offset + 1 for each in found}
        try:
            await consumer.commit(ends)
        except KafkaError as refusal:
            say("refused", why=str(refusal))
        else:
            say("committed", offsets=[(tp.partition, offset) for tp, offset in ends.items()])
    await consumer.stop()


def _aiokafka_assignor(name: str) -> Any:
    if name == "range":
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor as Assignor
    elif name == "roundrobin":
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as Assignor
    else:
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as Assignor
    return Assignor


def _renamed(settings: dict[str, str]) -> dict[str, Any]:
    names = {"group.instance.id": "group_instance_id"}
    return {
        names.get(name, name.replace(".", "_")): int(value) if value.isdigit() else value
        for name, value in settings.items()
    }


def main() -> None:
    signal.signal(signal.SIGTERM, _flag("stop"))
    signal.signal(signal.SIGUSR1, _flag("stall"))
    signal.signal(signal.SIGUSR2, _flag("stall", False))
    library, bootstrap, group, topic, *rest = sys.argv[1:]
    settings = dict(each.split("=", 1) for each in rest)
    if library == "confluent-kafka":
        run_confluent(bootstrap, group, topic, settings)
    elif library == "kafka-python":
        run_kafka_python(bootstrap, group, topic, settings)
    else:
        asyncio.run(run_aiokafka(bootstrap, group, topic, settings))
    say("left")


if __name__ == "__main__":
    main()
