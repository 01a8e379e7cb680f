"""Types, valid values and the texts of errors."""

from __future__ import annotations

import pytest
from pylogd.config.broker import BROKER_KEYS
from pylogd.config.config_error import ConfigError
from pylogd.config.definition import parse_table
from pylogd.config.group_configs import GROUP_KEYS
from pylogd.config.java_double import double_text
from pylogd.config.topic_configs import TOPIC_KEYS

ALL = {**BROKER_KEYS, **TOPIC_KEYS, **GROUP_KEYS}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("log.segment.bytes", " 1048576 ", 1048576),
        ("log.retention.ms", "-1", -1),
        ("log.retention.ms", "+5", 5),
        ("auto.create.topics.enable", "TRUE", True),
        ("auto.create.topics.enable", "false", False),
        ("log.dirs", "/a , /b", ["/a", "/b"]),
        ("log.dirs", "/a,/b, /a", ["/a", "/b"]),
        ("cleanup.policy", "", []),
        ("cleanup.policy", "compact,delete", ["compact", "delete"]),
        ("log.cleaner.min.cleanable.ratio", "1e-1", 0.1),
        ("offsets.topic.replication.factor", "32767", 32767),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("leader.replication.throttled.replicas", "*", ["*"]),
        ("leader.replication.throttled.replicas", "0:1,1:2", ["0:1", "1:2"]),
        ("share.auto.offset.reset", "by_duration:P1DT2H", "by_duration:P1DT2H"),
        ("controller.quorum.voters", "1@a:9093,2@[::1]:9093", ["1@a:9093", "2@[::1]:9093"]),
    ],
)
def test_text_becomes_a_value(name: str, text: str, value: object) -> None:
    parsed = ALL[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expectation"),
    [
        ("log.segment.bytes", "1GB", "Not a number of type INT (bytes, digits only)"),
        ("log.segment.bytes", "1_048_576", "Not a number"),
        ("log.segment.bytes", "2147483648", "Not a number of type INT"),
        ("log.segment.bytes", "1048575", "at least 1048576"),
        ("offsets.topic.replication.factor", "40000", "Not a number of type SHORT"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.dirs", "/a,,/b", "must not be empty"),
        ("listeners", "", "must not be empty"),
        ("cleanup.policy", "shred", "one of: compact, delete"),
        ("compression.type", "brotli", "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "[1,...,9] or -1"),
        ("compression.lz4.level", "18", "no more than 17"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "half", "type DOUBLE"),
        ("process.roles", "worker", "one of: broker, controller"),
        ("group.consumer.migration.policy", "sideways", "case insensitive"),
        ("leader.replication.throttled.replicas", "0-1", "[partitionId]:[brokerId]"),
        ("share.auto.offset.reset", "by_duration:-P1D", "by_duration"),
        ("share.auto.offset.reset", "by_duration:P", "by_duration"),
        ("controller.quorum.voters", "a:9093", "id@host:port"),
        ("controller.quorum.bootstrap.servers", "localhost", "host:port"),
        ("remote.log.storage.manager.impl.prefix", "", "non-empty"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected(name: str, text: str, expectation: str) -> None:
    with pytest.raises(ConfigError) as error:
        ALL[name].parse(text)
    assert error.value.name == name
    assert name in str(error.value)
    assert expectation in str(error.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (100.0, "100.0"), (1e7, "1.0E7"), (12345678.5, "1.23456785E7"), (1e-4, "1.0E-4"), (0.0, "0.0")],
)
def test_doubles_are_printed_as_java_does(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize("name", sorted(ALL))
def test_defaults_pass_their_own_checks_and_are_documented(name: str) -> None:
    key = ALL[name]
    assert key.doc.endswith(".")
    if key.default is not None:
        text = key.to_text(key.default)
        assert text is not None
        assert key.parse(text) == key.default


def test_a_table_is_cut_into_keys_and_groups() -> None:
    keys = parse_table(
        '# One\na.b int 5 1.. high cluster-wide\n    First.\n# Two\nc list "" list? low internal inert\n    Second.'
    )
    assert [(key.name, key.group, key.doc) for key in keys.values()] == [
        ("a.b", "One", "First."),
        ("c", "Two", "Second."),
    ]
    assert keys["a.b"].update_mode == "cluster-wide"
    assert keys["c"].internal
    assert keys["c"].default == []
