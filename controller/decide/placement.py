"""Where the replicas of new partitions go.

Brokers are striped: within a rack, successive partitions start at successive brokers; racks take turns, so that a
partition's replicas are on different racks as long as there are enough. The first replica, the preferred leader, is
never on a fenced broker. Starting points are random, so that many small topics do not all start on the same broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pylogd.controller.state import ControllerState
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


def usable_brokers(state: ControllerState) -> list[UsableBroker]:
    """Registered brokers that are not on their way out and have a directory that takes new partitions."""
    found = []
    for broker in state.image.brokers.values():
        if not state.heartbeats.is_shutting_down(broker.id) and broker.has_uncordoned_directory():
            found.append(UsableBroker(broker.id, broker.rack, broker.fenced))
    return found


class _Stripe:
    """Brokers of one rack and fencing state; each round starts one broker further."""

    __slots__ = ("brokers", "index", "offset", "round")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.index = 0
        self.offset = 0
        self.round = 0

    def start(self, rng: Random) -> None:
        if self.brokers:
            self.brokers.sort()
            self.offset = rng.randrange(len(self.brokers))

    def next(self, round_: int) -> int:
        count = len(self.brokers)
        if not count:
            return -1
        if self.round != round_:
            self.round = round_
            self.index = 0
            self.offset = (self.offset + 1) % count
        if self.index >= count:
            return -1
        broker = self.brokers[(self.index + self.offset) % count]
        self.index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.fenced = _Stripe()
        self.unfenced = _Stripe()

    def next(self, round_: int) -> int:
        broker = self.unfenced.next(round_)
        return broker if broker >= 0 else self.fenced.next(round_)


def _refuse(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class Placer:
    """Hands out one partition's replicas after another."""

    __slots__ = ("names", "offset", "racks", "rng", "round", "total", "unfenced")

    def __init__(self, rng: Random, brokers: Iterable[UsableBroker]) -> None:
        self.rng = rng
        self.racks: dict[str | None, _Rack] = {}
        self.total = self.unfenced = self.round = 0
        for broker in brokers:
            rack = self.racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
            self.total += 1
            self.unfenced += not broker.fenced
        for rack in self.racks.values():
            rack.fenced.start(rng)
            rack.unfenced.start(rng)
        self.names = sorted(self.racks, key=lambda name: (name is not None, name or ""))
        self.offset = rng.randrange(len(self.names)) if self.names else 0

    def check(self, replicas: int) -> None:
        if replicas <= 0:
            raise _refuse(f"Invalid replication factor {replicas}: the replication factor must be positive.")
        if not self.unfenced:
            raise _refuse("All brokers are currently fenced, or have all their log directories cordoned.")
        if replicas > self.total:
            raise _refuse(
                f"The target replication factor of {replicas} cannot be reached because only {self.total} "
                "broker(s) are registered or some brokers have all their log directories cordoned."
            )

    def _shuffle(self) -> None:
        self.rng.shuffle(self.names)
        for rack in self.racks.values():
            self.rng.shuffle(rack.fenced.brokers)
            self.rng.shuffle(rack.unfenced.brokers)

    def place(self, replicas: int) -> list[int]:
        """Brokers of the next partition, preferred leader first."""
        if self.round == self.unfenced and self.unfenced > 1:
            self._shuffle()  # every broker has led once: do not repeat the same pattern
            self.round = 0
        if self.offset == len(self.names):
            self.offset = 0
        first = self.offset
        while True:
            leader = self.racks[self.names[first]].unfenced.next(self.round)
            if leader >= 0:
                break
            first = (first + 1) % len(self.names)
        placed = [leader]
        index = self.offset
        while len(placed) < replicas:
            if index == first:
                first = -1  # that rack has the leader: skip it this once
            else:
                broker = self.racks[self.names[index]].next(self.round)
                if broker >= 0:
                    placed.append(broker)
            index = (index + 1) % len(self.names)
        self.round += 1
        self.offset += 1
        return placed


def place(state: ControllerState, partitions: int, replicas: int) -> list[list[int]]:
    """Replicas of `partitions` new partitions; INVALID_REPLICATION_FACTOR when the cluster cannot hold them."""
    placer = Placer(state.rng, usable_brokers(state))
    placer.check(replicas)
    return [placer.place(replicas) for _ in range(partitions)]
