"""The configuration reference as Markdown, made from the registry: `pylogd config-docs > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable

from pylogd.config.broker import BROKER_KEYS
from pylogd.config.definition import ConfigKey
from pylogd.config.group_configs import CLIENT_METRICS_KEYS, GROUP_KEYS, broker_synonym
from pylogd.config.topic_configs import SYNONYMS, TOPIC_KEYS
from pylogd.config.valid import valid_text

_INTRODUCTION = """\
# Configuration

This page is made by `pylogd config-docs`; do not edit it.

pylogd takes Kafka's configuration as it is: the keys, types, defaults and valid values of Apache Kafka 4.3, and a few
keys of its own that start with `pylogd.`.

- `pylogd` alone starts one combined broker and controller on 127.0.0.1:9092 with data in `./pylogd-data`.
- `pylogd --config FILE` reads TOML or a plain Kafka `server.properties`. A file that sets `process.roles` is complete;
  without it the file adjusts the default above.
- `pylogd --set key=value` overrides single keys and may be repeated.

```toml
"node.id" = 1
"log.dirs" = ["/data/a", "/data/b"]
"log.retention.hours" = 24
[listener.security]            # unquoted dotted keys and tables flatten to the same names
"protocol.map" = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
```

An unknown key or a bad value stops the start with its place, its name and what was expected (exit code 2). Only in a
`server.properties` are unknown keys kept, with a warning: Kafka ignores them there, and plugins and older versions
leave theirs. Keys of one listener (`listener.name.<listener>.<key>`) are known everywhere. Values may refer to
`${env:NAME}`, `${file:PATH:KEY}` (a key of a properties file) and `${dir:PATH:FILE}` (the content of a file).

*Update* says whether a key can be changed while the broker runs, for the whole cluster or for one broker, with
`kafka-configs.sh --alter`. Keys marked † are accepted, checked and shown, but nothing in pylogd acts on them yet or
ever will because they are about the JVM. What would be dangerous to ignore is refused instead: listeners with another
security protocol than PLAINTEXT, `authorizer.class.name`, `remote.log.storage.system.enable`.
"""


def reference() -> str:
    parts = [_INTRODUCTION, "\n## Broker\n"]
    for group, keys in _grouped(BROKER_KEYS.values()):
        parts.append(f"\n### {group}\n\n| key | type | default | valid | update | |\n|---|---|---|---|---|---|\n")
        parts += (_row(key, key.update_mode) for key in keys)
    parts.append("\n## Topic\n\n| key | type | default | valid | broker-wide | |\n|---|---|---|---|---|---|\n")
    for key in _shown(TOPIC_KEYS.values()):
        names = ", ".join(f"`{name}`" for name, _ in SYNONYMS.get(key.name, ()))
        parts.append(_row(key, names))
    parts.append("\n## Group\n\n| key | type | default | valid | broker-wide | |\n|---|---|---|---|---|---|\n")
    for key in _shown(GROUP_KEYS.values()):
        synonym = broker_synonym(key.name)
        parts.append(_row(key, f"`{synonym}`" if synonym else ""))
    parts.append(
        "\n## Client metrics subscription\n\n| key | type | default | valid | | |\n|---|---|---|---|---|---|\n"
    )
    parts += (_row(key, "") for key in _shown(CLIENT_METRICS_KEYS.values()))
    return "".join(parts)


def _shown(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    return [key for key in keys if not key.internal]


def _grouped(keys: Iterable[ConfigKey]) -> list[tuple[str, list[ConfigKey]]]:
    groups: dict[str, list[ConfigKey]] = {}
    for key in _shown(keys):
        groups.setdefault(key.group, []).append(key)
    return list(groups.items())


def _row(key: ConfigKey, fifth: str) -> str:
    if key.required:
        default = "*required*"
    else:
        text = key.to_text(key.default)
        default = "" if text is None else '""' if text == "" else f"`{text}`"
    mark = " †" if "inert" in key.flags else ""
    valid = valid_text(key.valid).replace("|", "\\|")
    doc = key.doc.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")
    return f"| `{key.name}`{mark} | {key.type} | {default} | {valid} | {fifth} | {doc} |\n"
