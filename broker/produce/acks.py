"""A Produce that is appended and waits for its acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.produce.refusals import with_leaders
from pylogd.runtime.deferred import Deferred

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.protocol.errors import ErrorCode
    from pylogd.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
    from pylogd.replication.partition import Partition


class Acks:
    """The partitions of one request that are not acknowledged yet; the reply leaves when the last one is, or at the
    request's time-out."""

    __slots__ = ("_acks", "_answers", "_ctx", "_deadline_s", "_deferred", "_partitions", "_response", "_waiting")

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._acks = request.acks
        self._deadline_s = ctx.connection.loop.time() + max(request.timeout_ms, 0) / 1000
        self._deferred = Deferred(exclusive=False)
        self._answers: list[PartitionProduceResponse] = []
        self._partitions: list[Partition] = []
        self._waiting = 0
        self._response: ProduceResponse | None = None

    def wait(self, partition: Partition, offset: int, answer: PartitionProduceResponse) -> None:
        """`answer` gets its error code when `partition` has everything below `offset`."""
        slot = len(self._answers)
        self._answers.append(answer)
        self._partitions.append(partition)
        self._waiting += 1
        when = partition.when_committed if self._acks == -1 else partition.when_flushed
        when(offset, partition.leader_epoch, self._deadline_s, self, slot)

    def start(self, response: ProduceResponse) -> Deferred:
        """Everything is appended; `response` is the answer to come."""
        self._response = response
        if self._waiting == 0:
            self._finish()
        else:
            self._deferred.abandoned = self._abandon
        return self._deferred

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._answers[slot].error_code = int(code)
        self._waiting -= 1
        if self._waiting == 0 and self._response is not None:
            self._finish()

    def _abandon(self) -> None:
        for partition in self._partitions:
            partition.abandon(self)

    def _finish(self) -> None:
        assert self._response is not None
        self._deferred.resolve(with_leaders(self._ctx, self._response))
