"""A cluster of real brokers, whole, in one process on virtual time, from one seed.

Three nodes of `pylogd.broker.node.Node` run unchanged on a simulated network and simulated disks; clients produce and
consume through the wire protocol. Processes are killed, stopped and continued, machines lose power in the middle of a
write, the network is cut and connections break, disks get slow. The invariants are checked after every event. At the
end the faults stop, and the cluster must heal: every replica in sync, everything acknowledged still there. The same
seed gives the same run: `make simulate SEED=n` replays one and prints it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from pylogd.broker.cluster.formatting import Formatter
from pylogd.broker.node import Node
from pylogd.config.broker import BrokerConfig
from pylogd.controller.raft.leader import Leader
from pylogd.replication.partition import Partition
from pylogd.runtime.simulated.internet import Internet
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.runtime.simulated.simulated_loop import SimulatedClock, SimulatedLoop, World
from pylogd.runtime.simulated.simulated_network import SimulatedNetwork
from pylogd.runtime.simulated.simulated_workers import SimulatedWorkers

from simulation.broker_faults import Faults
from simulation.broker_invariants import Invariants, Violation
from simulation.broker_workload import PASSING, Clients

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
START_S = 30.0
EARLY_FAULTS_S = 8.0
FAULTS_S = 25.0
HEAL_S = 60.0


class Host:
    """A machine with a disk, and mostly a broker on it."""

    def __init__(self, simulation: Simulation, host_id: int) -> None:
        self._simulation = simulation
        self.id = host_id
        self.name = f"host{host_id}"
        self.clock = SimulatedClock(simulation.world, skew_ms=simulation.world.chance.randint(-50, 50))
        self.files = self._empty_disk()
        self.alive = False
        self.lives = 0
        self.node: Node | None = None
        self.loop: SimulatedLoop
        self.network: SimulatedNetwork
        self.workers: SimulatedWorkers
        self.leaving = False
        #: What the invariants remember: of all lives, and of the present one.
        self.quorum_epoch = 0
        self.holds: dict[int, int] = {}
        #: What it held until it lost its disk, and the process that said so.
        self.held: dict[int, int] = {}
        self.held_by: bytes | None = None
        self.metadata_checked = 0
        self.checked: dict[int, int] = {}
        self.seen: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"host {self.id}"

    def start(self) -> None:
        simulation = self._simulation
        self.alive = True
        self.leaving = False
        self.lives += 1
        self.node = None
        self.metadata_checked = 0
        self.checked = {}
        self.seen = {}
        simulation.internet.machine(self.name).powered = True
        self.loop = SimulatedLoop(simulation.world, f"{self.name}.{self.lives}")
        simulation.by_loop[self.loop] = self
        self.workers = SimulatedWorkers(self.loop, simulation.world.chance)
        self.network = SimulatedNetwork(simulation.internet, self.name, self.loop, self.workers)
        simulation.note(f"{self} starts")
        self.loop.call_soon(self._boot)

    def _boot(self) -> None:
        simulation = self._simulation
        chance = Random(simulation.world.chance.getrandbits(64))
        config = BrokerConfig(simulation.config_of(self))
        if simulation.static_quorum and not self.files.exists("/data/meta.properties"):
            Formatter(config, self.files, self.clock, chance.randbytes).format(CLUSTER_ID, None)
        self.node = Node(
            config,
            files=self.files,
            clock=self.clock,
            chance=chance,
            network=self.network,
            workers=self.workers,
        )
        self.node.failure.add_done_callback(lambda failure: self._failed(failure.result()))
        task = self.loop.create_task(self.node.start())
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        if self.alive and not self.files.crashed and task.exception() is not None:
            self._simulation.violated(task.exception())

    def _failed(self, reason: str) -> None:
        if self.alive and not self.files.crashed:
            self._simulation.violated(Violation(f"{self} gave up: {reason}"))

    @property
    def joined(self) -> bool:
        """Whether what is to run here runs: a broker that hosts its replicas, or a controller alone."""
        node = self.node
        if node is None:
            return False
        if self.id in self._simulation.brokers:
            return node.broker is not None and node.broker.joined
        return node.controller is not None

    @property
    def partitions(self) -> list[Partition]:
        """Those that the broker here hosts."""
        return [] if self.node is None or self.node.broker is None else list(self.node.broker.replicas)

    def partition(self, topic: str, index: int) -> Partition | None:
        broker = None if self.node is None else self.node.broker
        return None if broker is None else broker.replicas.get(topic, index)

    def replica_names(self) -> list[str]:
        """Of the directories that are in use: not being deleted, and not laid aside because the topic was deleted while
        this broker was away."""
        return [name for name in self.files.listdir("/data") if not name.endswith(("-delete", "-stray"))]

    # -- ends

    def kill(self) -> None:
        """The process dies; its machine and what it has written stay."""
        self._end("is killed")
        self.network.killed()
        self.files = self.files.after_kill()

    def lose_power(self) -> None:
        self._end("loses power")
        self._simulation.internet.machine(self.name).powered = False
        self.network.lost_power()
        self.files = self.files.after_crash()

    def lose_disk(self) -> None:
        """The process dies and everything that was written with it; the next life begins with an empty directory."""
        if self.node is not None:
            self.held, self.held_by = self.holds, self.node.incarnation_id
        self._end("loses its disk")
        self.network.killed()
        self.files = self._empty_disk()
        self.quorum_epoch = 0
        self.holds = {}

    def _empty_disk(self) -> SimulatedFileSystem:
        files = SimulatedFileSystem(self._simulation.world.chance.getrandbits(32), self.clock)
        files.mkdirs("/data")
        files.sync_everything()
        return files

    def _end(self, how: str) -> None:
        simulation = self._simulation
        simulation.note(f"{self} {how}")
        self.alive = False
        self.loop.kill()
        simulation.graves.append(self.node)  # kept, so that no garbage collection runs its `finally` blocks meanwhile
        self.node = None

    def leave(self) -> None:
        """An orderly stop."""
        node = self.node
        if node is None or node.broker is None or not node.broker.joined or self.leaving:
            return
        self._simulation.note(f"{self} is asked to stop")
        self.leaving = True
        loop = self.loop

        def stopped(_: Any) -> None:
            if self.alive and self.loop is loop:
                self._simulation.world.after(0.0, lambda: self.kill() if self.loop is loop and self.alive else None)

        loop.call_soon(lambda: loop.create_task(node.stop()).add_done_callback(stopped))


class Simulation:
    """One seed."""

    topic = "simulated"
    log_level = logging.INFO
    clients_class = Clients
    may_wipe = True

    def __init__(self, seed: int, log: Callable[[str], None] | None = None, packets: bool = False) -> None:
        self.seed = seed
        self.world = World(seed)
        self.log = log
        chance = self.world.chance
        self.clock = SimulatedClock(self.world)
        self.internet = Internet(self.world)
        if packets:
            self.internet.on_packet = self.note
        self.static_quorum = chance.random() < 0.5
        #: Whether acknowledged records are flushed first, so that machines may lose power.
        self.durable = chance.random() < 0.5
        #: Whether it begins while the cluster is still forming.
        self.early_faults = chance.random() < 0.25
        self.min_isr = 2
        self.partitions = 2
        self.topic_configs = {"min.insync.replicas": str(self.min_isr)}
        if self.durable:
            self.topic_configs["flush.messages"] = "1"
        if chance.random() < 0.4:
            self.topic_configs["segment.ms"] = chance.choice(("300", "2000"))
        #: Whether disks are lost. Static voters have no directory ids that would tell.
        self.wiping = self.may_wipe and not self.static_quorum and chance.random() < 0.5
        #: Whether replicas are taken away and given back.
        self.moving = chance.random() < 0.3
        #: Whether other topics come and go.
        self.passing = chance.random() < 0.3
        #: Whether snapshots take the place of the metadata log, so that who was away finds no records to start from.
        self.snapshots = chance.random() < 0.4
        #: Whether controllers and brokers are nodes of their own.
        self.split = chance.random() < 0.2
        self.faulty = False
        self.graves: list[Any] = []
        self.by_loop: dict[SimulatedLoop, Host] = {}
        self.brokers = {host_id: Host(self, host_id) for host_id in (1, 2, 3)}
        self.controllers = {host_id: Host(self, host_id) for host_id in (4, 5, 6)} if self.split else self.brokers
        self.hosts = {**self.brokers, **self.controllers}
        self.invariants = Invariants(self)
        self.world.observer = self._observe
        self.world.on_error = self._error
        self.violation: BaseException | None = None
        self.faults = Faults(self)
        self.clients = self.clients_class(self)

    def config_of(self, host: Host) -> dict[str, str]:
        controllers = ",".join(f"host{host_id}:9093" for host_id in self.controllers)
        voters = ",".join(f"{host_id}@host{host_id}:9093" for host_id in self.controllers)
        roles, listeners = [], []
        if host.id in self.brokers:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{host.name}:9092")
        if host.id in self.controllers:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{host.name}:9093")
        quorum = (
            {"controller.quorum.voters": voters}
            if self.static_quorum
            else {"controller.quorum.bootstrap.servers": controllers}
        )
        if not self.static_quorum and host.id in self.controllers:
            quorum["controller.quorum.auto.join.enable"] = "true"
        metadata = (
            {
                "metadata.log.max.record.bytes.between.snapshots": "1500",
                "metadata.max.retention.bytes": "4000",
                "internal.metadata.log.segment.bytes": "2000",
            }
            if self.snapshots
            else {}
        )
        return {
            "process.roles": ",".join(roles),
            "node.id": str(host.id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            "log.cleaner.enable": "false",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "controller.quorum.election.timeout.ms": "600",
            "controller.quorum.fetch.timeout.ms": "1200",
            "controller.quorum.election.backoff.max.ms": "500",
            "controller.quorum.request.timeout.ms": "1000",
            "replica.lag.time.max.ms": "3000",
            "replica.socket.timeout.ms": "3000",
            "replica.fetch.wait.max.ms": "500",
            "request.timeout.ms": "3000",
            "leader.imbalance.check.interval.seconds": "4",
            "controller.socket.timeout.ms": "3000",
            **quorum,
            **metadata,
        }

    # -- watching

    def note(self, text: str) -> None:
        if self.log is not None:
            self.log(f"{self.world.now:10.6f} {text}")

    def violated(self, problem: BaseException | None) -> None:
        if self.violation is None:
            self.violation = problem

    def _error(self, loop: SimulatedLoop, context: dict[str, Any]) -> None:
        host = self.by_loop.get(loop)
        if host is not None and host.files.crashed:
            return  # the power went in the middle of it
        error = context.get("exception") or Violation(context.get("message"))
        self.note(f"{loop.name}: {context.get('message')} {error!r}")
        self.violated(error)

    def _observe(self, loop: SimulatedLoop) -> None:
        host = self.by_loop.get(loop)
        if host is not None and host.loop is loop and host.alive:
            if host.files.crashed:
                self.invariants.blind = True
                host.lose_power()
                self.faults.restart_later(host)
                return
            try:
                self.invariants.check(host)
            except Violation as problem:
                self.violated(problem)
        if self.violation is not None:
            self.note(f"VIOLATION {self.violation!r}")
            raise self.violation

    # -- the whole run

    def run(self) -> None:
        self.note(f"static quorum {self.static_quorum}, durable {self.durable}, {self.topic_configs}")
        logger = logging.getLogger("pylogd")
        before = logger.level, logger.propagate
        told = _Told(self)
        logger.addHandler(told)
        logger.propagate = False
        logger.setLevel(logging.ERROR if self.log is None else self.log_level)
        try:
            self._run()
        finally:
            logger.removeHandler(told)
            logger.setLevel(before[0])
            logger.propagate = before[1]
            for host in self.hosts.values():
                if host.alive:
                    host.loop.kill()
            self.clients.loop.kill()

    def _run(self) -> None:
        world = self.world
        for host in self.hosts.values():
            world.after(world.chance.random() * 0.5, host.start)
        if self.early_faults:
            self._suffer(EARLY_FAULTS_S)
        if not world.run_until(world.now + START_S, lambda: self.clients.ready):
            raise Violation("no cluster after the start")
        self._suffer(FAULTS_S)
        world.run_until(world.now + 1.0)
        self.clients.writing = False
        deadline = world.now + HEAL_S
        while not self._settled():
            if world.now > deadline:
                raise Violation(f"not healed {HEAL_S:.0f} s after the last fault: {self._standing()}")
            world.run_until(world.now + 0.25)
        self.note("healed")
        self.clients.reading = False
        if self.violation is not None:
            raise self.violation
        self.invariants.check_end(self.clients.acknowledged)
        if not self.clients.acknowledged:
            raise Violation("nothing was acknowledged")

    def _suffer(self, seconds: float) -> None:
        world = self.world
        self.faulty = True
        world.after(world.chance.random() * 2, self.faults.strike)
        world.run_until(world.now + seconds)
        self.faulty = False
        self.note("the faults end")
        self.faults.mend()
        for host in self.hosts.values():
            host.files.crash_at = None
            if host.lives and host.loop.stopped:
                self.faults.continue_(host.loop)
            if host.lives:
                host.workers.slowness = 1.0

    def is_whole(self) -> bool:
        """Every host is there and votes, and has every replica in sync: it can be done without one, and its disk."""
        places: dict[tuple[str, int], int] = {}
        led = 0
        voters: list[Any] = []
        for host in self.hosts.values():
            if not host.alive or host.leaving or host.loop.stopped or host.node is None:
                return False
            driver = host.node.driver
            if driver is None or not host.joined or host.files.crash_at is not None:
                return False
            raft = driver.node
            if type(raft.role) is Leader:
                voters = raft.voters.keys
            for partition in host.partitions:
                name = (partition.topic, partition.index)
                places[name] = places.get(name, 0) + 1
                if partition.is_leader:
                    led += 1
                    if len(partition.isr) != len(self.brokers):
                        return False
        everywhere = all(count == len(self.brokers) for count in places.values())
        keys = {host.node.driver.node.local for host in self.controllers.values() if host.node and host.node.driver}
        return everywhere and 0 < led == len(places) and set(voters) == keys

    def _settled(self) -> bool:
        """Everybody is back, in sync and has been read to the end."""
        if self.clients.producing or self.clients.administrators:
            return False
        for host in self.hosts.values():
            if not host.alive:
                if not host.leaving:
                    continue
                host.start()
                return False
        if not all(host.alive and host.node is not None for host in self.hosts.values()):
            return False
        for index in range(self.partitions):
            ends = set()
            leaders = 0
            for host in self.brokers.values():
                partition = host.partition(self.topic, index)
                if partition is None or partition._open is not None:
                    return False
                ends.add((partition.log.log_end_offset, partition.log.high_watermark))
                if partition.is_leader:
                    leaders += 1
                    if len(partition.isr) != len(self.brokers):
                        return False
            if leaders != 1 or len(ends) != 1 or len(set(*ends)) != 1:
                return False
            if self.clients.read_to.get(index, 0) != self.invariants.ledger(index).end:
                return False
        return not any(name.startswith(PASSING) for host in self.brokers.values() for name in host.replica_names())

    def _standing(self) -> str:
        words = [f"{self.clients.producing} producers wait, consumers at {self.clients.read_to}"]
        for host in self.hosts.values():
            words.append(str(host) + (" alive" if host.alive else " dead"))
            for partition in host.partitions:
                log = None if partition._open is not None else partition.log
                place = "not open" if log is None else f"end {log.log_end_offset} mark {log.high_watermark}"
                words.append(f"{partition!r} isr {partition.isr} {place}")
        return "; ".join(words)


def fingerprint(seed: int) -> str:
    """A hash of everything that happened, every packet included."""
    digest = hashlib.sha256()
    Simulation(seed, log=lambda line: digest.update(line.encode()), packets=True).run()
    return digest.hexdigest()


class _Told(logging.Handler):
    """Log lines of the brokers, in the time of the simulation. Nothing here justifies an error."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        simulation = self._simulation
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if not isinstance(loop, SimulatedLoop) or loop.dead:
            return
        text = record.getMessage()
        simulation.note(f"{loop.name} {record.levelname} {text}")
        host = simulation.by_loop.get(loop)
        if record.levelno >= logging.ERROR and (host is None or not host.files.crashed):
            cause = record.exc_info[1] if record.exc_info else None
            problem = Violation(f"{loop.name} logs an error: {text}")
            problem.__cause__ = cause
            simulation.violated(problem)


def main() -> None:
    arguments = sys.argv[1:]
    seed = int(arguments[0]) if arguments and arguments[0] else 0
    if "--fingerprint" in arguments:
        print(fingerprint(seed))
        return
    simulation = Simulation(seed, log=print, packets="--packets" in arguments)
    if "--debug" in arguments:
        simulation.log_level = logging.DEBUG
    simulation.run()
    ends = [ledger.end for ledger in simulation.invariants.ledgers.values()]
    count = len(simulation.clients.acknowledged)
    print(f"seed {seed}: {simulation.world.steps} events, {count} batches acknowledged, logs end at {ends}")


if __name__ == "__main__":
    main()
