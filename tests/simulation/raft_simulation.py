"""A quorum of real Raft cores in one process on virtual time, from one seed.

The network delays, loses, reorders and duplicates messages and is cut in pieces; disks lose what was not flushed;
processes die, are restarted, come back with an empty disk; voters are added and removed; snapshots replace logs. The
invariants are checked after every event. At the end the faults stop, and the quorum must elect a leader, commit, and
agree. The same seed gives the same run: `make simulate SIMULATION=raft SEED=n` replays one and prints it.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from random import Random
from typing import Any

from pylogd.controller.raft import changes
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from pylogd.controller.raft.output import HardState, Output
from pylogd.controller.raft.raft_node import RaftNode
from pylogd.controller.raft.settings import RaftSettings, Timeouts
from pylogd.controller.raft.voters import Node, ReplicaKey, VoterNode, VoterSet
from pylogd.metadata.record_batches import control_batch
from pylogd.protocol import batch as batches
from pylogd.protocol.api import ApiKey
from pylogd.protocol.control import ControlType
from pylogd.protocol.errors import ErrorCode, KafkaError

from simulation.raft_disk import Disk, SimulatedLog
from simulation.raft_invariants import Invariants, Violation

LISTENER = "CONTROLLER"
CLUSTER_ID = "simulated"
#: Requests are not encoded here, so the versions are the newest.
VERSIONS = {
    ApiKey.VOTE: 2,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.FETCH: 18,
    ApiKey.FETCH_SNAPSHOT: 1,
    ApiKey.ADD_RAFT_VOTER: 1,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.UPDATE_RAFT_VOTER: 0,
}


def endpoint(machine_id: int) -> dict[str, tuple[str, int]]:
    return {LISTENER: ("host", machine_id)}


def snapshot_bytes(kraft_version: int, voters: VoterSet | None, content: bytes, epoch: int) -> bytes:
    """A snapshot that holds what the core looks for in one, and `content`."""
    from pylogd.protocol.messages import control_records as c

    head: list[tuple[ControlType, Any, int]] = [
        (ControlType.SNAPSHOT_HEADER, c.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0), 0)
    ]
    if kraft_version >= 1:
        version = c.KRaftVersionRecord(version=0, kraft_version=kraft_version)
        head.append((ControlType.KRAFT_VERSION, version, 0))
        if voters is not None:
            head.append((ControlType.KRAFT_VOTERS, voters.to_record(), 0))
    data = control_batch(head, base_offset=0, epoch=epoch, timestamp_ms=0)
    record = batches.Record(0, 0, None, content)
    return bytes(data) + bytes(batches.build_batch([record], base_offset=len(head), leader_epoch=epoch))


class Machine:
    """One host: a disk, and sometimes a process on it."""

    def __init__(
        self, cluster: Cluster, machine_id: int, disk: Disk, directory_id: bytes, can_vote: bool = True
    ) -> None:
        self._cluster = cluster
        self.can_vote = can_vote
        self.id = machine_id
        self.disk = disk
        self.directory_id = directory_id
        self.alive = False
        self.incarnation = 0
        self.node: RaftNode
        self.log: SimulatedLog
        self.deadline_ms = 0
        #: what the invariants remember
        self.epoch_seen = 0
        self.led_epoch = -1
        self.high_watermark_seen = 0
        self.checked_contents = 0

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def start(self) -> None:
        cluster = self._cluster
        self.alive = True
        self.incarnation += 1
        self.log = SimulatedLog(self.disk)
        self.high_watermark_seen = 0
        self.checked_contents = 0
        settings = RaftSettings(
            self.key,
            cluster_id=CLUSTER_ID,
            listener=LISTENER,
            endpoints=endpoint(self.id),
            static_voters=cluster.static_voters,
            bootstrap=[Node(-2 - at, "host", id_) for at, id_ in enumerate(sorted(cluster.machines))],
            can_vote=self.can_vote,
            auto_join=cluster.dynamic,
            timeouts=cluster.timeouts,
            fetch_bytes_max=cluster.rng.choice([200, 1 << 20]),
            fetch_snapshot_bytes_max=cluster.rng.choice([100, 1 << 20]),
        )
        hard_state = self.disk.hard_state
        flushed = self.disk.flushed_offset()
        rng = Random(cluster.rng.random())
        self.node = cluster.node_class(settings, self.log, hard_state, rng, flushed_offset=flushed)
        self.step(lambda now_ms: self.node.start(now_ms))

    def stop(self, power: bool) -> None:
        self.alive = False
        self._cluster.note(f"{self.id} {'loses power' if power else 'is killed'}")
        if power:
            self.disk.power_loss(self._cluster.rng)

    def step(self, event: Callable[[int], Output]) -> None:
        """Lets the core handle an event and does what it asks for, unless it crashes in between."""
        cluster = self._cluster
        out = event(cluster.now_ms)
        if cluster.faults and cluster.rng.random() < cluster.crash_between:
            if out.hard_state is not None and cluster.rng.random() < 0.5:
                cluster.persist(self.disk, out.hard_state)
            self.stop(power=cluster.rng.random() < 0.5)
            cluster.restart_later(self)
            return
        if out.hard_state is not None:
            cluster.persist(self.disk, out.hard_state)
        if out.role_changed:
            cluster.note(f"{self.id} is {self.node.role}")
        if out.flush is not None:
            flush, image, incarnation = out.flush, self.disk.begin_flush(), self.incarnation
            cluster.after(cluster.rng.choice([0, 1, 5, 30]), lambda: self._flushed(flush, image, incarnation))
        for send in out.sends:
            cluster.network.request(self, send.destination, send.correlation_id, send.request)
        for reply in out.replies:
            reply.token(reply.response)
        self.deadline_ms = out.deadline_ms
        incarnation, deadline_ms = self.incarnation, out.deadline_ms
        cluster.at(deadline_ms, lambda: self._tick(incarnation, deadline_ms))
        cluster.invariants.check(self)

    def _tick(self, incarnation: int, deadline_ms: int) -> None:
        if self.alive and self.incarnation == incarnation and self.deadline_ms == deadline_ms:
            self.step(self.node.tick)

    def _flushed(self, flush: Any, image: Any, incarnation: int) -> None:
        if self.alive and self.incarnation == incarnation:
            self.disk.end_flush(image)
            self.step(lambda now_ms: self.node.flushed(flush, now_ms))

    def leave(self) -> None:
        """A clean stop: the lead is handed over first, if somebody takes it in time."""
        cluster, incarnation = self._cluster, self.incarnation
        cluster.note(f"{self.id} is asked to stop")
        self.step(self.node.shutdown)
        deadline_ms = cluster.now_ms + 400

        def stopped() -> None:
            if not self.alive or self.incarnation != incarnation:
                return
            if self.node.shutdown_complete or cluster.now_ms >= deadline_ms:
                self.stop(power=False)
                cluster.restart_later(self)
            else:
                cluster.after(5, stopped)

        cluster.after(1, stopped)

    def upgrade(self) -> None:
        """From static to dynamic voters, if all of them have said that they can."""
        try:
            changes.upgrade(self.node, 1, self._cluster.now_ms)
        except KafkaError:
            return
        self._cluster.note(f"{self.id} raises kraft.version")
        self.step(self.node.tick)

    def _crash(self, incarnation: int) -> None:
        if self.alive and self.incarnation == incarnation:
            cluster = self._cluster
            if cluster.dynamic and cluster.rng.random() < 0.5 and cluster.may_lose(self):
                cluster.lose_disk(self)
            else:
                self.stop(power=cluster.rng.random() < 0.5)
            cluster.after(1, lambda: None if self.alive else self.start())

    def propose(self, value: bytes) -> None:
        node = self.node
        record = batches.Record(0, 0, None, value)
        batch = batches.build_batch([record], base_offset=self.log.end_offset, leader_epoch=node.epoch)
        self.step(lambda now_ms: node.append(batch, node.epoch, now_ms))

    def snapshot(self) -> None:
        """Replaces the committed part of the log by a snapshot."""
        end = self.node.high_watermark
        if end is None or end <= self.log.start_offset:
            return
        epoch = max(batch.epoch for batch in self.log.batches if batch.next_offset <= end)
        membership = self.node.membership
        snapshot_id = OffsetAndEpoch(end, epoch)
        voters = membership.voter_sets.at(end - 1)
        data = snapshot_bytes(membership.versions.at(end - 1) or 0, voters, bytes(300), epoch)
        self.log.keep_snapshot(snapshot_id, data)
        self.node.snapshot_created(snapshot_id)
        self._cluster.note(f"{self.id} keeps snapshot {tuple(snapshot_id)}")

    def answer(self, request: Any, version: int, reply: Callable[[Any], None]) -> None:
        """A request from the network."""
        if request.API_KEY == ApiKey.API_VERSIONS:
            from pylogd.protocol.messages import api_versions as m

            feature = m.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            reply(m.ApiVersionsResponse(supported_features=[feature]))
            return

        cluster = self._cluster

        def replied(response: Any) -> None:
            granted = cluster.invariants.replied(self, request, response)
            reply(response)
            if granted and cluster.faults and cluster.rng.random() < cluster.crash_after_vote:
                incarnation = self.incarnation
                cluster.after(0, lambda: self._crash(incarnation))

        self.step(lambda now_ms: self.node.request(replied, request, version, LISTENER, now_ms))


class Network:
    """Delays, losses, duplicates, partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.group: dict[int, int] = {}

    def _lost(self, a: int, b: int) -> bool:
        cluster = self._cluster
        if self.group.get(a, 0) != self.group.get(b, 0):
            return True
        return cluster.faults and cluster.rng.random() < cluster.loss

    def _delay_ms(self) -> int:
        rng = self._cluster.rng
        return rng.randint(1, 400) if self._cluster.faults and rng.random() < 0.05 else rng.randint(1, 5)

    def request(self, source: Machine, destination: Node, correlation_id: int, request: Any) -> None:
        cluster = self._cluster
        target = cluster.machines.get(destination.port)
        incarnation = source.incarnation

        def answered(response: Any) -> None:
            if target is not None and not self._lost(target.id, source.id):
                cluster.after(self._delay_ms(), lambda: deliver(response))

        def deliver(response: Any) -> None:
            if source.alive and source.incarnation == incarnation:
                node = source.node
                source.step(lambda now_ms: node.response(destination.id, correlation_id, response, now_ms))

        def refused() -> None:
            if source.alive and source.incarnation == incarnation:
                node, error = source.node, ErrorCode.BROKER_NOT_AVAILABLE
                source.step(lambda now_ms: node.failed(destination.id, correlation_id, error, now_ms))

        def arrive() -> None:
            if target is not None and target.alive:
                target.answer(request, VERSIONS.get(request.API_KEY, 0), answered)
            else:
                cluster.after(1, refused)

        if target is None or self._lost(source.id, target.id):
            return
        for _ in range(2 if cluster.faults and cluster.rng.random() < cluster.duplicates else 1):
            cluster.after(self._delay_ms(), arrive)


class Cluster:
    """The simulation of one seed. Mutants replace `node_class`, or what `persist` keeps."""

    def __init__(
        self, seed: int, node_class: type[RaftNode] = RaftNode, log: Callable[[str], None] | None = None
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.node_class = node_class
        self.log = log
        self.now_ms = 0
        self.faults = True
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.steps = 0
        self.timeouts = Timeouts(
            election_ms=250, fetch_ms=500, election_backoff_ms_max=250, request_ms=500, fetch_wait_ms_max=200
        )
        self.dynamic = self.rng.random() < 0.6
        self.loss = self.rng.choice([0.0, 0.02, 0.1])
        self.duplicates = self.rng.choice([0.0, 0.05])
        self.crash_between = self.rng.choice([0.0, 0.002, 0.01])
        self.crash_after_vote = self.rng.choice([0.0, 0.1, 0.4])
        self.stampedes = self.rng.choice([0.0, 0.05, 0.3])
        self.machines: dict[int, Machine] = {}
        self.network = Network(self)
        self.invariants = Invariants(self)
        self._directories = 0
        self._lost: dict[ReplicaKey, Disk] = {}
        self._values = 0
        self._setup(self.rng.choice([1, 2, 3, 3, 3, 4, 5, 5]))

    def _setup(self, voters: int) -> None:
        keys = {id_: self._new_directory() for id_ in range(1, voters + 1)}
        self.static_voters = VoterSet()
        snapshots: dict[OffsetAndEpoch, bytes] = {}
        if self.dynamic:
            first = VoterSet(VoterNode(ReplicaKey(id_, d), endpoint(id_), (0, 1)) for id_, d in keys.items())
            snapshots = {BOOTSTRAP_SNAPSHOT: snapshot_bytes(1, first, b"", 0)}
        else:
            self.static_voters = VoterSet.static(LISTENER, {id_: ("host", id_) for id_ in keys})
        for id_, directory_id in keys.items():
            self.machines[id_] = Machine(self, id_, Disk(dict(snapshots)), directory_id)
        observers = self.rng.choice([0, 0, 1, 2]) if self.dynamic else self.rng.choice([0, 0, 1])
        for id_ in range(voters + 1, voters + 1 + observers):
            # Some never want to vote: brokers.
            can_vote = self.rng.random() < 0.7
            self.machines[id_] = Machine(self, id_, Disk({}), self._new_directory(), can_vote)

    def _new_directory(self) -> bytes:
        self._directories += 1
        return self._directories.to_bytes(16, "big")

    # -- the world -------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        if self.log is not None:
            self.log(f"{self.now_ms:6d} {text}")

    def at(self, when_ms: int, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (max(when_ms, self.now_ms), self._sequence, event))

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, event)

    def persist(self, disk: Disk, state: HardState) -> None:
        disk.hard_state = state

    def holds(self, key: ReplicaKey, batch: Any) -> bool:
        """Whether the voter has the batch on stable storage."""
        if key in self._lost:
            return self._lost[key].holds(batch)  # its word was given before the disk was lost
        return self.machines[key.id].disk.holds(batch)

    def _run_until(self, end_ms: int) -> None:
        at_once = 0
        while self._events and self._events[0][0] <= end_ms:
            when_ms, _, event = heapq.heappop(self._events)
            at_once = at_once + 1 if when_ms == self.now_ms else 0
            if at_once > 10_000:
                raise Violation("time stands still: somebody asks to be woken at once, again and again")
            self.now_ms = when_ms
            self.steps += 1
            event()
        self.now_ms = end_ms

    @property
    def leaders(self) -> list[Machine]:
        return [m for m in self.machines.values() if m.alive and isinstance(m.node.role, Leader)]

    # -- what happens to it ----------------------------------------------------------------------------------------

    def restart_later(self, machine: Machine) -> None:
        self.after(self.rng.choice([1, 50, 500, 1500]), lambda: None if machine.alive else machine.start())

    def _fault(self) -> None:
        rng = self.rng
        machine = rng.choice(list(self.machines.values()))
        if rng.random() < self.stampedes:
            self._stampede()
            return
        what = rng.random()
        if what < 0.25:
            leaders = self.leaders
            if leaders and rng.random() < 0.6:
                machine = rng.choice(leaders)
            if machine.alive:
                machine.stop(power=rng.random() < 0.7)
                self.restart_later(machine)
        elif what < 0.30:
            for each in self.machines.values():
                if each.alive:
                    each.stop(power=True)
                    self.restart_later(each)
        elif what < 0.55:
            self.network.group = {id_: rng.randint(0, 1) for id_ in self.machines}
            self.note(f"partition {self.network.group}")
            self.after(rng.choice([100, 600, 1500]), self._heal)
        elif what < 0.60:
            if machine.alive:
                machine.leave()
        elif what < 0.65 and self.leaders:
            leader = rng.choice(self.leaders)
            self.note(f"{leader.id} is asked to resign")
            leader.step(leader.node.resign)
        elif what < 0.75:
            if machine.alive:
                machine.snapshot()
        elif self.dynamic:
            self._change_voters(machine)
        else:
            for leader in self.leaders:
                leader.upgrade()

    def _stampede(self) -> None:
        """The leader dies and all others notice at once."""
        for leader in self.leaders:
            leader.stop(power=True)
            self.restart_later(leader)
            for other in self.machines.values():
                if other.alive and other.node.leader_id == leader.id:
                    node = other.node
                    other.step(lambda now_ms, node=node, gone=leader.id: node.leader_unreachable(gone, now_ms))

    def _heal(self) -> None:
        self.network.group = {}
        self.note("healed")

    def _change_voters(self, machine: Machine) -> None:
        """The observers join by themselves; here voters are removed and disks are lost."""
        leaders = self.leaders
        if not leaders:
            return
        leader = self.rng.choice(leaders)
        voters = leader.node.voters
        if self.rng.random() < 0.5:
            from pylogd.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

            key = self.rng.choice(voters.keys)
            left = [other for other in voters.keys if other != key]
            if sum(self.machines[other.id].key == other for other in left) <= len(left) // 2:
                return  # nobody could ever be elected by those that are left
            request = RemoveRaftVoterRequest(CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id)
            self.note(f"{leader.id} is asked to remove {key.id}")
            leader.answer(request, 0, lambda response: self.note(f"removal of {key.id}: {response.error_code}"))
        elif self.may_lose(machine):
            self.lose_disk(machine)
            self.restart_later(machine)

    def lose_disk(self, machine: Machine) -> None:
        self.note(f"{machine.id} loses its disk")
        machine.alive = False
        self._lost[machine.key] = machine.disk
        machine.disk = Disk({})
        machine.directory_id = self._new_directory()
        machine.epoch_seen = machine.high_watermark_seen = 0

    def may_lose(self, machine: Machine) -> bool:
        """A lost disk must leave a majority of every voter set that somebody may still go by."""
        if any(not other.alive for other in self.machines.values()):
            return False
        for other in self.machines.values():
            voters = other.node.voters
            there = sum(
                key.id != machine.id and self.machines[key.id].key == key and self._current(key.id)
                for key in voters.keys
            )
            # It may be on its way into the set while it loses its disk.
            size = len(voters) + (machine.id not in voters.ids)
            if there <= size // 2:
                return False
        return True

    def _current(self, machine_id: int) -> bool:
        """Whether a replica has all that is committed, durably."""
        return self.machines[machine_id].disk.durable_end >= self.invariants.committed_end

    def _workload(self) -> None:
        for leader in self.leaders:
            self._values += 1
            leader.propose(b"value %d" % self._values)
        if self.faults:
            self.after(self.rng.choice([20, 100, 300]), self._workload)

    def _schedule_faults(self) -> None:
        if self.faults:
            self._fault()
            self.after(self.rng.choice([50, 200, 700]), self._schedule_faults)

    def run(self, faults_ms: int = 4000, calm_ms: int = 3000) -> Cluster:
        """The whole life of the quorum. Violation, or any other exception of the core, is a failure of this seed."""
        for machine in self.machines.values():
            self.after(self.rng.randint(0, 50), machine.start)
        self.after(300, self._workload)
        self.after(400, self._schedule_faults)
        self._run_until(faults_ms)
        self.faults = False
        self.note("no more faults")
        self._heal()
        for machine in self.machines.values():
            if not machine.alive:
                machine.start()
        self._run_until(faults_ms + calm_ms)
        self._check_live()
        return self

    def _check_live(self) -> None:
        leaders = self.leaders
        newest = max((leader.node.epoch for leader in leaders), default=-1)
        leaders = [leader for leader in leaders if leader.node.epoch == newest]
        if not leaders:
            raise Violation("no leader when all is well")
        before = self.invariants.committed_end
        leaders[0].propose(b"last")
        self._run_until(self.now_ms + 1000)
        if self.invariants.committed_end <= before:
            raise Violation("nothing is committed when all is well")
        end = self.invariants.committed_end
        for machine in self.machines.values():
            if machine.node.high_watermark != end:
                raise Violation(f"{machine.id} stays at {machine.node.high_watermark} of {end}")


def main() -> int:
    seed = int(sys.argv[1])
    try:
        cluster = Cluster(seed, log=print).run()
    except Exception as failure:
        print(f"seed {seed}: {type(failure).__name__}: {failure}")
        raise
    print(f"seed {seed}: {cluster.steps} events, {len(cluster.invariants.committed)} batches committed, all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
