"""Consume, transform, produce: exactly once, as an application of its own that may be killed at any moment.

    python copier.py BOOTSTRAP INPUT OUTPUT ID

Every record of INPUT goes to the same partition of OUTPUT as `<partition>:<value>`; records and offsets are committed
in one transaction of up to 50. A restarted copier goes on where the last committed transaction ended. What it cannot
recover from ends it with an error: whoever runs it starts it again.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer

BATCH = 50
TIMEOUT_S = 30


def main(bootstrap: str, source: str, target: str, name: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "log_level": 0,
        }
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 10_000, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    print("ready", flush=True)
    while True:
        messages = [m for m in consumer.consume(BATCH, timeout=0.2) if m.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                value = f"{message.partition()}:{message.value().decode()}"
                producer.produce(target, value, partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(TIMEOUT_S)
            # What was read is not processed: begin again where the group stands.
            raise SystemExit(3) from problem


if __name__ == "__main__":
    main(*sys.argv[1:])
