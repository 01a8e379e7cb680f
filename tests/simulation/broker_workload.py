"""Clients of the simulated cluster: they speak the wire protocol over the simulated network, try again for ever, and
report everything they were told to the invariants."""

from __future__ import annotations

import asyncio
from typing import Any

from pylogd.protocol import batch as batches
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import (
    alter_partition_reassignments,
    create_topics,
    delete_topics,
    fetch,
    init_producer_id,
    metadata,
    produce,
)
from pylogd.rpc.peer import Peer, PeerError
from pylogd.runtime.simulated.simulated_loop import SimulatedLoop
from pylogd.runtime.simulated.simulated_network import SimulatedNetwork

from simulation.broker_invariants import Violation

PRODUCE_VERSION = 11
FETCH_VERSION = 12
#: What topics are called that come and go.
PASSING = "passing-"
TIMEOUT_S = 4.0
_AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
}


class Clients:
    """One machine with all clients on it."""

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        world = simulation.world
        self.loop = SimulatedLoop(world, "clients")
        self._network = SimulatedNetwork(simulation.internet, "clients", self.loop)
        self._peers: dict[tuple[int, str], Peer] = {}
        #: partition -> (leader epoch, broker id), the newest heard of
        self.leaders: dict[int, tuple[int, int]] = {}
        self.ready = False
        self.writing = True
        self.reading = True
        self.producing = 0
        #: How many still change topics and replicas.
        self.administrators = 0
        self.acknowledged: list[tuple[int, int, list[bytes]]] = []
        self.read_to: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.loop.call_soon(lambda: self._spawn(self._begin()))

    def _spawn(self, coroutine: Any) -> None:
        self._tasks.append(self.loop.create_task(coroutine))
        self._tasks[-1].add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.exception() is not None:
            self._simulation.violated(task.exception())

    async def _ask(self, broker_id: int, lane: str, request: Any, version: int | None = None) -> Any:
        key = (broker_id, lane)
        peer = self._peers.get(key)
        if peer is None:
            client_id = f"client-{lane}"
            peer = Peer(self._network, f"host{broker_id}", 9092, client_id=client_id, timeout_s=TIMEOUT_S)
            self._peers[key] = peer
        return await peer.request(request, version=version)

    async def _pause(self) -> None:
        await asyncio.sleep(0.02 + self._simulation.world.chance.random() * 0.2)

    def _any_broker(self) -> int:
        hosts: list[int] = list(self._simulation.brokers)
        chosen: int = self._simulation.world.chance.choice(hosts)
        return chosen

    # -- beginning

    async def _begin(self) -> None:
        simulation = self._simulation
        configs = [
            create_topics.CreatableTopicConfig(name=name, value=value)
            for name, value in simulation.topic_configs.items()
        ]
        while True:
            asked = create_topics.CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(
                        name=simulation.topic,
                        num_partitions=simulation.partitions,
                        replication_factor=len(simulation.brokers),
                        configs=configs,
                    )
                ]
            )
            try:
                answer = await self._ask(self._any_broker(), "admin", asked)
            except PeerError:
                await self._pause()
                continue
            code = ErrorCode(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            simulation.note(f"the topic is not created: {code.name} {answer.topics[0].error_message}")
            await self._pause()
        self.ready = True
        for index in range(simulation.partitions):
            self._spawn(self._produce(index, f"once{index}", idempotent=True))
            self._spawn(self._produce(index, f"plain{index}", idempotent=False))
            self._spawn(self._consume(index))
        if simulation.moving:
            self._spawn(self._move_replicas())
        if simulation.passing:
            self._spawn(self._create_and_delete())

    # -- administration

    async def _ask_anybody(self, asked: Any) -> Any:
        """None when there was no answer."""
        try:
            return await self._ask(self._any_broker(), "admin", asked)
        except PeerError:
            return None

    async def _move_replicas(self) -> None:
        """Takes replicas away and gives them back; in the end every host has one of every partition."""
        simulation = self._simulation
        chance = simulation.world.chance
        self.administrators += 1
        while self.writing:
            await asyncio.sleep(1 + chance.random() * 4)
            hosts = list(simulation.brokers)
            chance.shuffle(hosts)
            await self._assign(chance.randrange(simulation.partitions), hosts[: chance.choice((2, 3))])
        # An assignment whose answer was lost may still be on its way to the controller.
        await asyncio.sleep(TIMEOUT_S)
        for index in range(simulation.partitions):
            while not await self._assign(index, list(simulation.brokers)):
                await self._pause()
        self.administrators -= 1

    async def _assign(self, index: int, replicas: list[int]) -> bool:
        part = alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = alter_partition_reassignments.ReassignableTopic(name=self._simulation.topic, partitions=[part])
        answer = await self._ask_anybody(
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=[topic])
        )
        code = None if answer is None else answer.error_code or answer.responses[0].partitions[0].error_code
        self._simulation.note(f"partition {index} is to be on {replicas}: {code}")
        return code == 0

    async def _create_and_delete(self) -> None:
        """In the end none of these topics is left."""
        simulation = self._simulation
        self.administrators += 1
        number = 0
        while self.writing:
            name = f"{PASSING}{number}"
            number += 1
            new = create_topics.CreatableTopic(
                name=name, num_partitions=2, replication_factor=2 + simulation.world.chance.randrange(2)
            )
            created = await self._ask_anybody(create_topics.CreateTopicsRequest(topics=[new]))
            outcome = None if created is None else created.topics[0].error_code
            simulation.note(f"{name} is created: {outcome}")
            await asyncio.sleep(simulation.world.chance.random() * 3)
            while True:
                doomed = delete_topics.DeleteTopicState(name=name)
                answer = await self._ask_anybody(delete_topics.DeleteTopicsRequest(topics=[doomed], timeout_ms=3000))
                code = None if answer is None else answer.responses[0].error_code
                # A creation whose answer was lost, or that a broker gave up on, may still be on its way to the
                # controller: only one that was heard of is over, and in the end all are.
                over = outcome not in (None, ErrorCode.REQUEST_TIMED_OUT) or not self.writing
                if code == 0 or (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and over):
                    break
                await self._pause()
        self.administrators -= 1

    async def _find_leaders(self) -> None:
        asked = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=self._simulation.topic)], allow_auto_topic_creation=False
        )
        try:
            answer = await self._ask(self._any_broker(), "metadata", asked)
        except PeerError:
            return
        for topic in answer.topics:
            for partition in topic.partitions:
                known = self.leaders.get(partition.partition_index, (-1, -1))
                if partition.leader_id >= 0 and partition.leader_epoch >= known[0]:
                    self.leaders[partition.partition_index] = (partition.leader_epoch, partition.leader_id)

    # -- producing

    async def _producer_id(self) -> int:
        while True:
            try:
                answer = await self._ask(self._any_broker(), "admin", init_producer_id.InitProducerIdRequest())
            except PeerError:
                answer = None
            if answer is not None and answer.error_code == 0:
                return int(answer.producer_id)
            await self._pause()

    async def _produce(self, index: int, name: str, idempotent: bool) -> None:
        simulation = self._simulation
        chance = simulation.world.chance
        producer_id = await self._producer_id() if idempotent else -1
        number = 0
        while self.writing:
            values = [f"{name}:{number + at}".encode() for at in range(chance.randint(1, 3))]
            now_ms = simulation.clock.now_ms()
            batch = bytes(
                batches.build_batch(
                    [batches.Record(at, now_ms, None, value) for at, value in enumerate(values)],
                    producer_id=producer_id,
                    producer_epoch=0 if idempotent else -1,
                    base_sequence=number if idempotent else -1,
                )
            )
            number += len(values)
            self.producing += 1
            offset = await self._produce_one(index, name, batch)
            self.producing -= 1
            if offset >= 0:
                self.acknowledged.append((index, offset, values))
                simulation.invariants.acknowledged(index, offset, values)
            await asyncio.sleep(chance.random() * 0.1)

    async def _produce_one(self, index: int, name: str, batch: bytes) -> int:
        """The offset it is acknowledged at; -1 when it is a duplicate nobody knows the offset of."""
        simulation = self._simulation
        while True:
            _, leader = self.leaders.get(index, (-1, -1))
            if leader < 0:
                await self._find_leaders()
                await self._pause()
                continue
            data = produce.PartitionProduceData(index=index, records=batch)
            asked = produce.ProduceRequest(
                acks=-1,
                timeout_ms=2000,
                topic_data=[produce.TopicProduceData(name=simulation.topic, partition_data=[data])],
            )
            try:
                answer = await self._ask(leader, f"{name}-{index}", asked, PRODUCE_VERSION)
            except PeerError as failure:
                simulation.note(f"{name}: {failure}")
            else:
                told = answer.responses[0].partition_responses[0]
                code = ErrorCode(told.error_code)
                if code is ErrorCode.NONE:
                    return int(told.base_offset)
                if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return -1
                if code not in _AGAIN:
                    raise Violation(f"{name}: produce to host {leader}: {code.name} {told.error_message}")
                simulation.note(f"{name}: host {leader} answers {code.name}")
            await self._pause()
            await self._find_leaders()

    # -- consuming

    async def _consume(self, index: int) -> None:
        simulation = self._simulation
        offset = 0
        while self.reading:
            epoch, leader = self.leaders.get(index, (-1, -1))
            if leader < 0:
                await self._find_leaders()
                await self._pause()
                continue
            # With the epoch, or a leader that was cut off and deposed could find the offset out of its range.
            partition = fetch.FetchPartition(
                partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            asked = fetch.FetchRequest(
                max_wait_ms=300,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[fetch.FetchTopic(topic=simulation.topic, partitions=[partition])],
            )
            # Any replica may be asked, and what it shows is committed too.
            host = leader if simulation.world.chance.random() < 0.7 else self._any_broker()
            told: list[tuple[ErrorCode, int, bytes]] = []
            try:
                answer = await self._ask(host, f"consumer-{index}", asked, FETCH_VERSION)
            except PeerError:
                await self._pause()
                await self._find_leaders()
                continue
            for row in answer.responses:
                for part in row.partitions:
                    told.append((ErrorCode(part.error_code), part.high_watermark, bytes(part.records or b"")))
            for code, mark, data in told:
                if code is ErrorCode.NONE:
                    offset = simulation.invariants.consumed(index, data, offset, mark)
                    self.read_to[index] = offset
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE and host == leader:
                    raise Violation(f"partition {index}: host {leader} says that offset {offset} is out of range")
                else:
                    await self._pause()
                    await self._find_leaders()
