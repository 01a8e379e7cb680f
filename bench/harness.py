"""What a group of rows works with: both brokers up and warm, topics, alternating rounds, and CPU readings."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench import machine
from bench.brokers import Broker, running
from bench.load import Load, run_all

Measurement = dict[str, Any]
# A warm-up window counts as steady when its cost per request is within this share of the one before.
STEADY_SHARE = 0.05
WARM_UP_WINDOW_S = 4.0


@dataclass(slots=True)
class Floor:
    """The server that does next to nothing, as the measurements see it."""

    pid: int
    port: int
    label: str = "floor"

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid)


Server = Broker | Floor


@contextmanager
def floor_server(directory: Path, **arguments: str) -> Iterator[Floor]:
    path = directory / "floor.port"
    server = Load("floor", "serve", {"path": str(path), **arguments}, machine.broker_cores())
    try:
        server.ready()
        server.go()
        yield Floor(server.process.pid, int(path.read_text()))
    finally:
        server.kill()


@dataclass(slots=True)
class Bench:
    """The state of one run. Brokers that live through the whole run are started on first use."""

    directory: Path
    kinds: list[str]
    quick: bool = False
    pinned: bool = True
    #: When the group of rows that is being measured should be done; it makes fewer rounds rather than be late.
    deadline: float = math.inf
    stack: ExitStack = field(default_factory=ExitStack)
    _brokers: dict[str, Broker] = field(default_factory=dict)
    _topics: int = 0
    _floor: Floor | None = None

    def say(self, text: str) -> None:
        print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def scale(self, full: float, quick: float) -> float:
        return quick if self.quick else full

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 3

    @property
    def load_cores(self) -> set[int]:
        return machine.load_cores() if self.pinned else machine.all_cores()

    # -- brokers

    def brokers(self) -> dict[str, Broker]:
        """Both brokers, up and warm."""
        for kind in self.kinds:
            if kind not in self._brokers:
                broker = self.stack.enter_context(running(kind, self.directory / kind))
                self._brokers[kind] = broker
                self.warm_up(broker)
                self.pin(broker)
        return self._brokers

    def pin(self, broker: Server) -> None:
        machine.pin(broker.pid, machine.broker_cores() if self.pinned else machine.all_cores())

    @contextmanager
    def unpinned(self) -> Iterator[None]:
        """Lets brokers and load share all cores."""
        self.pinned = False
        for broker in self._brokers.values():
            self.pin(broker)
        try:
            yield
        finally:
            self.pinned = True
            for broker in self._brokers.values():
                self.pin(broker)

    def fresh(self, kind: str) -> Any:
        """A context with a broker of its own on an empty directory."""
        self._topics += 1
        return running(kind, self.directory / f"{kind}-{self._topics}")

    def warm_up(self, broker: Broker) -> None:
        """Small and large requests until their cost is steady, so that the JVM has compiled what it will run.

        The CPU time per request decides, not the rate: it also holds on a machine that has other work.
        """
        windows_min, windows_max = (3, 3) if self.quick else (6, 10)
        if broker.label != "Kafka":
            windows_min = windows_max = 1
        before = 0.0
        with self.topic(broker, partitions=4) as topic:
            for window in range(windows_max):
                if window == windows_max // 2:
                    self.pin(broker)  # as it will be measured
                one, bulk = self._one_record(broker, topic), self._bulk(broker, topic)
                read = {"topic": topic, "partitions": 4, "fetch_bytes": 1 << 20, "seconds": 1}
                done = self.run(broker, [Load("raw", "produce", each, self.load_cores) for each in (one, bulk)])
                self.run(broker, [self.load("raw", "fetch", broker, **read)])
                cost = done["cpu_seconds"] / sum(result["requests"] for result in done["results"]) * 1e6
                self.say(f"{broker.label} warm-up {window + 1}: {cost:,.1f} us/request")
                if window + 1 >= windows_min and abs(cost - before) <= STEADY_SHARE * before:
                    break
                before = cost

    def _one_record(self, broker: Broker, topic: str) -> Measurement:
        return {
            "port": broker.port, "topic": topic, "partitions": 4, "connections": 4, "in_flight": 16,
            "record_count": 1, "value_size": 100, "seconds": WARM_UP_WINDOW_S,
        }  # fmt: skip

    def _bulk(self, broker: Broker, topic: str) -> Measurement:
        return {
            "port": broker.port, "topic": topic, "partitions": 4, "connections": 2, "in_flight": 2,
            "record_count": 150, "value_size": 100, "seconds": WARM_UP_WINDOW_S,
        }  # fmt: skip

    # -- the floor

    def floor(self) -> Floor:
        """A server that does next to nothing, on the broker's cores (see `bench/load/floor.py`)."""
        if self._floor is None:
            self._floor = self.stack.enter_context(floor_server(self.directory))
        self.pin(self._floor)
        return self._floor

    # -- topics

    @contextmanager
    def topic(self, broker: Server, partitions: int = 1, **config: str) -> Iterator[str]:
        self._topics += 1
        name = f"bench{self._topics:04d}"
        if isinstance(broker, Floor):
            yield name  # it takes any
            return
        admin = admin_client(broker)
        create_topic(admin, name, partitions, config)
        try:
            yield name
        finally:
            for future in admin.delete_topics([name]).values():
                future.result(60)

    # -- measuring

    def load(self, kind: str, function: str, broker: Server, **arguments: Any) -> Load:
        return Load(kind, function, {"port": broker.port, **arguments}, self.load_cores)

    def run(self, broker: Server, loads: list[Load]) -> Measurement:
        """Runs the loads at once; the broker's CPU seconds are those between their start and their end."""
        try:
            for load in loads:
                load.ready()
            cpu = broker.cpu_seconds()
            started = time.perf_counter()
            for load in loads:
                load.go()
            results = [load.result() for load in loads]
            elapsed = time.perf_counter() - started
            return {"results": results, "cpu_seconds": broker.cpu_seconds() - cpu, "seconds": elapsed}
        finally:
            for load in loads:
                load.kill()

    def run_apart(self, loads: list[Load]) -> list[Measurement]:
        """Runs the loads for what they leave behind."""
        return run_all(loads)

    def alternate(
        self, measure: Callable[[Any], dict[str, float]], rounds: int | None = None, floor: bool = False
    ) -> dict[str, dict[str, float]]:
        """Runs `measure` on the brokers in turn, some rounds, and returns the median of each figure by broker; with
        `floor` also on a server that does next to nothing."""
        found: dict[str, dict[str, list[float]]] = {}
        self.brokers()
        took = 0.0
        for number in range(rounds or self.rounds):
            began = time.perf_counter()
            if number and began + took > self.deadline:
                self.say(f"no time for more than {number} rounds")
                break
            # The order changes every round, so that neither always runs in the other's wake.
            order: list[tuple[str, Server]] = list(self.brokers().items())
            if floor:
                order.append(("floor", self.floor()))
            for kind, broker in order if number % 2 == 0 else order[::-1]:
                figures = measure(broker)
                self.say(f"{broker.label}: " + ", ".join(f"{name} {value:,.4g}" for name, value in figures.items()))
                for name, value in figures.items():
                    found.setdefault(kind, {}).setdefault(name, []).append(value)
            took = time.perf_counter() - began
        return {
            kind: {name: statistics.median(values) for name, values in figures.items()}
            for kind, figures in found.items()
        }


def admin_client(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 4})


def create_topic(admin: AdminClient, name: str, partitions: int, config: dict[str, str]) -> None:
    """Creates a topic and waits until every partition has a leader."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    for future in admin.create_topics([topic], operation_timeout=60).values():
        future.result(90)
    await_leaders(admin, name, partitions)


def await_leaders(admin: AdminClient, name: str, partitions: int, timeout_s: float = 120) -> None:
    deadline = time.perf_counter() + timeout_s
    while True:
        known = admin.list_topics(name, timeout=30).topics[name]
        if len(known.partitions) == partitions and all(each.leader >= 0 for each in known.partitions.values()):
            return
        if time.perf_counter() > deadline:
            raise RuntimeError(f"topic {name} has no leaders")
        time.sleep(0.01)
