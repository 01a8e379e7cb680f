"""The registry against Kafka's own definitions, read from its jars."""

from __future__ import annotations

import os
import subprocess

import pytest
from pylogd.config.broker import BROKER_KEYS
from pylogd.config.definition import ConfigKey
from pylogd.config.group_configs import CLIENT_METRICS_KEYS, GROUP_KEYS
from pylogd.config.topic_configs import SYNONYMS, TOPIC_KEYS
from pylogd.config.valid import valid_text
from support import jvm

pytestmark = pytest.mark.jvm

SCOPES = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS, "client-metrics": CLIENT_METRICS_KEYS}
# Kafka prints these from hash maps, in any order.
UNORDERED = (
    "listener.security.protocol.map",
    "group.consumer.migration.policy",
    "sasl.oauthbearer.assertion.algorithm",
)


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    command = jvm.tool_command("ConfigDump")
    command[command.index("-cp") + 1] += os.pathsep + str(jvm.compiled("ConfigDump.java"))
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    return [line.split("\t") for line in output.splitlines()]


def normal(name: str, text: str) -> object:
    if name in UNORDERED:
        return sorted(
            text.replace("[", "").replace("]", "").replace("(case insensitive) ", "").replace(" ", "").split(",")
        )
    return text


def described(key: ConfigKey) -> list[object]:
    if key.required:
        default = "\1"
    else:
        text = key.to_text(key.default)
        default = "\0" if text is None else text
    return [
        key.type,
        normal(key.name, default),
        normal(key.name, valid_text(key.valid)),
        key.importance,
        str(key.internal).lower(),
        key.update_mode,
    ]


@pytest.mark.parametrize("scope", SCOPES)
def test_every_key_is_defined_as_in_kafka(rows: list[list[str]], scope: str) -> None:
    theirs = {}
    for row in rows:
        if row[0] == scope:
            name, kind, default, valid, *rest = row[1:]
            theirs[name] = [kind, normal(name, default), normal(name, valid), *rest]
    ours = {name: described(key) for name, key in SCOPES[scope].items() if not name.startswith("pylogd.")}
    assert ours.keys() == theirs.keys()
    assert {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} == {}


def test_topic_configs_have_kafkas_broker_synonyms(rows: list[list[str]]) -> None:
    theirs: dict[str, list[tuple[str, int]]] = {}
    for row in rows:
        if row[0] == "synonym":
            theirs.setdefault(row[1], []).append((row[2], int(row[3]) // 7))
    assert {name: list(pairs) for name, pairs in SYNONYMS.items()} == theirs
