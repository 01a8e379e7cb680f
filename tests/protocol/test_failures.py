"""A request that failed as a whole: every API says so in every version, and names what the request named."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.codec import decode, encode
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.failures import error_response, known_code
from pylogd.protocol.messages import fetch, offset_fetch, produce, write_txn_markers
from pylogd.protocol.schema import Struct
from support.messages import random_message

CODE = ErrorCode.POLICY_VIOLATION
SEEDS = 20

#: Not served here, and nobody has said yet where their errors go.
LATER = {
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
}
#: The connection is closed instead.
CLOSED = {ApiKey.ALTER_REPLICA_LOG_DIRS}
#: Versions whose response has no place for the error code that it is given.
NO_PLACE = {(ApiKey.FIND_COORDINATOR, version) for version in (4, 5, 6)} | {(ApiKey.ELECT_LEADERS, 0)}
#: Versions whose response leaves it out.
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def versions() -> Iterator[tuple[ApiKey, int]]:
    for api in APIS.values():
        if api.key not in LATER | CLOSED:
            for version in range(api.first, api.last + 1):
                if (api.key, version) not in NO_PLACE | SILENT:
                    yield api.key, version


def codes(answer: Any) -> Iterator[int]:
    """All error codes in a response."""
    for name in type(answer)._defaults:
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes(each)


@pytest.mark.parametrize(("key", "version"), list(versions()), ids=lambda value: getattr(value, "name", value))
def test_every_version_carries_the_error(key: ApiKey, version: int) -> None:
    api = APIS[key]
    found: list[int] = []
    for seed in range(SEEDS):
        request: Any = random_message(Random(seed), api.request, version)
        if key is ApiKey.PRODUCE:
            request.acks = -1
        response = error_response(request, version, CODE, None)
        decoded, _ = decode(api.response, version, encode(response, version))
        # A default of 0 stands where the version has no error code, beside the places that carry it.
        found += set(codes(decoded))
    assert CODE in found
    assert set(found) <= {CODE, ErrorCode.NONE}


def test_the_apis_without_a_place_are_known() -> None:
    """The exceptions above are no more than there are."""
    for key in LATER | CLOSED:
        request = random_message(Random(1), APIS[key].request, APIS[key].last)
        assert error_response(request, APIS[key].last, CODE, None) is None


def test_nobody_reads_the_response_to_a_produce_without_acks() -> None:
    data = produce.PartitionProduceData(index=3)
    request = produce.ProduceRequest(acks=0, topic_data=[produce.TopicProduceData("t", partition_data=[data])])
    assert error_response(request, 9, CODE, "why") is None
    request.acks = 1
    [topic] = error_response(request, 9, CODE, "why").responses
    [answer] = topic.partition_responses
    assert (topic.name, answer.index, answer.error_code, answer.base_offset, answer.error_message) == (
        "t", 3, CODE, -1, "why",
    )  # fmt: skip


def test_fetch_names_partitions_until_it_has_topic_ids() -> None:
    asked = fetch.FetchTopic("t", partitions=[fetch.FetchPartition(partition=1), fetch.FetchPartition(partition=2)])
    request = fetch.FetchRequest(session_id=5, topics=[asked])
    old = error_response(request, 12, CODE, None)
    assert [(row.partition_index, row.error_code) for row in old.responses[0].partitions] == [(1, CODE), (2, CODE)]
    new = error_response(request, 13, CODE, None)
    assert (new.error_code, new.session_id, new.responses) == (CODE, 5, [])


def test_offset_fetch_has_three_places_for_an_error() -> None:
    m = offset_fetch
    request = m.OffsetFetchRequest("g", [m.OffsetFetchRequestTopic("t", [7])])
    [topic] = error_response(request, 1, CODE, None).topics
    [row] = topic.partitions
    assert (row.partition_index, row.committed_offset, row.error_code) == (7, -1, CODE)
    assert error_response(request, 2, CODE, None) == m.OffsetFetchResponse(error_code=CODE)
    several = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup("a"), m.OffsetFetchRequestGroup("b")])
    answered = error_response(several, 8, CODE, None)
    assert [(group.group_id, group.error_code) for group in answered.groups] == [("a", CODE), ("b", CODE)]


def test_markers_of_one_producer_are_answered_together() -> None:
    m = write_txn_markers
    markers = [m.WritableTxnMarker(9, topics=[m.WritableTxnMarkerTopic("t", [index])]) for index in (1, 2)]
    [producer] = error_response(m.WriteTxnMarkersRequest(markers=markers), 1, CODE, None).markers
    [topic] = producer.topics
    assert [row.partition_index for row in topic.partitions] == [1, 2]


@pytest.mark.parametrize(
    ("key", "version", "code", "told"),
    [
        (ApiKey.END_TXN, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ApiKey.END_TXN, 2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (ApiKey.ADD_OFFSETS_TO_TXN, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ApiKey.INIT_PRODUCER_ID, 3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ApiKey.INIT_PRODUCER_ID, 4, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (ApiKey.TXN_OFFSET_COMMIT, 1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.TXN_OFFSET_COMMIT, 2, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.TXN_OFFSET_COMMIT, 5, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ApiKey.OFFSET_COMMIT, 5, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_client_is_told_a_code_that_it_knows(key: ApiKey, version: int, code: ErrorCode, told: ErrorCode) -> None:
    assert known_code(key, version, code) is told
