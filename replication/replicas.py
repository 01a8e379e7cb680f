"""Every replica this broker hosts, by name and by topic id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pylogd.replication.in_sync import Proposal, Standing
from pylogd.replication.partition import LeadershipListener, Partition
from pylogd.runtime.clock import Clock

if TYPE_CHECKING:
    import asyncio

    from pylogd.storage.log.log import Log


class Replicas:
    """The hosted partitions. One lookup, by (topic, index) or (topic id, index), finds a replica of either role."""

    def __init__(
        self,
        broker_id: int,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None = None,
        standing: Callable[[int], Standing | None] | None = None,
        lag_ms_max: int = 30_000,
        propose: Callable[[Partition, Proposal], None] | None = None,
        follower_flushed: Callable[[Partition], None] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.loop = loop
        self.clock = clock or Clock()
        #: How the cluster's metadata sees a broker.
        self.standing: Callable[[int], Standing | None] = standing or (lambda broker_id: None)
        self.lag_ms_max = lag_ms_max
        #: Takes a change of an ISR to the controller.
        self.propose = propose
        #: Told when the log of a follower has reached its disk.
        self.follower_flushed = follower_flushed
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        #: By topic: who is told when the leadership of one of its partitions is won or lost.
        self._leadership_listeners: dict[str, LeadershipListener] = {}
        self._woken: list[Partition] = []
        #: Set while partitions are being woken: what runs once all are.
        self._after_wake: list[Callable[[], None]] | None = None

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker; -1 when it is not alive in the metadata."""
        standing = self.standing(self.broker_id)
        return -1 if standing is None else standing.epoch

    def get(self, topic: str, index: int) -> Partition | None:
        return self.by_name.get((topic, index))

    def get_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        return self.by_id.get((topic_id, index))

    def add(self, topic: str, index: int, topic_id: bytes, log: Log | Callable[[], Log]) -> Partition:
        """Host a replica; it has no role until the cluster image gives it one. A function instead of a log is called
        on first use, so that a broker with thousands of partitions starts without opening them."""
        partition = Partition(self, topic, index, topic_id, log)
        listener = self._leadership_listeners.get(topic)
        if listener is not None:
            partition.listeners.append(listener)
        self.by_name[(topic, index)] = partition
        self.by_id[(topic_id, index)] = partition
        return partition

    def watch_leaderships(self, topic: str, listener: LeadershipListener) -> None:
        """Tell `listener` of every leadership of the topic's partitions, the moment it is won or lost. To be
        called before the topic's first replica is added."""
        self._leadership_listeners[topic] = listener

    def remove(self, topic: str, index: int) -> Partition | None:
        """Stop hosting a replica; whoever waits for it is told. The log itself is the log manager's to delete."""
        partition = self.by_name.pop((topic, index), None)
        if partition is not None:
            if self.by_id.get((partition.topic_id, index)) is partition:
                del self.by_id[(partition.topic_id, index)]
            partition.stop()
        return partition

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def directory_failed(self, lost: Iterable[tuple[str, int]]) -> None:
        """Take the replicas of a failed log directory offline; the others go on."""
        for key in lost:
            partition = self.by_name.get(key)
            if partition is not None:
                partition.go_offline()

    def schedule_wake(self, partition: Partition) -> None:
        """Wake the partition's long polls once this turn is over: after the replies of the appends that caused it."""
        partition.wake_scheduled = True
        if not self._woken:
            self.loop.call_soon(self._wake)
        self._woken.append(partition)

    def after_wake(self, callback: Callable[[], None]) -> None:
        """Call when every partition that moved in this turn has woken its long polls."""
        if self._after_wake is None:
            self.loop.call_soon(callback)
        else:
            self._after_wake.append(callback)

    def _wake(self) -> None:
        woken, self._woken = self._woken, []
        for partition in woken:
            partition.wake_scheduled = False
        due = self._after_wake = []
        try:
            for partition in woken:
                partition.waiters.wake()
        finally:
            self._after_wake = None
            self._call(due)

    def _call(self, callbacks: list[Callable[[], None]]) -> None:
        """A callback that fails does not keep the others from running."""
        for position, callback in enumerate(callbacks, 1):
            try:
                callback()
            except Exception:
                for other in callbacks[position:]:
                    self.loop.call_soon(other)
                raise
