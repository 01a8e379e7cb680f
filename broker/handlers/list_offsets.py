"""ListOffsets (key 2): the offset at a time, or one that a special timestamp stands for.

 1  one offset per partition, with its timestamp
 2  isolation level; throttling after the response
 4  current leader epoch, and the epoch of the offset found (KIP-320)
 5  OFFSET_NOT_AVAILABLE
 6  flexible
 7  max timestamp, -3 (KIP-734)
 8  earliest local timestamp, -4 (KIP-405)
 9  latest tiered timestamp, -5 (KIP-1005)
10  time-out for searches in remote storage
11  earliest pending upload, -6 (KIP-1023)

Searches by time read index and log files, so they run in a worker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from pylogd.broker.fetch.isolation import reads_committed
from pylogd.broker.network.context import RequestContext
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pylogd.runtime.files import ColdRead

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition
    from pylogd.storage.log.offset_lookup import TimestampOffset

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
_SINCE_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}
_CONSUMER = -1
_DEBUGGING = -2


def handle(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    committed = reads_committed(request.isolation_level)
    counts = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    searches: list[_Search] = []
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            times = counts[(topic.name, asked.partition_index)]
            if times == 0:
                continue  # answered once for all the times it was asked
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, timestamp=-1, offset=-1)
            answers.append(answer)
            try:
                if times > 1:
                    counts[(topic.name, asked.partition_index)] = 0
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if asked.timestamp < 0 and ctx.version < _SINCE_VERSION.get(asked.timestamp, 0x7FFF):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                search = _Search(ctx, request, topic.name, asked, answer, committed)
                if not search.run_at_once():
                    searches.append(search)
            except KafkaError as refusal:
                answer.error_code = int(_code_for(ctx.version, refusal.code))
        if answers:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics)
    return _finish(ctx, searches, response) if searches else response


def _code_for(version: int, code: ErrorCode) -> ErrorCode:
    """Clients before version 5 do not know OFFSET_NOT_AVAILABLE."""
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


async def _finish(ctx: RequestContext, searches: list[_Search], response: ListOffsetsResponse) -> ListOffsetsResponse:
    for search in searches:
        try:
            await _look(ctx, search)
        except KafkaError as refusal:
            search.answer.error_code = int(_code_for(ctx.version, refusal.code))
        except OSError:
            logger.exception("looking up a timestamp in %s failed", search.log.name)
            search.answer.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    return response


async def _look(ctx: RequestContext, search: _Search) -> None:
    """Read the log on the event loop, which owns it; a worker first brings into memory what is not there."""
    while True:
        try:
            search.found(search.log.offset_for_timestamp(search.asked.timestamp, nowait=True))
            return
        except ColdRead as cold:
            await ctx.services.workers.offload(cold.range.warm)


class _Search:
    """The search in one partition."""

    __slots__ = ("_ceiling", "_lagging", "_partition", "_version", "answer", "asked", "log")

    def __init__(
        self,
        ctx: RequestContext,
        request: ListOffsetsRequest,
        topic: str,
        asked: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
        committed: bool,
    ) -> None:
        partition: Partition | None = ctx.services.replicas.get(topic, asked.partition_index)
        if partition is None:
            raise KafkaError(ctx.services.leaders.missing_code(topic, asked.partition_index))
        leader_only = request.replica_id != _DEBUGGING
        log = partition.readable_log(asked.current_leader_epoch, leader_only=leader_only)
        self.log: Any = log
        self.asked = asked
        self.answer = answer
        self._partition = partition
        self._version = ctx.version
        consumer = request.replica_id == _CONSUMER
        if not consumer:
            self._ceiling: int = log.log_end_offset
        elif committed:
            self._ceiling = log.last_stable_offset
        else:
            self._ceiling = log.high_watermark
        # A new leader whose watermark has not reached its own epoch yet would let "latest" go back in time.
        self._lagging = consumer and partition.epoch_start_offset > log.high_watermark

    def run_at_once(self) -> bool:
        """Answer what needs no file; False when a worker has to look."""
        timestamp = self.asked.timestamp
        if timestamp == LATEST:
            self._check_lag()
            self._set(self._ceiling, -1, self._partition.leader_epoch)
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            found = self.log.offset_for_timestamp(timestamp)
            self._set(found.offset, -1, found.leader_epoch)
        elif timestamp < MAX_TIMESTAMP:
            self.found(self.log.offset_for_timestamp(timestamp))
        else:
            return False
        return True

    def found(self, found: TimestampOffset | None) -> None:
        if found is None or found.offset >= self._ceiling:
            self._check_lag()
        else:
            self._set(found.offset, found.timestamp, found.leader_epoch)

    def _check_lag(self) -> None:
        if self._lagging:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)

    def _set(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.answer.offset = offset
        self.answer.timestamp = timestamp
        if self._version >= 4:
            self.answer.leader_epoch = leader_epoch
