"""`python -m bench.codec`: our codecs beside kafka-python's and aiokafka's on the messages of the hot path.

Every implementation reads the same bytes, and writes back the message it read. Figures are microseconds of CPU per
message, the best of several rounds; a ratio says how many times as long the other takes. aiokafka has no flexible
versions, so its column is empty for the newest version of each message.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from time import process_time
from typing import Any

from pylogd.protocol.codec import decode, encode
from pylogd.protocol.messages import fetch, metadata, produce
from pylogd.protocol.schema import Message

Case = tuple[Message, int]
ROUNDS, ROUND_S = 15, 0.02

KAFKA_PYTHON = {"Produce": "producer.produce", "Fetch": "consumer.fetch", "Metadata": "metadata.metadata"}


def cases() -> list[Case]:
    """One-record produce, a fetch of three partitions, the metadata of a small cluster; old and newest versions."""
    topic_id, records = bytes(range(16)), bytes(180)
    produce_request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            produce.TopicProduceData(
                name="events",
                topic_id=topic_id,
                partition_data=[produce.PartitionProduceData(index=3, records=records)],
            )
        ],
    )
    produce_response = produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name="events",
                topic_id=topic_id,
                partition_responses=[produce.PartitionProduceResponse(index=3, base_offset=123456, log_start_offset=0)],
            )
        ]
    )
    fetch_request = fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[
            fetch.FetchTopic(
                topic="events",
                topic_id=topic_id,
                partitions=[
                    fetch.FetchPartition(partition=n, fetch_offset=1000 + n, partition_max_bytes=1 << 20)
                    for n in range(3)
                ],
            )
        ],
    )
    fetch_response = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic="events",
                topic_id=topic_id,
                partitions=[
                    fetch.PartitionData(
                        partition_index=n,
                        high_watermark=99999,
                        last_stable_offset=99999,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=records,
                    )
                    for n in range(3)
                ],
            )
        ]
    )
    metadata_request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="events")])
    metadata_response = metadata.MetadataResponse(
        cluster_id="c" * 22,
        controller_id=1,
        brokers=[
            metadata.MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092) for n in range(3)
        ],
        topics=[
            metadata.MetadataResponseTopic(
                name=f"topic-{t}",
                partitions=[
                    metadata.MetadataResponsePartition(
                        partition_index=p, leader_id=p % 3, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
                    )
                    for p in range(6)
                ],
            )
            for t in range(5)
        ],
    )
    return [
        (produce_request, 8),
        (produce_request, 13),
        (produce_response, 8),
        (produce_response, 13),
        (fetch_request, 11),
        (fetch_request, 18),
        (fetch_response, 11),
        (fetch_response, 18),
        (metadata_request, 5),
        (metadata_request, 13),
        (metadata_response, 5),
        (metadata_response, 13),
    ]


def best_us(jobs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """CPU microseconds per call of each job: the best of `rounds`. The jobs take turns, so that a machine that slows
    down for a while slows all of them."""
    best = [1e9] * len(jobs)
    calls = []
    for job in jobs:
        start = process_time()
        for _ in range(50):
            job()
        calls.append(max(50, int(ROUND_S / max((process_time() - start) / 50, 1e-7))))
    for _ in range(rounds):
        for position, job in enumerate(jobs):
            start = process_time()
            for _ in range(calls[position]):
                job()
            best[position] = min(best[position], (process_time() - start) / calls[position] * 1e6)
    return best


def kafka_python(name: str, version: int, data: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    api = name.removesuffix("Request").removesuffix("Response")
    cls = getattr(import_module(f"kafka.protocol.{KAFKA_PYTHON[api]}"), name)
    message = cls.decode(data, version=version)
    message._header = None
    assert bytes(message.encode(version=version)) == data, name
    return lambda: cls.decode(data, version=version), lambda: message.encode(version=version)


def aiokafka(name: str, version: int, data: bytes) -> tuple[Callable[[], Any], Callable[[], Any]] | None:
    api = name.removesuffix("Request").removesuffix("Response").lower()
    cls = getattr(import_module(f"aiokafka.protocol.{api}"), f"{name}_v{version}", None)
    if cls is None:
        return None
    message = cls.decode(data)
    assert message.encode() == data, name
    return lambda: cls.decode(data), message.encode


def measure(message: Message, version: int, rounds: int) -> list[tuple[str, float, float, float | None]]:
    """Rows of (what, ours, kafka-python, aiokafka), decode and encode."""
    cls = type(message)
    data = encode(message, version)
    read, _ = decode(cls, version, memoryview(data))
    ours = (lambda: decode(cls, version, memoryview(data)), lambda: encode(read, version))
    first = kafka_python(cls.__name__, version, data)
    second = aiokafka(cls.__name__, version, data)
    rows = []
    for position, verb in enumerate(("decode", "encode")):
        jobs = [ours[position], first[position], *([] if second is None else [second[position]])]
        best = best_us(jobs, rounds)
        rows.append((f"{verb} {cls.__name__} v{version}", best[0], best[1], best[2] if second is not None else None))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.codec", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    parser.add_argument("--only", default="", help="messages whose name contains this")
    options = parser.parse_args()
    rounds = 3 if options.quick else ROUNDS
    print(f"{'':34}{'pylogd':>10}{'kafka-python':>20}{'aiokafka':>20}")
    for message, version in cases():
        if options.only not in type(message).__name__:
            continue
        for what, ours, first, second in measure(message, version, rounds):
            last = "" if second is None else f"{second:9.2f} us {second / ours:5.1f}x"
            print(f"{what:34}{ours:7.2f} us{first:11.2f} us {first / ours:5.1f}x{last:>20}", flush=True)


if __name__ == "__main__":
    main()
