"""Configs changed on a running broker: what lasts, what takes effect, what does not survive a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.protocol.batch import Record, build_batch
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pylogd.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pylogd.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pylogd.protocol.messages.list_config_resources import ListConfigResourcesRequest
from pylogd.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import Pylogd
from support.rawclient import Client
from support.wait import eventually

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def change(client: Client, kind: int, name: str, key: str, value: str | None) -> Any:
    config = AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    [response] = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return response


def shown(client: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    [result] = client.ask(DescribeConfigsRequest(resources=[resource])).results
    assert result.error_code == 0, result
    [config] = result.configs
    return config.value, config.config_source


def produce(client: Client, topic: str, size: int) -> int:
    batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(size))], base_offset=0)
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    code: int = client.ask(request, 9).responses[0].partition_responses[0].error_code
    return code


def test_changes_last_and_take_effect(new_pylogd: Callable[..., Pylogd]) -> None:
    node = new_pylogd()
    with Client(node.port) as client:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        assert eventually(lambda: produce(client, "orders", 5000) == 0)

        assert change(client, BROKER, "", "message.max.bytes", "4000").error_code == 0
        eventually(lambda: shown(client, BROKER, "1", "message.max.bytes") == ("4000", 3))
        eventually(lambda: shown(client, TOPIC, "orders", "max.message.bytes") == ("4000", 3))
        assert produce(client, "orders", 5000) == ErrorCode.MESSAGE_TOO_LARGE
        # The topic's own setting wins over the cluster's.
        assert change(client, TOPIC, "orders", "max.message.bytes", "6000").error_code == 0
        eventually(lambda: shown(client, TOPIC, "orders", "max.message.bytes") == ("6000", 1))
        assert produce(client, "orders", 5000) == 0

        assert change(client, BROKER, "1", "log.cleaner.threads", "5").error_code == ErrorCode.INVALID_REQUEST
        assert change(client, BROKER, "1", "log.retention.ms", "77777").error_code == 0
        assert change(client, GROUP, "g", "consumer.session.timeout.ms", "50000").error_code == 0
        assert change(client, METRICS, "m", "interval.ms", "1000").error_code == 0
        assert change(client, LOGGER, "1", "pylogd.broker", "ERROR").error_code == 0
        assert shown(client, LOGGER, "1", "pylogd.broker") == ("ERROR", 6)
    node.restart()
    with Client(node.port) as client:
        assert shown(client, BROKER, "1", "message.max.bytes") == ("4000", 3)
        assert shown(client, BROKER, "1", "log.retention.ms") == ("77777", 2)
        assert shown(client, TOPIC, "orders", "max.message.bytes") == ("6000", 1)
        assert shown(client, TOPIC, "orders", "retention.ms") == ("77777", 2)
        assert shown(client, GROUP, "g", "consumer.session.timeout.ms") == ("50000", 8)
        assert shown(client, METRICS, "m", "interval.ms") == ("1000", 7)
        assert shown(client, LOGGER, "1", "pylogd.broker") == ("INFO", 6)
        resources = client.ask(ListConfigResourcesRequest()).config_resources
        assert {(r.resource_type, r.resource_name) for r in resources} == {
            (TOPIC, "orders"),
            (BROKER, "1"),
            (LOGGER, "1"),
            (METRICS, "m"),
            (GROUP, "g"),
        }
        assert produce(client, "orders", 7000) == ErrorCode.MESSAGE_TOO_LARGE
        assert change(client, TOPIC, "orders", "max.message.bytes", None).error_code == 0
        eventually(lambda: shown(client, TOPIC, "orders", "max.message.bytes") == ("4000", 3))
        assert change(client, BROKER, "", "message.max.bytes", None).error_code == 0
        eventually(lambda: produce(client, "orders", 7000) == 0)
