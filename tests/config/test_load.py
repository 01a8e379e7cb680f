"""Files, overrides and the embedded default."""

from __future__ import annotations

import pytest
from pylogd.config.load import LoadError, load

COMPLETE = """
process.roles=broker,controller
node.id=3
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
"""


def test_nothing_at_all_is_one_combined_node_on_loopback() -> None:
    config = load().config
    assert config.node_id == 1
    assert config.roles == ["broker", "controller"]
    assert [str(endpoint) for endpoint in config.broker_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert [str(endpoint) for endpoint in config.controller_listeners] == ["CONTROLLER://127.0.0.1:9093"]
    assert config.log_dirs == ["./pylogd-data"]
    assert config["offsets.topic.replication.factor"] == 1


def test_toml_takes_quoted_keys_dotted_keys_tables_and_arrays() -> None:
    text = """
"max.connections.per.ip" = 10
log.dirs = ["/a", "/b"]
auto.create.topics.enable = false
[log.retention]
hours = 1
"check.interval.ms" = 5_000
"""
    config = load("broker.toml", text).config
    assert config["max.connections.per.ip"] == 10
    assert config.log_dirs == ["/a", "/b"]
    assert config["auto.create.topics.enable"] is False
    assert config["log.retention.hours"] == 1
    assert config["log.retention.check.interval.ms"] == 5000
    assert config.source("log.retention.hours") == "STATIC_BROKER_CONFIG"
    assert config.source("log.segment.bytes") == "DEFAULT_CONFIG"


def test_a_file_that_names_its_roles_gets_kafkas_defaults_only() -> None:
    config = load("server.properties", COMPLETE).config
    assert config["offsets.topic.replication.factor"] == 3
    assert config.log_dirs == ["/tmp/kafka-logs"]
    assert config["broker.id"] == 3


def test_a_file_without_roles_adjusts_the_embedded_default() -> None:
    config = load("broker.toml", 'listeners = "PLAINTEXT://0.0.0.0:19092"').config
    assert [str(endpoint) for endpoint in config.listeners] == [
        "PLAINTEXT://0.0.0.0:19092",
        "CONTROLLER://127.0.0.1:0",
    ]


def test_overrides_win_over_the_file() -> None:
    config = load("server.properties", COMPLETE, ["node.id=7", "log.dirs=/x=y"]).config
    assert config.node_id == 7
    assert config.log_dirs == ["/x=y"]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "b.toml",
            '"log.segment.byte" = 1',
            "b.toml:1: unknown configuration log.segment.byte; did you mean log.segment.bytes?",
        ),
        ("b.toml", '\n"frobnicate" = 1', "b.toml:2: unknown configuration frobnicate"),
        ("b.toml", '[log.segment]\nbytes = "1GB"', "b.toml:2: Invalid value 1GB for configuration log.segment.bytes"),
        ("b.toml", '"node.id" = [1, 2]', "b.toml:1: node.id takes one value, not an array"),
        ("b.toml", '"log.roll.ms" = 1979-05-27', "b.toml:1: log.roll.ms must be a string, number"),
        ("b.toml", '"log.dirs" = "/a"\n[log]\ndirs = "/b"', "b.toml:1: log.dirs is set twice"),
        ("b.toml", "= 1", "b.toml: not valid TOML"),
        ("b.toml", '"zookeeper.connect" = "x"', "no longer a Kafka configuration"),
        (
            "s.properties",
            "\nlog.segment.byts=1",
            "s.properties:2: unknown configuration log.segment.byts; did you mean",
        ),
        ("s.properties", "node.id=x", "s.properties:1: Invalid value x for configuration node.id: Not a number"),
        ("s.properties", "a=\\u1", "s.properties: line 1"),
        ("s.properties", "process.roles=broker\nnode.id=1", "Missing required configuration controller.listener.names"),
        ("s.properties", "leader.replication.throttled.rate=5", "can only be set dynamically"),
        ("s.properties", "log.dir=${env:NOPE}", "cannot resolve ${env:NOPE}"),
        ("s.properties", "log.dir=${file:nokey}", "cannot resolve ${file:nokey}"),
    ],
)
def test_errors_name_the_place_the_key_and_the_expectation(path: str, text: str, expected: str) -> None:
    with pytest.raises(LoadError) as error:
        load(path, text, environ={})
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", ["node.id", "=3"])
def test_an_override_needs_a_key_and_a_value(override: str) -> None:
    with pytest.raises(LoadError, match="expected key=value"):
        load(overrides=[override])


def test_unknown_override_is_an_error() -> None:
    with pytest.raises(LoadError, match=r"--set: unknown configuration node\.idd; did you mean node\.id"):
        load(overrides=["node.idd=3"])


def test_foreign_keys_of_a_properties_file_are_kept_with_a_warning() -> None:
    text = COMPLETE + "zookeeper.connect=localhost\nmy.plugin.color=blue\nlistener.name.external.ssl.key.password=x\n"
    loaded = load("server.properties", text + "rsm.config.dir=/tiered\n")
    assert [warning.split(": ")[1].split()[0] for warning in loaded.warnings] == ["zookeeper.connect", "unknown"]
    assert loaded.config.get("my.plugin.color") == "blue"
    assert loaded.config.get("rsm.config.dir") == "/tiered"
    assert loaded.config.for_listener("EXTERNAL", "ssl.key.password") == "x"


def test_values_may_refer_to_the_environment_and_to_files() -> None:
    files = {"/etc/secrets": "dir=/data\n", "/run/secret/key": "s3cret"}
    config = load(
        "s.properties",
        "log.dir=${file:/etc/secrets:dir}/${env:NAME}\nssl.key.password=${dir:/run/secret:key}",
        environ={"NAME": "one"},
        read=files.__getitem__,
    ).config
    assert config.log_dirs == ["/data/one"]
    assert config["ssl.key.password"] == "s3cret"


def test_a_file_of_no_known_kind_may_be_either() -> None:
    assert load("config", "node.id=4\nlog.dirs=/a b").config.log_dirs == ["/a b"]
    assert load("config", '"node.id" = 5').config.node_id == 5
