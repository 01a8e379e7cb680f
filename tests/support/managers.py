"""A LogManager whose jobs run in place while time stands still."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from pylogd.runtime.clock import ManualClock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.workers import InlineWorkers
from pylogd.storage.directories.log_manager import LogManager
from pylogd.storage.directories.manager_settings import ManagerSettings
from pylogd.storage.log_config import LogConfig

from support.logs import NOW_MS

TOPIC_ID = bytes(range(16))


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def manager(files: FileSystem, paths: list[str], **options: Any) -> LogManager:
    """On the running loop, with jobs in place and time standing still."""
    config = options.pop("config", LogConfig(segment_bytes=2000, file_delete_delay_ms=0))
    loop = asyncio.get_running_loop()
    workers = options.pop("workers", None) or InlineWorkers(loop)
    made = LogManager(
        loop,
        files,
        ManualClock(NOW_MS),
        workers,
        paths,
        settings=options.pop("settings", ManagerSettings(file_delete_delay_ms=0)),
        config_for=lambda topic: config,
        chance=random.Random(3),
        **options,
    )
    made.open()
    return made


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
