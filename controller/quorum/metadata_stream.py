"""The committed metadata as a stream: every subscriber gets a snapshot, then batch after batch, without gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pylogd.controller.quorum.metadata_log import MetadataLog
from pylogd.metadata.snapshot import SnapshotId


class MetadataSubscriber(Protocol):
    """Who follows the committed metadata: the controller and the broker of this node."""

    def load_snapshot(self, data: bytes, snapshot_id: SnapshotId) -> None:
        """Start over from this snapshot."""

    def committed(self, batches: Sequence[bytes | bytearray]) -> None:
        """The next committed batches, in order and without gaps."""


class MetadataStream:
    """Reads what is committed back from the log; `passed` sees every batch once, before the subscribers do."""

    def __init__(self, log: MetadataLog, passed: Callable[[bytes], None]) -> None:
        self._log = log
        self._passed = passed
        self._subscribers: list[MetadataSubscriber] = []
        #: handed over up to here; None while it is not known how much is committed
        self._delivered: int | None = None

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Hands over all that is known to be committed, and from then on every commit."""
        self._subscribers.append(subscriber)
        self.hand_over(subscriber)

    def hand_over(self, subscriber: MetadataSubscriber) -> None:
        """Everything that is committed once more, for a subscriber that starts over."""
        if self._delivered is not None:
            self._replay([subscriber], self._delivered)

    def deliver(self, end: int) -> None:
        """Hands on what is newly committed. A snapshot that was fetched makes everybody start over from it."""
        start = self._delivered
        if start is None or start < self._log.log.log_start_offset:
            self._replay(self._subscribers, end, self._passed if start is None else None)
        else:
            for data in self._log.read(start, end):
                self._passed(data)
                for subscriber in self._subscribers:
                    subscriber.committed([data])
        self._delivered = end

    def _replay(
        self, subscribers: Sequence[MetadataSubscriber], end: int, passed: Callable[[bytes], None] | None = None
    ) -> None:
        log = self._log
        start = log.log.log_start_offset
        snapshot_id = log.latest_snapshot
        if snapshot_id is not None:
            snapshot = log.read_snapshot(snapshot_id)
            for subscriber in subscribers:
                subscriber.load_snapshot(snapshot, snapshot_id)
            start = max(start, snapshot_id.offset)
        for data in log.read(start, end):
            if passed is not None:
                passed(data)
            for subscriber in subscribers:
                subscriber.committed([data])
