"""Frames: headers of every kind, sizes, chunks, and requests that do not fill their frame."""

from __future__ import annotations

import pytest
from pylogd.protocol.api import (
    APIS,
    ApiKey,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.framing import (
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_response,
)
from pylogd.protocol.headers import RequestHeader
from pylogd.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pylogd.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pylogd.protocol.messages.metadata import MetadataRequest, MetadataResponse


def joined(chunks: list[object]) -> memoryview:
    return memoryview(b"".join(chunks))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", list(APIS))
def test_request_and_response_frames_of_every_api(key: ApiKey) -> None:
    row = APIS[key]
    for version in range(row.first, row.last + 1):
        frame = joined(encode_request(key, version, 77, "me", request_class(key)()))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header = RequestHeader(key, version, 77, "me")
        assert bytes(frame[4:]).startswith(encode(header, request_header_version(key, version)))
        body = frame[4:]
        *read, pos = decode_request_header(body)
        assert read == [key, version, 77, "me"]
        assert decode_request(key, version, body, pos) == request_class(key)()

        frame = joined(encode_response(key, version, 78, response_class(key)()))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, pos = decode_response_header(key, version, frame[4:])
        assert correlation_id == 78
        assert pos == (5 if response_header_version(key, version) else 4)
        assert decode_response(key, version, frame[4:], pos) == response_class(key)()


def test_api_versions_answers_with_the_old_header() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert joined(encode_response(ApiKey.API_VERSIONS, 3, 5, ApiVersionsResponse()))[4:8] == b"\0\0\0\5"


def test_produce_is_advertised_from_version_0() -> None:
    assert (APIS[ApiKey.PRODUCE].advertised_first, APIS[ApiKey.PRODUCE].first) == (0, 3)
    assert APIS[ApiKey.FETCH].advertised_first == 4


def test_null_client_id_and_header_tags() -> None:
    frame = joined(encode_request(ApiKey.METADATA, 9, 1, None, MetadataRequest()))
    assert decode_request_header(frame[4:])[3] is None
    header = bytes.fromhex("0003 0009 00000001 0001 78 01 05 02 abcd")
    assert decode_request_header(memoryview(header)) == (ApiKey.METADATA, 9, 1, "x", len(header))


def test_versions_we_do_not_serve_still_have_a_header() -> None:
    """ApiVersions in a newer version must be answered, so its header must be readable."""
    header = bytes.fromhex("0012 0063 00000001 0001 78 00")
    key, version, correlation_id, _, pos = decode_request_header(memoryview(header + b"whatever"))
    assert (key, version, correlation_id, pos) == (ApiKey.API_VERSIONS, 99, 1, len(header))
    with pytest.raises(KafkaError) as caught:
        decode_request(key, version, header, pos)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "too early"),
        ("0003 0009 00000001 00", "too early"),
        ("0003 0009 00000001 0002 78", "client id"),
        ("0003 0009 00000001 0001 ff 00", "UTF-8"),
        ("0003 0009 00000001 0001 78", "too early"),
        ("0003 0009 00000001 0001 78 01 05 7f", "too early"),
        ("0003 0009 00000001 0001 78 ff ff ff ff 07", "too early"),
        ("7777 0009 00000001 0001 78 00", "unknown API key"),
        ("0004 0000 00000001 0001 78 00", "unknown API key"),
    ],
)
def test_malformed_headers(header: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_request_header(memoryview(bytes.fromhex(header)))


def test_bytes_behind_a_request_are_refused() -> None:
    body = encode(ApiVersionsRequest("n", "v"), 3)
    assert decode_request(ApiKey.API_VERSIONS, 3, body, 0) == ApiVersionsRequest("n", "v")
    with pytest.raises(ProtocolError, match="1 bytes behind"):
        decode_request(ApiKey.API_VERSIONS, 3, body + b"\0", 0)
    with pytest.raises(ProtocolError, match="behind"):
        decode_response(ApiKey.METADATA, 9, encode(MetadataResponse(), 9) + b"\0", 0)


class Range:
    def __init__(self, size: int) -> None:
        self.size = size


def test_file_ranges_stand_between_the_chunks() -> None:
    first, second = Range(1000), Range(5)

    def response(*records: object) -> FetchResponse:
        partitions = [PartitionData(partition_index=n, records=data) for n, data in enumerate(records)]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=partitions)])

    expected = joined(encode_response(ApiKey.FETCH, 16, 9, response(bytes(1000), b"between", bytes(5))))
    chunks = encode_response(ApiKey.FETCH, 16, 9, response(first, b"between", second))
    assert [chunk for chunk in chunks if isinstance(chunk, Range)] == [first, second]
    assert joined([bytes(chunk.size) if isinstance(chunk, Range) else chunk for chunk in chunks]) == expected
