"""Produce over a real socket to real logs."""

from __future__ import annotations

import pytest

from pylogd.protocol.errors import ErrorCode
from support.datanode import DataNode
from support.produce import fetch_request, produce_request, records, values
from support.rawclient import Closed


def only(response):  # type: ignore[no-untyped-def]
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends(node: DataNode, version: int, acks: int) -> None:
    topic_id = node.create_topic("t")
    with node.client() as client:
        for expected in (0, 2):
            name = ("t", topic_id) if version < 13 else ("", topic_id)
            request = produce_request(name[0], records(b"a", b"b"), acks=acks, topic_id=name[1])
            answer = only(client.ask(request, version))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
            assert answer.log_start_offset == (0 if version >= 5 else -1)
        data = client.ask(fetch_request("t", 0), 12).responses[0].partitions[0]
        assert values(data.records) == [b"a", b"b", b"a", b"b"]
        assert data.high_watermark == 4
