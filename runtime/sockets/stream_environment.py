"""What the socket streams of one network share: loop, workers, page cache, and the memory they read into."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pylogd.runtime.sockets.pagecache import PageCache

if TYPE_CHECKING:
    from pylogd.runtime.stream import Stream
    from pylogd.runtime.workers import Workers

SCRATCH_BYTES = 1 << 18


class StreamEnvironment:
    """One per network."""

    __slots__ = ("loop", "pages", "scratch", "streams", "workers")

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Workers) -> None:
        self.loop = loop
        self.workers = workers
        self.pages = PageCache()
        #: Every stream without a frame under way reads into this (see `receiving.py`).
        self.scratch = bytearray(SCRATCH_BYTES)
        #: Those that are open.
        self.streams: set[Stream] = set()
