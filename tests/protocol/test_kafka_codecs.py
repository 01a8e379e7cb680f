"""Our bytes against Kafka's own classes: every message in every version, read and written again by the JVM."""

from __future__ import annotations

import os
import subprocess
from random import Random

import pytest
from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.codec import decode, encode
from pylogd.protocol.errors import ErrorCode, ProtocolError
from support.jvm import compiled, tool_command
from support.messages import all_versions, random_message
from support.scale import scaled
from support.schemas import kafka_classes

pytestmark = pytest.mark.jvm

SAMPLES = scaled(test=4, soak=100)


def echo(lines: list[str]) -> list[str]:
    command = tool_command("MessageEcho")
    command[command.index("-cp") + 1] += os.pathsep + str(compiled("MessageEcho.java"))
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout.splitlines()


def test_kafka_reads_what_we_write_and_writes_it_the_same() -> None:
    classes = kafka_classes()
    rng = Random(4_3_1)
    cases = []
    for cls, version in all_versions():
        name = classes.get(cls.__name__ + "Data") or classes[cls.__name__]
        for sample in range(SAMPLES + 1):
            message = random_message(rng, cls, version) if sample else cls()
            cases.append((name, version, encode(message, version).hex()))
    answers = echo([f"{name} {version} {data}" for name, version, data in cases])
    assert len(answers) == len(cases)
    wrong = [(case, answer) for case, answer in zip(cases, answers) if case[2] != answer]
    assert not wrong, f"{len(wrong)} of {len(cases)}, first: {wrong[0]}"


def test_kafka_refuses_what_we_refuse() -> None:
    """The last byte cut off: neither side may accept it."""
    classes = kafka_classes()
    rng = Random(7)
    cases = []
    for cls, version in all_versions():
        data = encode(random_message(rng, cls, version), version)
        if data:
            cases.append((cls, version, data[:-1]))
    lines = [
        f"{classes.get(cls.__name__ + 'Data') or classes[cls.__name__]} {v} {data.hex()}" for cls, v, data in cases
    ]
    for (cls, version, data), answer in zip(cases, echo(lines), strict=True):
        assert answer.startswith("failed"), (cls, version, answer)
        with pytest.raises(ProtocolError):
            decode(cls, version, data)


def test_api_keys_and_error_codes_are_kafkas() -> None:
    apis, errors = [], []
    for line in echo(["apis", "errors"]):
        kind, number, name, *flags = line.split(" ")
        if kind == "api":
            apis.append((int(number), name, *flags))
        else:
            errors.append((int(number), name))
    ours = []
    for key in ApiKey:
        row = APIS.get(key)
        if row is not None:
            ours.append((int(key), key.name, str(row.cluster_action).lower(), str(row.forwardable).lower()))
    assert [api for api in apis if api[0] in APIS] == ours
    assert [(api[0], api[1]) for api in apis] == [(int(key), key.name) for key in ApiKey]
    assert errors == [(int(code), code.name) for code in ErrorCode]
