"""Our bytes against kafka-python's codecs: decoded there, encoded there again, byte for byte the same."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from random import Random
from typing import Any

import kafka.protocol
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from pylogd.protocol.api import APIS
from pylogd.protocol.codec import encode
from pylogd.protocol.messages.api_versions import ApiVersionsResponse
from support.messages import random_message
from support.scale import scaled


def kafka_python_classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" in module.name or module.name.endswith("generate_stubs"):
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, ApiMessage) and value is not ApiMessage:
                found[value.__name__] = value
    return found


THEIRS = kafka_python_classes()
OURS = {cls.__name__: cls for api in APIS.values() for cls in (api.request, api.response)}
COMMON = sorted(THEIRS.keys() & OURS.keys())


def test_most_client_apis_are_compared() -> None:
    assert len(COMMON) > 90
    assert {"ProduceRequest", "FetchResponse", "MetadataResponse"} <= set(COMMON)


@pytest.mark.parametrize("name", COMMON)
@settings(max_examples=scaled(test=12, soak=500), deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False), data=st.data())
def test_kafka_python_agrees(name: str, rng: Random, data: st.DataObject) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    last = min(ours.VERSIONS[1], theirs.max_version)
    version = data.draw(st.integers(ours.VERSIONS[0], last), label="version")
    message = random_message(rng, ours, version)
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # with an error kafka-python reads any version as 0
    encoded = encode(message, version)
    read = theirs.decode(encoded, version=version)
    read._header = None  # decode leaves it unset, encode looks at it
    assert bytes(read.encode(version=version)) == encoded
