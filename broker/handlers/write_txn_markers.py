"""WriteTxnMarkers (key 27): a transaction coordinator, or an operator who frees a stuck partition, ends transactions in
partitions led here.

1  flexible
2  the transaction version that decided it (KIP-1228)
"""

from __future__ import annotations

from typing import Any

from pylogd.broker.network.context import RequestContext
from pylogd.coordinators.shard.marker import Marker
from pylogd.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pylogd.runtime.deferred import Deferred
from pylogd.runtime.parts import Parts


def handle(ctx: RequestContext, request: WriteTxnMarkersRequest) -> Deferred:
    appends: list[tuple[Marker, str, int]] = []
    for wanted in request.markers:
        marker = Marker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.coordinator_epoch,
            wanted.transaction_result,
            wanted.transaction_version,
        )
        appends += [(marker, topic.name, index) for topic in wanted.topics for index in topic.partition_indexes]

    def finish(codes: list[Any]) -> WriteTxnMarkersResponse:
        results: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
        for (marker, topic, index), code in zip(appends, codes):
            rows = results.setdefault(marker.producer_id, {}).setdefault(topic, [])
            rows.append(WritableTxnMarkerPartitionResult(index, int(code)))
        return _response(results)

    parts = Parts(len(appends), finish)
    for slot, (marker, topic, index) in enumerate(appends):
        ctx.services.transactions.append_marker(topic, index, marker, lambda code, slot=slot: parts.give(slot, code))  # type: ignore[misc]
    return parts.deferred


def _response(results: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id, [WritableTxnMarkerTopicResult(name, rows) for name, rows in topics.items()]
            )
            for producer_id, topics in results.items()
        ]
    )
