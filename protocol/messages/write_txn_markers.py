"""The transaction coordinator tells partition leaders to write commit or abort markers."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int8, Int16, Int32, Int64


class WriteTxnMarkersRequest(Message, api_key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


class WritableTxnMarkerTopic(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class WriteTxnMarkersResponse(Message, api_key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarkerResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WritableTxnMarkerTopicResult(Struct):
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
