"""What must hold in a cluster of simulated brokers after every event, whatever happens to it.

The first leader whose high watermark passes an offset decides for ever what is there: the ledger. Everybody is measured
by it: other leaders, followers, consumers, acknowledgements, and later lives of the same broker.
"""

from __future__ import annotations

from typing import Any

from pylogd.controller.raft.leader import Leader
from pylogd.protocol import batch as batches


class Violation(AssertionError):
    """The simulated cluster broke a promise."""


class Ledger:
    """What is committed in one log: whole batches by their base offset."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[int, bytes] = {}
        self.values: dict[int, bytes | None] = {}
        self.end = 0
        #: leader epoch -> how much was committed when it ended, or until now
        self.ends: dict[int, int] = {}

    def end_before(self, epoch: int) -> int:
        """How much was committed in earlier epochs."""
        return max((end for earlier, end in self.ends.items() if earlier < epoch), default=0)

    def check(self, data: bytes, start: int, who: str, may_extend: bool) -> int:
        """Compare batches that begin at offset `start`; returns the offset behind them."""
        view = memoryview(data)
        for position, header in batches.iter_headers(view):
            if header.next_offset <= start:
                continue
            batch = bytes(view[position : position + header.length])
            base = header.base_offset
            if base != start:
                raise Violation(f"{who}: {self.name} continues at offset {base} instead of {start}")
            known = self.batches.get(base)
            if known is None:
                if not may_extend or base != self.end:
                    raise Violation(f"{who}: {self.name} has a batch at {base} that no leader committed")
                self.batches[base] = batch
                for record in batches.iter_records(batch):
                    self.values[record.offset] = None if record.value is None else bytes(record.value)
                self.end = header.next_offset
            elif known != batch:
                raise Violation(
                    f"{who}: {self.name} differs at committed offset {base}: epoch {header.partition_leader_epoch}, "
                    f"committed in epoch {batches.parse_header(memoryview(known)).partition_leader_epoch}"
                )
            start = header.next_offset
        return start


class Invariants:
    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self.ledgers: dict[int, Ledger] = {}
        self.metadata = Ledger("the metadata log")
        #: epoch -> host id
        self._controllers: dict[int, int] = {}
        #: (partition, leader epoch) -> host id
        self._leaders: dict[tuple[int, int], int] = {}
        #: (partition, leader epoch) -> high watermark
        self._marks: dict[tuple[int, int], int] = {}
        #: Whether the power went in the middle of a turn, which nobody could look at when it was over: what was
        #: acknowledged in it is not in the ledger yet. The end of the run tells whether it is there.
        self.blind = False

    def ledger(self, index: int) -> Ledger:
        found = self.ledgers.get(index)
        if found is None:
            found = self.ledgers[index] = Ledger(f"partition {index}")
        return found

    # -- after every event of a host

    def check(self, host: Any) -> None:
        node = host.node
        if node is None:
            return
        if node.driver is not None:
            self._check_quorum(host, node.driver)
        topic = self._simulation.topic
        for index in range(self._simulation.partitions):
            partition = host.partition(topic, index)
            if partition is None:
                # A broker that has just started has it on its disk and not yet in its hands.
                if index in host.holds and f"{topic}-{index}" not in host.replica_names():
                    del host.holds[index]
                    host.checked.pop(index, None)
                    host.seen.pop(index, None)
            elif partition._open is None:
                self._check_replica(host, partition, index)

    def _check_quorum(self, host: Any, driver: Any) -> None:
        raft = driver.node
        epoch = raft.epoch
        if epoch != host.quorum_epoch:
            if epoch < host.quorum_epoch:
                raise Violation(f"{host}: the quorum's epoch went back from {host.quorum_epoch} to {epoch}")
            host.quorum_epoch = epoch
        if type(raft.role) is Leader and self._controllers.setdefault(epoch, host.id) != host.id:
            raise Violation(f"hosts {self._controllers[epoch]} and {host.id} lead the quorum in epoch {epoch}")
        mark = raft.high_watermark or 0
        if mark == host.metadata_checked:
            return
        if mark < host.metadata_checked:
            raise Violation(f"{host}: the quorum's high watermark went back from {host.metadata_checked} to {mark}")
        start = max(host.metadata_checked, driver.log.log.log_start_offset)
        if start > host.metadata_checked and start > self.metadata.end:
            return  # a snapshot took the place of what was not compared
        for data in driver.log.read(start, min(mark, driver.log.end_offset)):
            # Followers hear of a commit from their leader, so a leader is always the first.
            start = self.metadata.check(data, start, str(host), may_extend=True)
        host.metadata_checked = start

    def _check_replica(self, host: Any, partition: Any, index: int) -> None:
        log = partition.log
        epoch, mark, end = partition.leader_epoch, log.high_watermark, log.log_end_offset
        host.holds[index] = min(log.flushed_offset, end) if self._simulation.durable else end
        seen = host.seen.get(index)
        now = (epoch, partition.is_leader, mark, end)
        if now == seen:
            return
        host.seen[index] = now
        ledger = self.ledger(index)
        if seen is not None and epoch < seen[0]:
            raise Violation(f"{host}: the leader epoch of partition {index} went back from {seen[0]} to {epoch}")
        if not log.log_start_offset <= mark <= end:
            raise Violation(f"{host}: partition {index}: high watermark {mark} outside of the log, which ends at {end}")
        if partition.is_leader:
            key = (index, epoch)
            if self._leaders.setdefault(key, host.id) != host.id:
                raise Violation(f"hosts {self._leaders[key]} and {host.id} lead partition {index} in epoch {epoch}")
            if key not in self._marks:
                self._elected(host, log, index, ledger, epoch)
            before = self._marks.get(key, 0)
            if mark < before and self._same_life(host, seen):
                raise Violation(f"{host}: the high watermark of partition {index} went back from {before} to {mark}")
            self._marks[key] = mark
            if mark > ledger.end:
                self._committed(host, index, mark)
        checked = host.checked.get(index, 0)
        if mark > checked:
            host.checked[index] = self._compare(host, log, ledger, checked, mark, partition.is_leader)
            if partition.is_leader:
                ledger.ends[epoch] = mark

    @staticmethod
    def _same_life(host: Any, seen: Any) -> bool:
        return seen is not None and bool(seen[1])

    def _elected(self, host: Any, log: Any, index: int, ledger: Ledger, epoch: int) -> None:
        """A new leader has everything that was committed before its epoch, of which it may hear late."""
        end = ledger.end_before(epoch)
        if log.log_end_offset < end:
            raise Violation(
                f"{host} leads partition {index} with a log that ends at {log.log_end_offset}; "
                f"offsets up to {end} are committed"
            )
        self._compare(host, log, ledger, 0, end, False)

    def _committed(self, host: Any, index: int, mark: int) -> None:
        """A majority that counts holds what is committed, on disk if the topic is durable. Who has lost its disk counts
        with the word it gave before, until the leader knows of another process."""
        known = host.node.metadata.image.brokers
        holders = []
        for other in self._simulation.brokers.values():
            held = other.holds.get(index, 0)
            if other.id in known and known[other.id].incarnation_id == other.held_by:
                held = max(held, other.held.get(index, 0))
            if held >= mark:
                holders.append(other.id)
        if len(holders) < self._simulation.min_isr:
            raise Violation(f"{host} commits partition {index} up to {mark}, which only {holders} have")

    @staticmethod
    def _compare(host: Any, log: Any, ledger: Ledger, start: int, end: int, may_extend: bool) -> int:
        while start < end:
            found = log.read(start, 1 << 20, end)
            if found.range is None:
                raise Violation(f"{host}: {ledger.name} has nothing at offset {start}, below {end}")
            start = ledger.check(found.range.read(), start, str(host), may_extend)
        return start

    # -- what clients see

    def acknowledged(self, index: int, base_offset: int, values: list[bytes]) -> None:
        ledger = self.ledger(index)
        for offset, value in enumerate(values, base_offset):
            found = ledger.values.get(offset)
            if found is None and self.blind and offset >= ledger.end:
                continue
            if found != value:
                raise Violation(f"partition {index}: {value!r} is acknowledged at {offset}, not {found!r}")

    def consumed(self, index: int, data: bytes, offset: int, high_watermark: int) -> int:
        ledger = self.ledger(index)
        reached = ledger.check(data, offset, "a consumer", may_extend=False)
        if data and reached > high_watermark:
            raise Violation(f"partition {index}: offset {reached - 1} was served above high watermark {high_watermark}")
        return reached

    # -- at the end

    def check_end(self, acknowledged: list[tuple[int, int, list[bytes]]]) -> None:
        simulation = self._simulation
        self.blind = False
        for index, base_offset, values in acknowledged:
            self.acknowledged(index, base_offset, values)
        for index, ledger in self.ledgers.items():
            for host in simulation.brokers.values():
                log = host.partition(simulation.topic, index).log
                if log.log_end_offset != ledger.end:
                    raise Violation(f"{host}: partition {index} ends at {log.log_end_offset}, not at {ledger.end}")
                self._compare(host, log, ledger, 0, ledger.end, False)
            self._check_sequences(index, ledger)

    @staticmethod
    def _check_sequences(index: int, ledger: Ledger) -> None:
        """An idempotent producer's records are there once and in order."""
        last: dict[str, int] = {}
        for offset in sorted(ledger.values):
            producer, _, number = (ledger.values[offset] or b"").decode().partition(":")
            if producer.startswith("once"):
                if int(number) != last.get(producer, -1) + 1:
                    raise Violation(
                        f"partition {index}: {producer} wrote {last.get(producer)} and then {number} at offset {offset}"
                    )
                last[producer] = int(number)
