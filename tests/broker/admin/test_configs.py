"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources on a node made by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pylogd.broker.handlers import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from pylogd.config.broker import BrokerConfig
from pylogd.config.dynamic import apply
from pylogd.controller import config_rules
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.registrations import Broker, Endpoint, Topic
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.failures import error_response
from pylogd.protocol.messages import alter_configs as legacy
from pylogd.protocol.messages import incremental_alter_configs as incremental
from pylogd.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from pylogd.protocol.messages.list_config_resources import ListConfigResourcesRequest
from pylogd.rpc.caller import Caller

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


class Node:
    """The parts of a node that configs are about; its controller accepts everything."""

    def __init__(self) -> None:
        self.config = BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "log.retention.hours": "2",
                "ssl.key.password": "secret",
                "some.plugin.key": "blue",
            }
        )
        self.image = ClusterImage()
        self.image.topics["orders"] = Topic("orders", bytes(16))
        self.forwarded: list[Any] = []
        self.channel = self

    async def forward(self, request: Any, version: int, caller: Any, correlation_id: int) -> Any:
        self.forwarded.append(request)
        module = legacy if isinstance(request, legacy.AlterConfigsRequest) else incremental
        answers = [
            module.AlterConfigsResourceResponse(
                error_code=0, error_message=None, resource_type=r.resource_type, resource_name=r.resource_name
            )
            for r in request.resources
        ]
        if module is legacy:
            return legacy.AlterConfigsResponse(responses=answers)
        return incremental.IncrementalAlterConfigsResponse(responses=answers)

    def apply(self, *, default: dict[str, str], broker: dict[str, str]) -> None:
        self.image.configs[BROKER, ""] = default
        self.image.configs[BROKER, "1"] = broker
        assert apply(self.config, default=default, broker=broker) == {}


class Context:
    caller = Caller(client_id="test", listener="PLAINTEXT")
    correlation_id = 1

    def __init__(self, node: Node, version: int = 4) -> None:
        self.services = node
        self.version = version


@pytest.fixture
def node() -> Node:
    return Node()


def describe(node: Node, kind: int, name: str, *keys: str, documentation: bool = False) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=documentation)
    [result] = describe_configs.handle(Context(node), request).results  # type: ignore[arg-type]
    return result


def entry(node: Node, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    [found] = describe(node, kind, name, key).configs
    return found


def layers(found: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms]


# -- describe


def test_a_topic_inherits_from_the_broker_and_overrides(node: Node) -> None:
    plain = entry(node, TOPIC, "orders", "segment.bytes")
    assert (plain.value, plain.config_source, plain.config_type) == ("1073741824", 5, 3)
    assert layers(plain) == [("log.segment.bytes", "1073741824", 5)]
    # log.retention.hours counts, but under another name than the one shown as the topic's synonym.
    retention = entry(node, TOPIC, "orders", "retention.ms")
    assert (retention.value, retention.config_source, layers(retention)) == ("7200000", 5, [])

    node.apply(default={"log.segment.bytes": "2000000"}, broker={"log.segment.bytes": "3000000"})
    node.image.configs[TOPIC, "orders"] = {"segment.bytes": "4000000"}
    own = entry(node, TOPIC, "orders", "segment.bytes")
    assert (own.value, own.config_source, own.read_only) == ("4000000", 1, False)
    assert layers(own) == [
        ("segment.bytes", "4000000", 1),
        ("log.segment.bytes", "3000000", 2),
        ("log.segment.bytes", "2000000", 3),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_all_topic_configs_are_shown_except_internal_ones(node: Node) -> None:
    names = {config.name for config in describe(node, TOPIC, "orders").configs}
    assert len(names) == 33
    node.image.configs[TOPIC, "orders"] = {"internal.segment.bytes": "100"}
    assert len(describe(node, TOPIC, "orders").configs) == 34


def test_documentation_comes_on_demand(node: Node) -> None:
    assert describe(node, TOPIC, "orders", "segment.bytes").configs[0].documentation is None
    [found] = describe(node, TOPIC, "orders", "segment.bytes", documentation=True).configs
    assert found.documentation
    assert found.documentation.startswith("Roll the active segment")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_cannot_be_described(node: Node, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(node, kind, name)
    assert result.error_code == code
    assert result.configs == []


def test_an_unknown_resource_type_fails_the_whole_request(node: Node) -> None:
    with pytest.raises(KafkaError) as error:
        describe(node, 3, "x")
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=3, resource_name="x")])
    [result] = error_response(request, 4, error.value.code, error.value.message).results
    assert (result.error_code, result.resource_type) == (ErrorCode.INVALID_REQUEST, 3)


def test_a_broker_shows_its_sources_and_hides_secrets(node: Node) -> None:
    static = entry(node, BROKER, "1", "log.retention.hours")
    assert (static.value, static.config_source, static.read_only) == ("2", 4, True)
    assert layers(static) == [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]
    secret = entry(node, BROKER, "1", "ssl.key.password")
    assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
    assert layers(secret) == [("ssl.key.password", None, 4)]
    plugin = entry(node, BROKER, "1", "some.plugin.key")
    assert (plugin.value, plugin.is_sensitive, plugin.config_type, plugin.config_source) == (None, True, 0, 4)
    assert entry(node, BROKER, "1", "log.retention.ms").value is None
    assert not entry(node, BROKER, "1", "log.retention.ms").read_only
    assert describe(node, BROKER, "1", "unstable.api.versions.enable").configs == []
    assert describe(node, BROKER, "1", "leader.replication.throttled.rate").configs == []


def test_dynamic_configs_of_one_broker_and_of_all(node: Node) -> None:
    node.apply(default={"log.retention.ms": "5"}, broker={"leader.replication.throttled.rate": "9"})
    found = entry(node, BROKER, "1", "log.retention.ms")
    assert (found.value, found.config_source) == ("5", 3)
    rate = entry(node, BROKER, "1", "leader.replication.throttled.rate")
    assert (rate.value, rate.config_source, rate.config_type, rate.read_only) == ("9", 2, 5, False)
    everyone = describe(node, BROKER, "").configs
    assert [(config.name, config.value, layers(config)) for config in everyone] == [
        ("log.retention.ms", "5", [("log.retention.ms", "5", 3)])
    ]


def test_groups_and_subscriptions(node: Node) -> None:
    node.image.configs[GROUP, "g"] = {"consumer.session.timeout.ms": "46000"}
    own = entry(node, GROUP, "g", "consumer.session.timeout.ms")
    assert (own.value, own.config_source) == ("46000", 8)
    assert layers(own) == [
        ("consumer.session.timeout.ms", "46000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert layers(entry(node, GROUP, "g", "share.auto.offset.reset")) == [("share.auto.offset.reset", "latest", 5)]
    node.image.configs[METRICS, "m"] = {"interval.ms": "500"}
    assert layers(entry(node, METRICS, "m", "interval.ms")) == [("interval.ms", "500", 7)]
    assert entry(node, METRICS, "m", "match").config_source == 5


# -- alter


def alter(node: Node, kind: int, name: str, *changes: tuple[str, int, str | None], only: bool = False) -> Any:
    configs = [incremental.AlterableConfig(name=n, config_operation=op, value=value) for n, op, value in changes]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)
    context: Any = Context(node, 1)
    [response] = asyncio.run(incremental_alter_configs.handle(context, request)).responses
    return response


def test_changes_of_topics_go_to_the_controller(node: Node) -> None:
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "5")).error_code == 0
    [request] = node.forwarded
    assert request.resources[0].configs[0].value == "5"


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (BROKER, "1", [("log.retention.ms", SET, "x")], ErrorCode.INVALID_REQUEST, "Not a number"),
        (BROKER, "1", [("num.partitions", SET, "5")], ErrorCode.INVALID_REQUEST, "dynamically: [num.partitions]"),
        (BROKER, "2", [("log.retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1"),
        (BROKER, "x", [("log.retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST, "must be an integer"),
        (BROKER, "1", [("log.retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG, "append is not allowed"),
        (BROKER, "1", [("no.such", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG, "Unknown config name"),
        (BROKER, "1", [("log.retention.ms", 7, "5")], ErrorCode.INVALID_REQUEST, "Unknown operations type 7"),
        (BROKER, "1", [("log.retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported"),
        (TOPIC, "orders", [("a", SET, "1"), ("a", DELETE, None)], ErrorCode.INVALID_REQUEST, "duplicate config keys"),
        (3, "x", [("a", SET, "1")], ErrorCode.INVALID_REQUEST, "Unknown resource type 3"),
        (LOGGER, "2", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST, "Expected 1, but received 2"),
        (LOGGER, "1", [("no.such.logger", SET, "INFO")], ErrorCode.INVALID_CONFIG, "does not exist"),
        (LOGGER, "1", [("root", SET, "LOUD")], ErrorCode.INVALID_CONFIG, "Valid log levels are DEBUG, ERROR"),
        (LOGGER, "1", [("root", DELETE, None)], ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        (LOGGER, "1", [("root", APPEND, "INFO")], ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
    ],
)
def test_what_the_broker_refuses_is_not_forwarded(
    node: Node, kind: int, name: str, changes: Any, code: ErrorCode, message: str
) -> None:
    response = alter(node, kind, name, *changes)
    assert response.error_code == code
    assert message in response.error_message
    assert node.forwarded == []


def test_list_operations_work_on_what_is_stored(node: Node) -> None:
    node.apply(default={}, broker={"log.cleanup.policy": "delete"})
    assert alter(node, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")).error_code == 0
    assert alter(node, BROKER, "1", ("log.cleanup.policy", APPEND, "compact,,")).error_code == 0
    assert alter(node, BROKER, "1", ("log.cleanup.policy", APPEND, "shred")).error_code == ErrorCode.INVALID_REQUEST
    assert alter(node, BROKER, "1", ("log.cleanup.policy", SUBTRACT, "delete")).error_code == 0
    assert alter(node, BROKER, "1", ("log.cleanup.policy", DELETE, None)).error_code == 0


def test_resources_are_answered_one_by_one_in_order(node: Node) -> None:
    def resource(kind: int, name: str, value: str) -> incremental.AlterConfigsResource:
        config = incremental.AlterableConfig(name="log.retention.ms", config_operation=SET, value=value)
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            resource(BROKER, "1", "bad"),
            resource(TOPIC, "a", "1"),
            resource(BROKER, "", "1"),
            resource(TOPIC, "b", "1"),
            resource(TOPIC, "b", "2"),
        ]
    )
    context: Any = Context(node, 1)
    responses = asyncio.run(incremental_alter_configs.handle(context, request)).responses
    assert [response.error_code for response in responses] == [42, 0, 0, 42, 42]
    assert responses[4].error_message == "Each resource must appear at most once."
    assert [r.resource_name for r in node.forwarded[0].resources] == ["a", ""]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("pylogd.test.alter")
    yield made
    made.setLevel(logging.NOTSET)


def test_levels_of_loggers_are_changed_here_and_now(node: Node, logger: logging.Logger) -> None:
    assert alter(node, LOGGER, "1", (logger.name, SET, "ERROR"), only=True).error_code == 0
    assert logger.level == logging.NOTSET
    assert alter(node, LOGGER, "1", (logger.name, SET, "ERROR")).error_code == 0
    assert logger.level == logging.ERROR
    assert entry(node, LOGGER, "1", logger.name).value == "ERROR"
    assert alter(node, LOGGER, "1", (logger.name, DELETE, None)).error_code == 0
    assert logger.level == logging.NOTSET
    assert node.forwarded == []


@pytest.mark.parametrize(
    ("kind", "name", "value", "code"),
    [
        (TOPIC, "orders", "5", 0),
        (BROKER, "1", "5", 0),
        (BROKER, "1", "x", 42),
        (BROKER, "9", "5", 42),
        (LOGGER, "1", "5", 42),
    ],
)
def test_the_legacy_request(node: Node, kind: int, name: str, value: str, code: int) -> None:
    config = legacy.AlterableConfig(name="log.retention.ms", value=value)
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    context: Any = Context(node, 2)
    request = legacy.AlterConfigsRequest(resources=[resource])
    [response] = asyncio.run(alter_configs.handle(context, request)).responses
    assert response.error_code == code
    assert len(node.forwarded) == (code == 0)


# -- list


def test_resources_with_configs(node: Node) -> None:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092, 0)
    for broker_id, fenced in ((1, False), (2, True)):
        node.image.brokers[broker_id] = Broker(broker_id, 1, bytes(16), {"PLAINTEXT": endpoint}, {}, fenced=fenced)
    node.image.configs[GROUP, "g"] = {"consumer.session.timeout.ms": "46000"}
    node.image.configs[METRICS, "m"] = {"interval.ms": "500"}

    def listed(version: int, *types: int) -> list[tuple[int, str]]:
        context: Any = Context(node, version)
        response = list_config_resources.handle(context, ListConfigResourcesRequest(resource_types=list(types)))
        assert response.error_code == 0
        return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]

    assert listed(0) == [(METRICS, "m")]
    assert listed(1) == [(GROUP, "g"), (METRICS, "m"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "orders")]
    assert listed(1, TOPIC, GROUP) == [(GROUP, "g"), (TOPIC, "orders")]
    context: Any = Context(node, 1)
    response = list_config_resources.handle(context, ListConfigResourcesRequest(resource_types=[3]))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


# -- what the controller asks


@pytest.mark.parametrize(
    ("kind", "name", "values", "code"),
    [
        (TOPIC, "orders", {"retention.ms": "5"}, None),
        (TOPIC, "orders", {"retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", {"no.such": "x"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "", {}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "", {"x": "y"}, None),
        (BROKER, "-1", {}, ErrorCode.INVALID_REQUEST),
        (BROKER, "x", {}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {"consumer.session.timeout.ms": "1"}, ErrorCode.INVALID_CONFIG),
        (GROUP, "", {}, ErrorCode.INVALID_REQUEST),
        (METRICS, "m", {"interval.ms": "500"}, None),
        (METRICS, "m", {"interval.ms": "5"}, ErrorCode.INVALID_REQUEST),
        (METRICS, "m", {"match": "x=y"}, ErrorCode.INVALID_CONFIG),
        (METRICS, "", {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_rules_of_the_controller(
    node: Node, kind: int, name: str, values: dict[str, str], code: ErrorCode | None
) -> None:
    rules = config_rules.ConfigRules(node.config)
    if code is None:
        rules.validate(kind, name, values, {})
    else:
        with pytest.raises(KafkaError) as error:
            rules.validate(kind, name, values, {})
        assert error.value.code == code


def test_rules_resolve_topic_values_with_their_source(node: Node) -> None:
    rules = config_rules.ConfigRules(node.config)
    assert rules.topic_value("retention.ms", {}, {}, {}) == "7200000"
    assert rules.topic_value("retention.ms", {}, {"log.retention.minutes": "1"}, {"log.retention.ms": "5"}) == "60000"
    sources = {config.name: config.source for config in rules.topic_configs({"segment.ms": "5"}, {}, {})}
    assert (sources["segment.ms"], sources["retention.ms"], sources["segment.bytes"]) == (1, 4, 5)
    assert rules.is_list(TOPIC, "cleanup.policy")
    assert not rules.is_list(TOPIC, "segment.ms")
    assert rules.default(TOPIC, "cleanup.policy") == "delete"
