"""InitProducerId, DescribeProducers, DescribeLogDirs, telemetry."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pylogd.broker.admin.telemetry import ClientTelemetry
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from pylogd.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pylogd.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pylogd.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from pylogd.protocol.messages.init_producer_id import InitProducerIdRequest
from pylogd.protocol.messages.push_telemetry import PushTelemetryRequest
from pylogd.runtime.clock import ManualClock
from support.datanode import DataNode
from support.produce import produce_request, records
from support.rawclient import Client


@pytest.fixture
def client(node: DataNode) -> Iterator[Client]:
    with node.client() as made:
        yield made


def identity(response: Any) -> tuple[int, int, int]:
    return response.error_code, response.producer_id, response.producer_epoch


def test_ids_come_from_blocks_of_the_controller(node: DataNode, client: Client) -> None:
    for start in (1000, 5000):
        node.channel.replies.append(AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=10))
    ask = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    given = [identity(client.ask(ask, version)) for version in (0, 1, 2, 3, 4, 5) for _ in range(2)]
    assert given == [(0, n, 0) for n in (*range(1000, 1010), 5000, 5001)]
    assert {(request.broker_id, request.broker_epoch) for request in node.channel.asked} == {(1, 7)}


def test_a_controller_without_answer(node: DataNode, client: Client) -> None:
    refused = AllocateProducerIdsResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    block = AllocateProducerIdsResponse(producer_id_start=1, producer_id_len=1000)
    node.channel.replies += [refused, OSError("gone"), block]
    ask = InitProducerIdRequest(transactional_id=None)
    assert identity(client.ask(ask, 4)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert identity(client.ask(ask, 4)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert identity(client.ask(ask, 4)) == (0, 1, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "x", "transaction_timeout_ms": 1000}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_init_producer_id_refusals(client: Client, fields: dict[str, Any], code: ErrorCode) -> None:
    assert identity(client.ask(InitProducerIdRequest(**fields), 4)) == (code, -1, -1)


def test_describe_producers(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    node.create_topic("other", leader=2)
    client.ask(produce_request("t", records(b"a", b"b", producer_id=8, producer_epoch=3, base_sequence=0)), 9)
    topics = [TopicRequest(name=name, partition_indexes=[0]) for name in ("t", "missing", "other")]
    answers = [topic.partitions[0] for topic in client.ask(DescribeProducersRequest(topics=topics), 0).topics]
    assert [answer.error_code for answer in answers] == [0, 3, 6]
    (state,) = answers[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (8, 3, 1)
    assert state.current_txn_start_offset == -1


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs(node: DataNode, client: Client, version: int) -> None:
    node.create_topic("t", 2)
    client.ask(produce_request("t", records(b"a")), 9)
    (result,) = client.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (result.error_code, result.log_dir) == (0, str(node.directory))
    sizes = {
        (topic.name, part.partition_index): part.partition_size for topic in result.topics for part in topic.partitions
    }
    assert sizes == {("t", 0): len(records(b"a")), ("t", 1): 0}
    assert (result.total_bytes >= result.usable_bytes > 0) == (version >= 4)
    some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1, 7])])
    (topic,) = client.ask(some, version).results[0].topics
    assert [part.partition_index for part in topic.partitions] == [1]


def test_describe_log_dirs_of_an_offline_directory(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    node.call(node.logs.directory_failed, node.logs.directories[0], "pulled out")
    (result,) = client.ask(DescribeLogDirsRequest(topics=None), 5).results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_telemetry_without_a_receiver(node: DataNode, client: Client) -> None:
    clock = ManualClock()
    node.services.telemetry = ClientTelemetry(node.config, clock, Random(2), node.metadata)
    node.image.configs[(16, "sub")] = {"metrics": "org.apache,other", "interval.ms": "1000", "match": "client_id=ra.*"}
    node.image.configs[(16, "not-ours")] = {"metrics": "*", "match": "client_id=other"}
    given = client.ask(GetTelemetrySubscriptionsRequest(), 0)
    assert given.error_code == 0
    assert given.client_instance_id != bytes(16)
    assert (given.requested_metrics, given.push_interval_ms) == (["org.apache", "other"], 1000)
    assert (given.telemetry_max_bytes, given.accepted_compression_types) == (1048576, [4, 3, 1, 2])
    assert given.delta_temporality is True

    def push(**changes: Any) -> str:
        fields = {"client_instance_id": given.client_instance_id, "subscription_id": given.subscription_id, **changes}
        return ErrorCode(client.ask(PushTelemetryRequest(**fields), 0).error_code).name

    again = GetTelemetrySubscriptionsRequest(client_instance_id=given.client_instance_id)
    assert client.ask(again, 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(metrics=b"data") == "NONE"
    assert push(metrics=b"data") == "THROTTLING_QUOTA_EXCEEDED"
    clock.advance(1000)
    assert push(subscription_id=given.subscription_id + 1) == "UNKNOWN_SUBSCRIPTION_ID"
    assert client.ask(again, 0).error_code == 0
    clock.advance(1000)
    assert push(compression_type=9) == "UNSUPPORTED_COMPRESSION_TYPE"
    clock.advance(1000)
    assert push(metrics=bytes(1048577)) == "TELEMETRY_TOO_LARGE"
    assert push(client_instance_id=bytes(16)) == "INVALID_REQUEST"
    assert push(terminating=True) == "NONE"
    clock.advance(1000)
    assert push() == "INVALID_REQUEST"
