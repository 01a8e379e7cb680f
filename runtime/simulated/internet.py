"""The machines of a simulation and the wires between them.

A wire is one direction of a connection. What it carries arrives in order and once, some time after it was sent, in
pieces of any size, or not at all. Faults:
- A cut between two machines holds everything back, connection attempts too, until it is mended.
- A killed process leaves a machine that says so: its connections are reset and dials are refused. A machine without
  power says nothing at all until it is back, and then resets what it does not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from pylogd.runtime.files import FileRange
from pylogd.runtime.simulated.simulated_loop import World

if TYPE_CHECKING:
    from pylogd.runtime.simulated.simulated_network import SimulatedListener, SimulatedStream
    from pylogd.runtime.stream import Chunk

#: The reason of the end of a connection that did not end in good order.
RESET = "Connection reset by peer"


class Machine:
    """A host on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.powered = True
        self.listeners: dict[int, SimulatedListener] = {}


class Internet:
    """All machines and the wires between them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machines: dict[str, Machine] = {}
        self._sides: dict[str, int] = {}
        #: Directions with bytes that a cut holds back.
        self._stalled: dict[Wire, None] = {}
        self._port = 40_000
        #: How often a piece takes much longer than usual, and at most how long.
        self.slow_chance = 0.02
        self.slow_s_max = 0.2
        #: Told of everything that arrives, for traces.
        self.on_packet: Callable[[str], None] | None = None

    def machine(self, name: str) -> Machine:
        return self.machines.setdefault(name, Machine(name))

    def delay_s(self) -> float:
        chance = self.world.chance
        if chance.random() < self.slow_chance:
            return chance.random() * self.slow_s_max
        return 0.0001 + chance.random() * 0.001

    def next_port(self) -> int:
        self._port += 1
        return self._port

    # -- cuts

    def cut(self, sides: Iterable[Iterable[str]]) -> None:
        """Machines on different sides cannot reach each other; those not named can reach everybody."""
        self._sides = {name: number for number, names in enumerate(sides) for name in names}

    def mend(self) -> None:
        self._sides = {}
        stalled, self._stalled = self._stalled, {}
        for wire in stalled:
            wire.resume(self.delay_s() + self.world.chance.random() * 0.5)

    def is_cut(self, a: str, b: str) -> bool:
        side_a, side_b = self._sides.get(a), self._sides.get(b)
        return side_a is not None and side_b is not None and side_a != side_b

    def stall(self, wire: Wire) -> None:
        self._stalled[wire] = None


class Parcel:
    """File ranges on their way out: read when they leave, which may be after the file was cut and written again."""

    __slots__ = ("_chunks", "size")

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self.size = sum(map(len, chunks))
        for chunk in chunks:
            if isinstance(chunk, FileRange):
                chunk.acquire()

    def read(self) -> bytes | None:
        """None when the file has become shorter."""
        data = b"".join(chunk.read() if isinstance(chunk, FileRange) else chunk for chunk in self._chunks)
        for chunk in self._chunks:
            if isinstance(chunk, FileRange):
                chunk.release()
        return data if len(data) == self.size else None


class Wire:
    """One direction of a connection: what is under way, in order."""

    def __init__(self, internet: Internet, source: SimulatedStream, target: SimulatedStream) -> None:
        self._internet = internet
        self._source = source
        self._target = target
        #: Bytes, or what will be bytes, or the reason of the end: None in good order, a text for a reset.
        self._items: deque[bytes | Parcel | str | None] = deque()
        self._moving = False

    def put(self, item: bytes | Parcel | str | None) -> None:
        if isinstance(item, str):
            self._items.clear()  # a reset overtakes what it makes worthless
        self._items.append(item)
        if not self._moving:
            self.resume(self._internet.delay_s())

    def resume(self, delay_s: float) -> None:
        self._moving = True
        self._internet.world.after(delay_s, self._arrive)

    def _arrive(self) -> None:
        self._moving = False
        if not self._items:
            return
        internet, target = self._internet, self._target
        here, there = self._source.network.machine, target.network.machine
        if internet.is_cut(here.name, there.name):
            internet.stall(self)
            return
        if not there.powered:
            self.resume(0.2 + internet.world.chance.random())  # sent again until somebody answers
            return
        if target.network.loop.dead:
            answered = isinstance(self._items[0], str)
            self._items.clear()
            if not answered:  # a reset is never answered with another
                target.wire.put(RESET)
            return
        item = self._items.popleft()
        if isinstance(item, Parcel):
            data = None if self._source.network.loop.dead or self._source.closed else item.read()
            if data is None:
                self._source.cut_short()
                return
            item = data
        if isinstance(item, bytes) and len(item) > 1 and internet.world.chance.random() < 0.05:
            at = internet.world.chance.randrange(1, len(item))
            self._items.appendleft(item[at:])
            item = item[:at]
        if internet.on_packet is not None:
            content = f"{len(item)} bytes {crc32(item):08x}" if isinstance(item, bytes) else f"end {item}"
            ports = f"{self._source.local_port}>{target.local_port}"
            internet.on_packet(f"{here.name}>{there.name} {ports} {content}")
        target.arrived(item)
        if self._items:
            self.resume(internet.delay_s() if internet.world.chance.random() < 0.2 else 0.0)
