"""From committed metadata records to what this broker does about them.

The records come in order as the bytes of their batches. The image takes them at once, so that Metadata answers are
never behind. What follows from them is for listeners, who are told in their order: right after, in one go when there is
little to do, and otherwise in slices, so that a topic with thousands of partitions does not hold up the event loop.
Each step brings one thing in line with the image as it is now, not as it was when the record came, so steps that have
become pointless do nothing.

At start nobody is told until `start()`: the image is loaded first, and then everything in it is applied once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.difference import difference
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.metadata.record_batches import decode_batches
from pylogd.metadata.snapshot import SnapshotId, replay_snapshot

logger = logging.getLogger(__name__)

#: How long a turn of the event loop may be spent on applying metadata.
SLICE_SECONDS = 0.005


class MetadataListener(Protocol):
    """Whoever acts on changes of the metadata."""

    def apply(self, delta: ImageDelta, image: ClusterImage) -> Iterable[partial[None]] | None:
        """What has changed, and the image as it is now. What may take long is not done here but returned, in steps that
        are short: the listener behind this one is told when they are done, and the image may be a newer one by then."""


class MetadataPublisher:
    """This broker's image, and who is told what changes in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metadata: LatestImage) -> None:
        self._loop = loop
        self._metadata = metadata
        self._listeners: Sequence[MetadataListener] = ()
        self._applying = False
        self._untold: deque[tuple[MetadataListener, ImageDelta]] = deque()
        #: Left over of the listener that was told last.
        self._steps: deque[partial[None]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._offset_waiters: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def offset(self) -> int:
        """Offset of the last record in the image."""
        return self.image.offset

    # -- the stream of records

    def load_snapshot(self, data: bytes, snapshot_id: SnapshotId) -> None:
        image = ClusterImage()
        replay_snapshot(data, image, snapshot_id)
        before, self._metadata.image = self.image, image
        if self._applying:
            self._publish(difference(before, image))

    def committed(self, batches: Sequence[bytes | bytearray]) -> None:
        image = self.image
        delta = image.delta = ImageDelta() if self._applying else None
        for data in batches:
            for batch in decode_batches(data):
                image.replay_batch(batch)
        image.delta = None
        if delta:
            self._publish(delta)
        if self._offset_waiters:
            self._wake_offset_waiters()

    def reached(self, offset: int) -> asyncio.Future[None]:
        """Done when the image includes the record at `offset`."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._offset_waiters.append((offset, future))
        self._wake_offset_waiters()
        return future

    def _wake_offset_waiters(self) -> None:
        waiting = []
        for offset, future in self._offset_waiters:
            if offset > self.image.offset:
                waiting.append((offset, future))
            elif not future.done():
                future.set_result(None)
        self._offset_waiters = waiting

    # -- applying

    async def start(self, listeners: Sequence[MetadataListener]) -> None:
        """Tells the listeners of all topics of the image, and from then on of every change. Returns when all they do
        about it is done: every partition of this broker has its replica."""
        self._listeners = listeners
        self._applying = True
        delta = ImageDelta()
        for topic in self.image.topics.values():
            delta.new_topics.add(topic.id)
            delta.partitions[topic.id] = dict.fromkeys(range(len(topic.partitions)))
        self._publish(delta)
        if self._task is not None:
            await self._task

    async def stop(self) -> None:
        """Applies nothing any more."""
        self._applying = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def idle(self) -> bool:
        """Whether everything in the image is applied."""
        return self._task is None

    def _publish(self, delta: ImageDelta) -> None:
        self._untold.extend((listener, delta) for listener in self._listeners)
        if self._task is None and not self._run_slice():
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            done = False
            while not done:
                await asyncio.sleep(0)
                done = self._run_slice()
        finally:
            self._task = None

    def _run_slice(self) -> bool:
        """Works for a slice of time; True when nothing is left. The clock is asked after steps and between changes:
        listeners that have nothing to do cost no turn."""
        time = self._loop.time
        deadline = time() + SLICE_SECONDS
        while True:
            while self._steps:
                self._take(self._steps.popleft())
                if time() >= deadline and (self._steps or self._untold):
                    return False
            if not self._untold:
                return True
            listener, delta = self._untold.popleft()
            self._tell(listener, delta)
            if self._untold and self._untold[0][1] is not delta and time() >= deadline:
                return False

    # What fails is logged and does not stop the rest.

    def _tell(self, listener: MetadataListener, delta: ImageDelta) -> None:
        try:
            self._steps.extend(listener.apply(delta, self.image) or ())
        except Exception:
            logger.exception("applying cluster metadata failed in %s", type(listener).__name__)

    def _take(self, step: partial[None]) -> None:
        try:
            step()
        except Exception:
            logger.exception("applying cluster metadata failed at %s%r", step.func.__name__, step.args)
