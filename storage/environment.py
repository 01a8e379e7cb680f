"""What everything in storage needs from the world around it: files, time and chance."""

from __future__ import annotations

import random

from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem


class StorageEnvironment:
    def __init__(self, files: FileSystem, clock: Clock, chance: random.Random | None = None) -> None:
        self.files = files
        self.clock = clock
        self.chance = chance if chance is not None else random.Random(0)
