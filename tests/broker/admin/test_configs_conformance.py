"""DescribeConfigs of this broker and of a real Apache Kafka with the same server.properties, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pylogd.broker.handlers import describe_configs
from pylogd.config.broker import BrokerConfig
from pylogd.config.dynamic import apply
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.registrations import Topic
from pylogd.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pylogd.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from pylogd.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.rawclient import Client
from support.wait import eventually

pytestmark = pytest.mark.jvm

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
STATIC = {"log.retention.minutes": "90", "ssl.key.password": "secret", "my.plugin.key": "x", "log.roll.ms": "1000000"}
OVERRIDES = {"cleanup.policy": "compact,delete", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.25"}
CLUSTER = {"log.retention.ms": "123456", "message.max.bytes": "2000000", "log.cleaner.threads": "2"}
OWN = {"log.segment.bytes": "5000000", "follower.replication.throttled.rate": "7", "log.cleaner.threads": "1"}
GROUP_CONFIGS = {"consumer.session.timeout.ms": "50000"}
METRICS_CONFIGS = {"interval.ms": "1000", "match": "client_id=a.*"}
RESOURCES = [(TOPIC, "orders"), (TOPIC, "plain"), (BROKER, "1"), (BROKER, ""), (GROUP, "g"), (METRICS, "m")]
# Kafka prints this one from a hash map, in any order.
UNORDERED = "listener.security.protocol.map"


def change(client: Client, kind: int, name: str, values: dict[str, str]) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in values.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    [response] = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert response.error_code == 0, response


def entries(response: DescribeConfigsResponse) -> dict[tuple[int, str], dict[str, Any]]:
    found = {}
    for result in response.results:
        assert result.error_code == 0, result
        found[result.resource_type, result.resource_name] = {
            config.name: (
                _normal(config.name, config.value),
                config.config_source,
                config.read_only,
                config.is_sensitive,
                config.config_type,
                [(synonym.name, _normal(synonym.name, synonym.value), synonym.source) for synonym in config.synonyms],
            )
            for config in result.configs
        }
    return found


def _normal(name: str, value: str | None) -> object:
    return sorted(value.split(",")) if name == UNORDERED and value else value


def test_every_entry_is_the_one_kafka_gives(new_kafka: Callable[..., Any]) -> None:
    kafka = new_kafka(STATIC)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in RESOURCES
        ],
        include_synonyms=True,
    )
    with Client(kafka.port) as client:
        topics = [
            CreatableTopic(
                name="orders",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in OVERRIDES.items()],
            ),
            CreatableTopic(name="plain", num_partitions=1, replication_factor=1),
        ]
        created = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        assert [topic.error_code for topic in created.topics] == [0, 0], created
        change(client, BROKER, "", CLUSTER)
        change(client, BROKER, "1", OWN)
        change(client, GROUP, "g", GROUP_CONFIGS)
        change(client, METRICS, "m", METRICS_CONFIGS)

        def applied() -> bool:
            answers = entries(client.ask(request))
            shown = answers[METRICS, "m"]["interval.ms"][0], answers[BROKER, "1"]["log.segment.bytes"][0]
            return shown == ("1000", "5000000")

        eventually(applied)
        theirs = entries(client.ask(request))

    class Node:
        config = BrokerConfig(kafka.properties)
        image = ClusterImage()

    # A quorum with eligible leader replicas starts with this one set for the whole cluster.
    apply(Node.config, default={"min.insync.replicas": "1", **CLUSTER}, broker=OWN)
    for name, overrides in (("orders", OVERRIDES), ("plain", {})):
        Node.image.topics[name] = Topic(name, bytes(16))
        Node.image.configs[TOPIC, name] = overrides
    Node.image.configs[GROUP, "g"] = GROUP_CONFIGS
    Node.image.configs[METRICS, "m"] = METRICS_CONFIGS
    ours = entries(describe_configs.handle(_context(Node), request))
    for resource in RESOURCES:
        mine, reference = ours[resource], theirs[resource]
        mine = {name: value for name, value in mine.items() if not name.startswith("pylogd.")}
        assert mine.keys() == reference.keys()
        differences = {name: (mine[name], reference[name]) for name in mine if mine[name] != reference[name]}
        assert differences == {}


def _context(node: Any) -> Any:
    class Context:
        pass

    context = Context()
    context.services = node  # type: ignore[attr-defined]
    return context
