"""Replay of what others have committed, in slices: a broker may share the event loop of a controller that follows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import decode_batches
from pylogd.metadata.snapshot import SnapshotContents, SnapshotId, replay_steps
from pylogd.protocol.errors import KafkaError, ProtocolError

#: How long a turn of the event loop may be spent on replaying metadata.
SLICE_SECONDS = 0.005


class CommittedReplay:
    """Snapshots and batches in the order they were handed over. `failed` hears of what cannot be replayed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._failed = failed
        #: What is still to be replayed.
        self._steps: deque[Iterator[None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def start_over(self, data: bytes, snapshot_id: SnapshotId, image: ClusterImage) -> None:
        """Forgets what is left to do, and replays a snapshot into a new image."""
        self._steps.clear()
        self._soon(replay_steps(data, image, snapshot_id, SnapshotContents()))

    def add(self, data: bytes | bytearray, image: ClusterImage) -> None:
        self._soon(_replay(data, image))

    def finish(self) -> None:
        """All of it now: the controller is about to decide on this state."""
        self._run(float("inf"))

    def _soon(self, steps: Iterator[None]) -> None:
        """At once when it is little; otherwise in slices."""
        self._steps.append(steps)
        if self._task is None and not self._run(SLICE_SECONDS):
            self._task = self._loop.create_task(self._run_all())

    def _run(self, seconds_max: float) -> bool:
        """True when nothing is left to replay."""
        time = self._loop.time
        deadline = time() + seconds_max
        while self._steps:
            for _ in self._steps[0]:
                if time() >= deadline:
                    return False
            self._steps.popleft()
        return True

    async def _run_all(self) -> None:
        try:
            while not self._run(SLICE_SECONDS):
                await asyncio.sleep(0)
        except (KafkaError, ProtocolError, ValueError) as error:
            self._failed(error)
        finally:
            self._task = None


def _replay(data: bytes | bytearray, image: ClusterImage) -> Iterator[None]:
    for batch in decode_batches(data):
        image.replay_batch(batch)
        yield
