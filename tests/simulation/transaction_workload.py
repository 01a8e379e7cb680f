"""Transactional clients of the simulated cluster: producers of both generations of the protocol, and read_committed
consumers that drop what the broker says is aborted, as real ones do.

Every transaction writes its value to some partitions. Its producer knows afterwards that it is committed, that it is
aborted, or, when it was fenced after it had asked for the commit, neither.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pylogd.protocol import batch as batches
from pylogd.protocol.control import ControlType, control_type
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    produce,
)
from pylogd.rpc.peer import PeerError

from simulation.broker_invariants import Violation
from simulation.broker_workload import _AGAIN, FETCH_VERSION, Clients

TRANSACTION_TIMEOUT_MS = 5000
_COORDINATOR_MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
#: The transaction was ended by its coordinator, or somebody took over the transactional id.
_LOST = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


#: (offset, is it of a transaction, value) of records, and the offset behind them
Fetched = tuple[list[tuple[int, bool, bytes]], int]


class Lost(Exception):
    """This producer must begin anew."""


class Producer:
    """One transactional id. `bumps`: it speaks the second generation."""

    def __init__(self, name: str, bumps: bool) -> None:
        self.name = name
        self.bumps = bumps
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[int, int] = {}
        #: value -> partitions
        self.committed: dict[bytes, list[int]] = {}
        self.aborted: dict[bytes, list[int]] = {}
        self.unknown: dict[bytes, list[int]] = {}


class TransactionClients(Clients):
    def __init__(self, simulation: Any) -> None:
        super().__init__(simulation)
        self.producers = [Producer("first", False), Producer("second", True), Producer("third", True)]
        #: partition -> values that a read_committed consumer was given
        self.delivered: dict[int, list[bytes]] = {}
        self.committed_to: dict[int, int] = {}
        self._coordinators: dict[str, int] = {}

    async def _begin(self) -> None:
        await super()._begin()
        for index in range(self._simulation.partitions):
            self._spawn(self._consume_committed(index))
        for producer in self.producers:
            self._spawn(self._produce_transactions(producer))

    # -- the coordinator

    async def _coordinate(self, name: str, request: Any, version: int) -> Any:
        """The answer of the coordinator of a transactional id; None when there was none to be had."""
        broker = await self.coordinator_of(name, name, key_type=1)
        if broker is None:
            return None
        try:
            return await self._ask(broker, f"txn-{name}", request, version)
        except PeerError as failure:
            self._simulation.note(f"{name}: {failure}")
            self._coordinators.pop(name, None)
            return None

    async def coordinator_of(self, key: str, who: str, key_type: int) -> int | None:
        """Of a transactional id or a group, as `who` knows it or finds it now; None when it does not."""
        broker = self._coordinators.get(who)
        if broker is not None:
            return broker
        asked = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        try:
            answer = await self._ask(self._any_broker(), f"find-{who}", asked, 4)
        except PeerError as failure:
            self._simulation.note(f"{who}: {failure}")
            return None
        found = answer.coordinators[0]
        if found.error_code:
            return None
        self._coordinators[who] = int(found.node_id)
        return int(found.node_id)

    async def _insist(self, name: str, request: Any, version: int, code_of: Any) -> Any:
        """Ask until the answer is one: an answer without error. Lost when the transaction is."""
        while True:
            answer = await self._coordinate(name, request, version)
            if answer is not None:
                code = ErrorCode(code_of(answer))
                if code is ErrorCode.NONE:
                    return answer
                self._simulation.note(f"{name}: coordinator answers {code.name}")
                if code in _LOST:
                    raise Lost(code.name)
                if code not in _COORDINATOR_MOVED:
                    raise Violation(f"{name}: the coordinator answers {code.name}")
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinators.pop(name, None)
            await self._pause()

    async def _init(self, producer: Producer) -> None:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=producer.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = await self._insist(producer.name, request, 4, lambda answer: answer.error_code)
        producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
        producer.sequences = {}

    # -- transactions

    async def _produce_transactions(self, producer: Producer) -> None:
        chance = self._simulation.world.chance
        number = 0
        self.producing += 1
        await self._init(producer)
        while self.writing:
            number += 1
            value = f"{producer.name}:{number}".encode()
            where = [index for index in range(self._simulation.partitions) if chance.random() < 0.8] or [0]
            if chance.random() < 0.03:
                await self._abandon(producer, value, where)
                continue
            await self._transact(producer, value, where, chance.random() < 0.7)
            await asyncio.sleep(chance.random() * 0.2)
        self.producing -= 1

    async def _transact(self, producer: Producer, value: bytes, where: list[int], commit: bool) -> None:
        ending = False
        try:
            for index in where:
                if not producer.bumps:
                    await self._add(producer, index)
                await self._write(producer, value, index)
            ending = True
            request = end_txn.EndTxnRequest(
                transactional_id=producer.name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            )
            answer = await self._insist(
                producer.name, request, 5 if producer.bumps else 4, lambda answer: answer.error_code
            )
            (producer.committed if commit else producer.aborted)[value] = where
            if producer.bumps:
                producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
                producer.sequences = {}
        except Lost as loss:
            self._simulation.note(f"{producer.name}: {value!r} is lost: {loss}")
            (producer.unknown if ending and commit else producer.aborted)[value] = where
            await self._init(producer)

    async def _abandon(self, producer: Producer, value: bytes, where: list[int]) -> None:
        """Nobody ends this one but the clock: the producer goes on under another name."""
        producer.aborted[value] = where
        try:
            for index in where:
                if not producer.bumps:
                    await self._add(producer, index)
                await self._write(producer, value, index)
        except Lost as loss:
            self._simulation.note(f"{producer.name}: {value!r} is lost: {loss}")
        producer.name += "'"
        await self._init(producer)

    async def _add(self, producer: Producer, index: int) -> None:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=self._simulation.topic, partitions=[index])
            ],
        )
        await self._insist(
            producer.name,
            request,
            3,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    async def _write(self, producer: Producer, value: bytes, index: int) -> None:
        simulation = self._simulation
        sequence = producer.sequences.get(index, 0)
        batch = bytes(
            batches.build_batch(
                [batches.Record(0, simulation.clock.now_ms(), None, value)],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        while True:
            _, leader = self.leaders.get(index, (-1, -1))
            if leader < 0:
                await self._find_leaders()
                await self._pause()
                continue
            data = produce.PartitionProduceData(index=index, records=batch)
            request = produce.ProduceRequest(
                transactional_id=producer.name,
                acks=-1,
                timeout_ms=2000,
                topic_data=[produce.TopicProduceData(name=simulation.topic, partition_data=[data])],
            )
            try:
                answer = await self._ask(leader, f"{producer.name}-{index}", request, 12 if producer.bumps else 11)
            except PeerError as failure:
                simulation.note(f"{producer.name}: {failure}")
            else:
                told = answer.responses[0].partition_responses[0]
                code = ErrorCode(told.error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    producer.sequences[index] = sequence + 1
                    return
                simulation.note(f"{producer.name}: host {leader} answers {code.name}")
                if code in _LOST:
                    raise Lost(code.name)
                if code not in _AGAIN and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise Violation(f"{producer.name}: produce to host {leader}: {code.name} {told.error_message}")
            await self._pause()
            await self._find_leaders()

    # -- consuming what is committed

    async def _consume_committed(self, index: int) -> None:
        offset = 0
        self.delivered[index] = []
        while self.reading:
            found = await self.fetch_committed(f"committed-{index}", index, offset)
            if found is None:
                await self._pause()
                continue
            records, offset = found
            self.delivered[index] += [value for _, transactional, value in records if transactional]
            self.committed_to[index] = offset

    async def fetch_committed(self, who: str, index: int, offset: int) -> Fetched | None:
        """What a consumer hands to its application from this offset on, and where it goes on."""
        epoch, leader = self.leaders.get(index, (-1, -1))
        if leader < 0:
            return None
        partition = fetch.FetchPartition(
            partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = fetch.FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[fetch.FetchTopic(topic=self._simulation.topic, partitions=[partition])],
        )
        try:
            answer = await self._ask(leader, who, request, FETCH_VERSION)
        except PeerError:
            return None
        # The records are a view of the connection's buffer: nothing may be awaited before they are used.
        part = answer.responses[0].partitions[0]
        return _delivered(part, offset) if part.error_code == ErrorCode.NONE else None


def _delivered(part: Any, offset: int) -> Fetched:
    """Without what is aborted, as the broker tells it."""
    data = bytes(part.records or b"")
    aborted = sorted((row.first_offset, row.producer_id) for row in part.aborted_transactions or ())
    dropped: set[int] = set()
    found: list[tuple[int, bool, bytes]] = []
    for position, header in batches.iter_headers(data):
        if header.next_offset <= offset:
            continue
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        records = list(batches.batch_records(data, header, position))
        if header.is_control:
            if control_type(records[0].key) is ControlType.ABORT:
                dropped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in dropped:
            found += [
                (record.offset, header.is_transactional, bytes(record.value or b""))
                for record in records
                if record.offset >= offset
            ]
        offset = header.next_offset
    return found, offset
