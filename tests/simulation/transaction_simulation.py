"""The simulated cluster with transactions: `python -m simulation.transaction_simulation SEED` replays one seed."""

from __future__ import annotations

import sys
from typing import Any

from pylogd.protocol import batch as batches
from pylogd.protocol.control import ControlType, control_type

from simulation.broker_invariants import Ledger, Violation
from simulation.broker_simulation import Host, Simulation
from simulation.transaction_workload import TransactionClients


class TransactionSimulation(Simulation):
    clients_class = TransactionClients
    clients: TransactionClients
    may_wipe = False

    def config_of(self, host: Host) -> dict[str, str]:
        config = {
            **super().config_of(host),
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "offsets.topic.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }
        if self.durable:
            config["log.flush.interval.messages"] = "1"
        return config

    def _settled(self) -> bool:
        """Nothing is left open, and the consumers have seen it."""
        if not super()._settled():
            return False
        for index in range(self.partitions):
            for host in self.brokers.values():
                partition: Any = host.partition(self.topic, index)
                log: Any = partition.log
                if log.last_stable_offset != log.log_end_offset:
                    return False
            if self.clients.committed_to.get(index, 0) != self.invariants.ledger(index).end:
                return False
        return True

    def _run(self) -> None:
        super()._run()
        outcomes = {index: decided(ledger) for index, ledger in self.invariants.ledgers.items()}
        for index, committed in outcomes.items():
            if self.clients.delivered[index] != committed:
                raise Violation(
                    f"partition {index}: a read_committed consumer was given {self.clients.delivered[index]}, "
                    f"committed are {committed}"
                )
            if len(set(committed)) != len(committed):
                raise Violation(f"partition {index}: something is committed twice")
        for producer in self.clients.producers:
            for value, where in producer.committed.items():
                for index in where:
                    if value not in outcomes[index]:
                        raise Violation(f"{value!r} was committed and is not in partition {index}")
            for value, where in producer.aborted.items():
                for index in where:
                    if value in outcomes[index]:
                        raise Violation(f"{value!r} was aborted and is in partition {index}")
            for value, where in producer.unknown.items():
                if len({value in outcomes[index] for index in where}) != 1:
                    raise Violation(f"half of {value!r} is committed")


def decided(ledger: Ledger) -> list[bytes]:
    """The values of committed transactions, in the order of the log."""
    found: dict[int, bytes] = {}
    open_: dict[int, dict[int, bytes]] = {}
    for base in sorted(ledger.batches):
        data = ledger.batches[base]
        header = batches.parse_header(memoryview(data))
        if not header.is_transactional:
            continue
        records = list(batches.iter_records(data))
        if not header.is_control:
            values = {record.offset: bytes(record.value or b"") for record in records}
            open_.setdefault(header.producer_id, {}).update(values)
        elif control_type(records[0].key) is ControlType.COMMIT:
            found.update(open_.pop(header.producer_id, {}))
        else:
            open_.pop(header.producer_id, None)
    if open_:
        raise Violation(f"{ledger.name}: transactions of {sorted(open_)} were never ended")
    return [found[offset] for offset in sorted(found)]


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    simulation = TransactionSimulation(seed, log=print, packets="--packets" in sys.argv)
    simulation.run()
    for producer in simulation.clients.producers:
        print(
            f"{producer.name}: {len(producer.committed)} committed, {len(producer.aborted)} aborted, "
            f"{len(producer.unknown)} unknown"
        )


if __name__ == "__main__":
    main()
