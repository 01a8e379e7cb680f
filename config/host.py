"""What every part of a node is given: its configuration and the world it runs in. The simulator gives its own."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig
    from pylogd.runtime.clock import Clock
    from pylogd.runtime.files import FileSystem
    from pylogd.runtime.network import Network
    from pylogd.runtime.workers import Workers


class Host(NamedTuple):
    broker_id: int
    config: BrokerConfig
    loop: AbstractEventLoop
    clock: Clock
    chance: Random
    files: FileSystem
    workers: Workers
    network: Network
