"""Kafka's own message schemas, read from the jars that Maven resolved."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from typing import Any

from support.jvm import kafka_jar

Schema = dict[str, Any]

# The jars whose messages a broker reads or writes, with the number of schemas in each. (kafka-streams has its own,
# which only travel between its clients.)
JARS = {
    "kafka-clients": 198,
    "kafka-metadata": 26,
    "kafka-group-coordinator": 44,
    "kafka-transaction-coordinator": 2,
    "kafka-share-coordinator": 4,
    "kafka-raft": 1,
    "kafka-storage": 5,
}


def parse(text: str) -> Schema:
    """JSON with `//` comments; no string in Kafka's schemas holds two slashes."""
    schema: Schema = json.loads(re.sub(r"//.*", "", text))
    return schema


@functools.cache
def kafka_schemas() -> dict[str, Schema]:
    """Every schema of every Kafka jar by message name."""
    found: dict[str, Schema] = {}
    for jar in JARS:
        with zipfile.ZipFile(kafka_jar(jar)) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name):
                    schema = parse(archive.read(name).decode())
                    found[schema["name"]] = schema | {"jar": jar}
    return found


@functools.cache
def kafka_classes() -> dict[str, str]:
    """Simple name to full name of the generated classes."""
    found: dict[str, str] = {}
    for jar in JARS:
        with zipfile.ZipFile(kafka_jar(jar)) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and "$" not in name and re.search(r"/(message|metadata|generated)/", name):
                    found[name.rsplit("/", 1)[1].removesuffix(".class")] = name.removesuffix(".class").replace("/", ".")
    return found


def version_range(text: str | None) -> range:
    """Kafka's "3", "3-5", "3+" or "none" as versions up to 99."""
    if text is None or text == "none":
        return range(0)
    first, _, last = text.rstrip("+").partition("-")
    return range(int(first), 100 if text.endswith("+") else int(last or first) + 1)


def snake_case(name: str) -> str:
    """A schema's name in ours: `TopicId` is topic_id; KRaft and 2Pc count as one word each."""
    name = name.replace("KRaft", "Kraft").replace("Enable2Pc", "Enable_2pc")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
