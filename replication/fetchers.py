"""Replication from other brokers: which fetcher has which partition, and the connections they use.

Every leader has `num.replica.fetchers` fetchers (mostly one) with a connection each; a partition always goes to the
same of them. The fetchers decide, in `replication/fetcher.py`; here are their sockets and timers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

from pylogd.replication.fetch_state import FetchSettings, Key
from pylogd.replication.fetcher import NEVER_MS, Fetcher
from pylogd.rpc.peer import Peer, PeerError

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage
    from pylogd.protocol.schema import Message
    from pylogd.replication.partition import Partition

logger = logging.getLogger(__name__)


class _Driver:
    """One fetcher at work."""

    def __init__(
        self,
        host: Host,
        metadata: LatestImage,
        broker_epoch: Callable[[], int],
        leader_id: int,
        number: int,
        settings: FetchSettings,
    ) -> None:
        self._host = host
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._number = number
        self.fetcher = Fetcher(host.broker_id, leader_id, settings)
        self._peer: Peer | None = None
        self._address: tuple[str, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._complained = False
        self.closed = False

    def locate(self) -> None:
        """Connect where the leader's registration says it is."""
        host = self._host
        address = self._metadata.address(self.fetcher.leader_id, host.config.inter_broker_listener_name)
        if address == self._address and (self._peer is None or self._peer.connected):
            return  # otherwise it has perhaps just come back: no reason to wait for the next attempt
        self._address = address
        old, self._peer = self._peer, None
        if address is not None:
            self._peer = Peer(
                host.network,
                *address,
                client_id=f"broker-{host.broker_id}-fetcher-{self._number}",
                timeout_s=host.config["replica.socket.timeout.ms"] / 1000,
            )
        if old is not None:
            old.close()
        self.wake()

    def wake(self) -> None:
        """Something changed: see whether there is something to ask, once this turn is over."""
        if not self._scheduled and not self.closed:
            self._scheduled = True
            self._host.loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._scheduled = False
        self._next()

    def _next(self) -> None:
        if self.closed or self._peer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        fetcher = self.fetcher
        fetcher.broker_epoch = self._broker_epoch()
        now_ms = self._host.clock.monotonic_ms()
        request = fetcher.next_request(now_ms)
        if request is not None:
            self._peer.send(request, self._answered)
            return
        wake_ms = fetcher.wake_ms()
        if wake_ms < NEVER_MS:
            self._timer = self._host.loop.call_later(max(wake_ms - now_ms, 1) / 1000, self._next)

    def _answered(self, response: Message | None, failure: PeerError | None) -> None:
        if self.closed:
            return
        now_ms = self._host.clock.monotonic_ms()
        if failure is None:
            self._complained = False
            self.fetcher.received(response, now_ms)
            self._next()
            return
        if not self._complained:
            self._complained = True
            logger.warning("fetching from broker %d failed: %s", self.fetcher.leader_id, failure)
        self.fetcher.failed(now_ms)
        self.wake()

    def close(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._peer is not None:
            self._peer.close()


class Fetchers:
    """All fetchers of this broker. `broker_epoch` gives the epoch it is registered with."""

    def __init__(self, host: Host, metadata: LatestImage, broker_epoch: Callable[[], int]) -> None:
        self._host = host
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._drivers: dict[tuple[int, int], _Driver] = {}
        #: Which driver has a partition.
        self._homes: dict[Key, _Driver] = {}
        self._closed = False
        config = host.config
        self._settings = FetchSettings(
            max_bytes=config["replica.fetch.max.bytes"],
            min_bytes=config["replica.fetch.min.bytes"],
            wait_ms_max=config["replica.fetch.wait.max.ms"],
            response_bytes_max=config["replica.fetch.response.max.bytes"],
            backoff_ms=config["replica.fetch.backoff.ms"],
        )
        self._count: int = config["num.replica.fetchers"]

    def update(self, partition: Partition) -> None:
        """The partition's role or leader may have changed: fetch from the leader it has now, or not at all."""
        key = (partition.topic_id, partition.index)
        leader = partition.leader
        if partition.is_leader or partition.offline or leader < 0 or leader == self._host.broker_id or self._closed:
            self.remove(key)
            return
        home = self._homes.get(key)
        wanted = self._driver(leader, key)
        if home is not None and home is not wanted:
            self.remove(key)
        self._homes[key] = wanted
        wanted.fetcher.add(partition, partition.leader_epoch)
        wanted.wake()

    def remove(self, key: Key) -> None:
        """The replica is gone, offline, or leads."""
        home = self._homes.pop(key, None)
        if home is not None:
            home.fetcher.remove(key)
            home.wake()

    def apply(self, delta: ImageDelta, image: ClusterImage) -> None:
        """The metadata changed: a leader may be registered somewhere else."""
        for driver in list(self._drivers.values()):
            if driver.fetcher.leader_id in delta.brokers:
                driver.locate()

    def flushed(self, partition: Partition) -> None:
        """A follower's log reached its disk: its fetcher may tell the leader."""
        home = self._homes.get((partition.topic_id, partition.index))
        if home is not None and home.fetcher.flushed(partition):
            home.wake()

    def resize(self, count: int) -> None:
        """`num.replica.fetchers` changed: every partition moves to the fetcher it has now."""
        if count == self._count:
            return
        self._count = count
        partitions = [state.partition for driver in self._drivers.values() for state in driver.fetcher.states.values()]
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()
        self._homes.clear()
        for partition in partitions:
            self.update(partition)

    def _driver(self, leader: int, key: Key) -> _Driver:
        number = crc32(key[0], key[1]) % self._count if self._count > 1 else 0
        driver = self._drivers.get((leader, number))
        if driver is None:
            driver = self._drivers[(leader, number)] = _Driver(
                self._host, self._metadata, self._broker_epoch, leader, number, self._settings
            )
            driver.locate()
        return driver

    def close(self) -> None:
        self._closed = True
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()
        self._homes.clear()
