"""The `inert` flag tells users which keys do nothing yet; this keeps it true as features arrive.

A key acts when its name, or for topic configs the log's field of that name, appears in the code outside the registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from pylogd.config.broker import BROKER_KEYS
from pylogd.config.definition import ConfigKey
from pylogd.config.group_configs import CLIENT_METRICS_KEYS, GROUP_KEYS
from pylogd.config.topic_configs import BROKER_WIDE, SYNONYMS, TOPIC_KEYS
from support.paths import CHECKOUT

FOLDERS = (
    "runtime", "metadata", "rpc", "storage", "replication", "controller", "coordinators", "broker", "audit", "cli",
    "api",
)  # fmt: skip
# These list keys for reasons other than acting on them.
LISTS = (
    "broker/admin/config_admin.py",
    "controller/config_rules.py",
    "broker/handlers/describe_configs.py",
    "storage/log_config.py",
)


def code() -> str:
    texts = []
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            if str(path.relative_to(CHECKOUT)) not in LISTS:
                texts.append(path.read_text())
    return "\n".join(texts)


def acting() -> dict[str, set[str]]:
    text = code()
    derived = set(re.findall(r'(?:self\[|name = )"([^"]+)"', (CHECKOUT / "config" / "broker.py").read_text()))

    def named(keys: Iterable[str]) -> set[str]:
        return {name for name in keys if f'"{name}"' in text}

    topic = {name for name in TOPIC_KEYS if re.search(rf"\.{name.replace('.', '_')}\b", text)} | named(TOPIC_KEYS)
    topic.add("internal.segment.bytes")  # takes the place of segment.bytes
    broker = named(BROKER_KEYS) | derived.intersection(BROKER_KEYS)
    broker |= {synonym for name in topic for synonym, _ in SYNONYMS.get(name, ())} | set(BROKER_WIDE)
    group = named(GROUP_KEYS)
    broker |= {f"group.{name}" for name in group}
    return {"broker": broker, "topic": topic, "group": group, "client-metrics": named(CLIENT_METRICS_KEYS)}


SCOPES: dict[str, dict[str, ConfigKey]] = {
    "broker": BROKER_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client-metrics": CLIENT_METRICS_KEYS,
}


@pytest.mark.parametrize("scope", SCOPES)
def test_inert_keys_are_marked_and_no_others(scope: str) -> None:
    keys = SCOPES[scope]
    expected = keys.keys() - acting()[scope]
    marked = {name for name, key in keys.items() if "inert" in key.flags}
    assert sorted(marked - expected) == [], "these keys are used now: remove `inert` from their rows"
    assert sorted(expected - marked) == [], "nothing uses these keys: add `inert` to their rows"
