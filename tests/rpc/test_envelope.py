"""What an envelope says about the client: the bytes of Kafka's DefaultKafkaPrincipalBuilder, and an IP address."""

from __future__ import annotations

import pytest
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pylogd.protocol.messages.delete_topics import DeleteTopicsRequest
from pylogd.rpc import envelope
from pylogd.rpc.caller import Caller

SERVED = {ApiKey.DELETE_TOPICS: (1, 6), ApiKey.BROKER_HEARTBEAT: (0, 2)}
REQUEST = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
ALICE = Caller("User:alice", "a-client", "10.1.2.3", "PLAINTEXT")


@pytest.mark.parametrize(
    ("caller", "principal", "address"),
    [
        (ALICE, b"\0\0\x05User\x06alice\0\0", bytes([10, 1, 2, 3])),
        (
            ALICE._replace(token_authenticated=True, host="::1"),
            b"\0\0\x05User\x06alice\1\0",
            bytes(15) + b"\1",
        ),
        (Caller("User:a:b", host="fe80::1%eth0"), b"\0\0\x05User\x04a:b\0\0", b"\xfe\x80" + bytes(13) + b"\1"),
        (Caller("User:" + "n" * 200), b"\0\0\x05User\xc9\x01" + b"n" * 200 + b"\0\0", bytes(4)),
    ],
)
def test_the_client_in_bytes(caller: Caller, principal: bytes, address: bytes) -> None:
    wrapped = envelope.wrap(REQUEST, 5, caller, 7)
    assert (wrapped.request_principal, wrapped.client_host_address) == (principal, address)


@pytest.mark.parametrize("host", ["10.1.2.3", "::1", "2001:db8::7"])
@pytest.mark.parametrize("token", [False, True])
@pytest.mark.parametrize("client_id", ["a-client", "", None])
def test_what_was_wrapped_comes_out(host: str, token: bool, client_id: str | None) -> None:
    caller = Caller("User:alice", client_id, host, "PLAINTEXT", token)
    forwarded = envelope.unwrap(envelope.wrap(REQUEST, 5, caller, 7), SERVED, "CONTROLLER")
    assert forwarded == (REQUEST, 5, 7, caller._replace(listener="CONTROLLER"))


def test_an_address_of_version_4_in_version_6_is_one_of_version_4() -> None:
    wrapped = envelope.wrap(REQUEST, 5, ALICE, 7)
    wrapped.client_host_address = bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3])
    assert envelope.unwrap(wrapped, SERVED, "CONTROLLER").caller.host == "10.1.2.3"


@pytest.mark.parametrize(
    "principal", [None, b"", b"\0\1\x05User\x06alice\0\0", b"\0\0\x05User\x06ali", b"\0\0\x05User"]
)
def test_a_principal_that_cannot_be_read_is_refused(principal: bytes | None) -> None:
    wrapped = envelope.wrap(REQUEST, 5, ALICE, 7)
    wrapped.request_principal = principal
    with pytest.raises(KafkaError) as refusal:
        envelope.unwrap(wrapped, SERVED, "CONTROLLER")
    assert refusal.value.code is ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


@pytest.mark.parametrize("address", [b"", b"\1\2\3", bytes(17)])
def test_an_address_that_is_none_is_refused(address: bytes) -> None:
    wrapped = envelope.wrap(REQUEST, 5, ALICE, 7)
    wrapped.client_host_address = address
    with pytest.raises(KafkaError) as refusal:
        envelope.unwrap(wrapped, SERVED, "CONTROLLER")
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (BrokerHeartbeatRequest(broker_id=1), 0, ErrorCode.INVALID_REQUEST),
        (REQUEST, 0, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_may_not_be_forwarded(request_: object, version: int, code: ErrorCode) -> None:
    served = {**SERVED, ApiKey.DELETE_TOPICS: (2, 6)}
    with pytest.raises(KafkaError) as refusal:
        envelope.unwrap(envelope.wrap(request_, version or 1, ALICE, 7), served, "CONTROLLER")
    assert refusal.value.code is code
