"""The simulated cluster with groups and transactions: `python -m simulation.group_simulation SEED` replays one seed."""

from __future__ import annotations

import sys
from typing import Any

from pylogd.protocol import batch as batches

from simulation.broker_invariants import Ledger, Violation
from simulation.broker_simulation import Host
from simulation.group_invariants import Book, GroupLog
from simulation.group_members import SESSION_MS
from simulation.group_workload import GroupClients
from simulation.transaction_simulation import TransactionSimulation, decided

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 2


class GroupSimulation(TransactionSimulation):
    clients_class = GroupClients
    clients: GroupClients

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.partitions = 3

    def config_of(self, host: Host) -> dict[str, str]:
        return {
            **super().config_of(host),
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "100",
            "group.min.session.timeout.ms": "500",
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.min.session.timeout.ms": "500",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "100",
        }

    def _settled(self) -> bool:
        """Every group has read to the end, has said so, and everybody can see it."""
        if not super()._settled():
            return False
        for book in self.clients.books:
            for index in range(self.partitions):
                if book.looked_up.get(index) != self.invariants.ledger(index).end:
                    return False
        logs = [self._group_log(host) for host in self.brokers.values()]
        return logs[0] is not None and all(log == logs[0] for log in logs)

    def _group_log(self, host: Host) -> bytes | None:
        """Everything up to the high watermark; None while it is not open."""
        found = []
        for index in range(OFFSETS_PARTITIONS):
            partition = host.partition(OFFSETS_TOPIC, index)
            if partition is None or partition._open is not None:
                return None
            log = partition.log
            offset = 0
            while offset < log.high_watermark:
                read = log.read(offset, 1 << 20, log.high_watermark).range
                assert read is not None
                data = read.read()
                found.append(data)
                for _, header in batches.iter_headers(data):
                    offset = header.next_offset
        return b"".join(found)

    def _standing(self) -> str:
        books = [f"{book.name} {book.looked_up}" for book in self.clients.books]
        ends = [self.invariants.ledger(index).end for index in range(self.partitions)]
        return f"{super()._standing()}; groups {books} of {ends}"

    def _run(self) -> None:
        super()._run()
        log = GroupLog()
        log.read(self._group_log(self.brokers[1]) or b"")
        for book in self.clients.books:
            log.check(book)
            for index, ledger in self.invariants.ledgers.items():
                _check_delivered(book, index, ledger)


def _check_delivered(book: Book, index: int, ledger: Ledger) -> None:
    """Everything but what was aborted."""
    committed = set(decided(ledger))
    wanted = {}
    for data in ledger.batches.values():
        header = batches.parse_header(memoryview(data))
        if header.is_control:
            continue
        for record in batches.iter_records(data):
            value = bytes(record.value or b"")
            if not header.is_transactional or value in committed:
                wanted[record.offset] = value
    found = book.delivered.get(index, {})
    if found != wanted:
        missing = sorted(wanted.keys() - found.keys())
        wrong = sorted(found.keys() - wanted.keys())
        raise Violation(f"group {book.name}, partition {index}: {missing} were not read, {wrong} should not have been")


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    simulation = GroupSimulation(seed, log=print, packets="--packets" in sys.argv)
    simulation.run()
    for book in simulation.clients.books:
        print(f"{book.name}: {book.joins} joins, {len(book.commits)} commits")


if __name__ == "__main__":
    main()
