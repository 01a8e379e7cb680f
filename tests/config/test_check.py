"""Combinations of keys that Kafka refuses, and listeners."""

from __future__ import annotations

import pytest
from pylogd.config.broker import BrokerConfig
from pylogd.config.check import check_broker
from pylogd.config.config_error import ConfigError
from pylogd.config.listeners import Endpoint, parse_listener, parse_listeners

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
TLS = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,C:PLAINTEXT"}
CONTROLLER = {**COMBINED, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}


@pytest.mark.parametrize("base", [COMBINED, BROKER, CONTROLLER])
def test_usual_configurations_pass(base: dict[str, str]) -> None:
    assert check_broker(BrokerConfig(base)) == []


@pytest.mark.parametrize(
    ("base", "change", "name"),
    [
        (COMBINED, {"broker.id": "2"}, "broker.id"),
        (COMBINED, {"log.dirs": "/a,/b/../a/"}, "log.dirs"),
        (COMBINED, {"log.roll.ms": "0"}, "log.roll.ms"),
        (COMBINED, {"log.retention.ms": "0"}, "log.retention.ms"),
        (COMBINED, {"log.cleaner.threads": "128"}, "log.cleaner.dedupe.buffer.size"),
        (COMBINED, {"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms"),
        (COMBINED, {"cordoned.log.dirs": "/other"}, "cordoned.log.dirs"),
        (COMBINED, {"controller.quorum.voters": "2@b:9093"}, "controller.quorum.voters"),
        (COMBINED, {"controller.listener.names": "OTHER"}, "controller.listener.names"),
        (COMBINED, {"listeners": "CONTROLLER://:9093"}, "listeners"),
        (COMBINED, {"listeners": "PLAINTEXT://:9093,CONTROLLER://:9093"}, "listeners"),
        (COMBINED, {"listeners": "PLAINTEXT://:9092,plaintext://:9094,CONTROLLER://:9093"}, "listeners"),
        (COMBINED, {"listeners": "9092"}, "listeners"),
        (COMBINED, {"listeners": "EXTERNAL://:9092,CONTROLLER://:9093"}, "listener.security.protocol.map"),
        (COMBINED, {"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name"),
        (COMBINED, {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        (COMBINED, {"advertised.listeners": "SSL://a:1,PLAINTEXT://a:2"}, "advertised.listeners"),
        (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:TLS"}, "listener.security.protocol.map"),
        (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "listener.security.protocol.map"),
        (COMBINED, {"queued.max.request.bytes": "5"}, "queued.max.request.bytes"),
        (COMBINED, {"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        (COMBINED, {"max.connections.per.ip.overrides": "x"}, "max.connections.per.ip.overrides"),
        (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}, "listeners"),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:1,SSL://:2,C://:3", "controller.listener.names": "C", **TLS},
            "listeners",
        ),
        (COMBINED, {"authorizer.class.name": "x.StandardAuthorizer"}, "authorizer.class.name"),
        (COMBINED, {"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable"),
        (COMBINED, {"connections.max.idle.ms": "50"}, "connection.failed.authentication.delay.ms"),
        (BROKER, {"controller.quorum.bootstrap.servers": ""}, "controller.quorum.bootstrap.servers"),
        (BROKER, {"controller.quorum.voters": "1@a:9093"}, "controller.quorum.voters"),
        (BROKER, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "listeners"),
        (BROKER, {"controller.quorum.auto.join.enable": "true"}, "controller.quorum.auto.join.enable"),
        (CONTROLLER, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "listeners"),
        (CONTROLLER, {"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name"),
    ],
)
def test_contradictions_are_refused(base: dict[str, str], change: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_broker(BrokerConfig({**base, **change}))
    assert error.value.name == name


def test_a_slow_heartbeat_is_only_a_warning() -> None:
    warnings = check_broker(BrokerConfig({**COMBINED, "broker.heartbeat.interval.ms": "5000"}))
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://localhost:9092", Endpoint("PLAINTEXT", "localhost", 9092)),
        ("external://:0", Endpoint("EXTERNAL", "", 0)),
        ("SSL://[::1]:9092", Endpoint("SSL", "::1", 9092)),
        ("SSL://[fe80::1%eth0]:9092", Endpoint("SSL", "fe80::1%eth0", 9092)),
        ("SSL://host:70000", None),
        ("SSL://host", None),
    ],
)
def test_listener_strings(text: str, endpoint: Endpoint | None) -> None:
    if endpoint is None:
        with pytest.raises(ConfigError):
            parse_listener("listeners", text)
    else:
        assert parse_listener("listeners", text) == endpoint


def test_one_port_may_serve_both_address_families() -> None:
    pair = ["A://127.0.0.1:9092", "B://[::1]:9092"]
    assert len(parse_listeners("listeners", pair, distinct_ports=True)) == 2
    with pytest.raises(ConfigError):
        parse_listeners("listeners", [*pair, "C://:9092"], distinct_ports=True)


def test_the_controller_is_advertised_where_others_reach_it() -> None:
    def advertised(change: dict[str, str]) -> list[str]:
        config = BrokerConfig({**COMBINED, **change})
        return [str(endpoint) for endpoint in config.advertised_controller_listeners]

    assert advertised({}) == ["CONTROLLER://:9093"]
    assert advertised({"controller.quorum.voters": "1@node-a:9093"}) == ["CONTROLLER://node-a:9093"]
    assert advertised({"advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://b:2"}) == ["CONTROLLER://b:2"]


def test_controller_listeners_are_plaintext_unless_tls_is_in_use() -> None:
    assert BrokerConfig(COMBINED).security_protocols["CONTROLLER"] == "PLAINTEXT"
    tls = BrokerConfig({**COMBINED, "listeners": "SSL://:9092,CONTROLLER://:9093"})
    assert "CONTROLLER" not in tls.security_protocols
