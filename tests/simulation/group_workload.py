"""Consumer groups of the simulated cluster: classic ones, those of the new protocol, and a group of both.

Members join, read what is committed, commit where they are (by themselves or in a transaction), leave, vanish and come
back; some are so slow at times that others have their partitions before they commit. A member whose commit got no
answer ends there: the request may still be on its way, and only the end of its membership makes sure that it cannot
overtake a later one. Commits in a transaction need no such care.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import end_txn, metadata, offset_commit, offset_fetch, txn_offset_commit
from pylogd.rpc.peer import PeerError

from simulation.broker_invariants import Violation
from simulation.group_invariants import Book
from simulation.transaction_workload import _LOST, Lost, Producer, TransactionClients

SLOTS = 3
#: How often a member is slow, and for how long: longer than its session.
SLOW_CHANCE = 0.03
SLOW_S = 3.0
OFFSET_COMMIT_VERSION = 9
OFFSET_FETCH_VERSION = 9
MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
}
#: The topic is not known yet to a broker that has just come back.
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


class Ended(Exception):
    """This member is no more, as far as it knows."""


class Refused(Exception):
    """The member has to join again; with `code` it knows how."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Life:
    """One member from its first join to its end; each protocol adds how it joins and stays."""

    def __init__(self, clients: GroupClients, book: Book, slot: str, static: bool) -> None:
        self.clients = clients
        self.simulation = clients._simulation
        self.chance = self.simulation.world.chance
        self.book = book
        self.slot = slot
        self.instance_id = slot if static else None
        self.member_id = ""
        #: In the new protocol the member's epoch.
        self.generation = -1
        #: partition -> where it is; None: it has to be asked for
        self.positions: dict[int, int | None] = {}
        self.ends_at = self.simulation.world.now + 1 + self.chance.random() * 12
        self.transactional = self.chance.random() < 0.3
        self.producer: Producer | None = None

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    @property
    def going(self) -> bool:
        clients = self.clients
        return clients.reading and (not clients.writing or self.simulation.world.now < self.ends_at)

    def note(self, text: str) -> None:
        self.simulation.note(f"{self.slot} of {self.book.name}: {text}")

    async def live(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    # -- asking

    async def ask(self, request: Any, version: int) -> Any:
        """None when there was no answer, and none is on its way."""
        clients = self.clients
        broker = await clients.coordinator_of(self.book.name, self.slot, key_type=0)
        if broker is None:
            await clients._pause()
            return None
        try:
            return await clients._ask(broker, self.slot, request, version)
        except PeerError as failure:
            self.note(f"{type(request).__name__}: {failure}")
            clients._coordinators.pop(self.slot, None)
            await clients._pause()
            raise

    async def ask_again(self, request: Any, version: int) -> Any:
        """For what may be asked twice: None when there was no answer."""
        try:
            return await self.ask(request, version)
        except PeerError:
            return None

    async def moved(self, code: ErrorCode) -> bool:
        """Does the answer mean no more than to try again?"""
        if code in MOVED:
            self.clients._coordinators.pop(self.slot, None)
            await self.clients._pause()
            return True
        if code in UNKNOWN or code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await self.clients._pause()
            return True
        return False

    # -- reading and committing

    async def work(self) -> None:
        """Look at every partition once."""
        for index in list(self.positions):
            if index not in self.positions:
                continue
            position = self.positions[index]
            if position is None:
                position = await self.find_position(index)
                if position is None:
                    continue
                self.positions[index] = position
            found = await self.clients.fetch_committed(f"{self.slot}-{index}", index, position)
            if found is None:
                await self.clients._find_leaders()
                continue
            records, following = found
            if following == position:
                continue
            self.book.deliver(index, records)
            await self.dawdle()
            commit = self.commit_in_transaction if self.transactional else self.commit
            if await commit(index, following):
                self.positions[index] = following
                self.book.acknowledged(self.generation, index, following)
            else:
                self.positions[index] = None

    async def dawdle(self) -> None:
        """Do nothing for a while, now and then."""
        if self.chance.random() < SLOW_CHANCE:
            self.note("is slow")
            await asyncio.sleep(SLOW_S + self.chance.random())

    async def find_position(self, index: int) -> int | None:
        book = self.book
        floor = book.floor(self.generation, index)
        topic = offset_fetch.OffsetFetchRequestTopics(name=self.simulation.topic, partition_indexes=[index])
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=book.name, member_id=self.member_id, member_epoch=self.generation, topics=[topic]
        )
        answer = await self.ask_again(
            offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True), OFFSET_FETCH_VERSION
        )
        if answer is None:
            return None
        told = answer.groups[0]
        part = None if told.error_code else told.topics[0].partitions[0]
        code = ErrorCode(told.error_code if part is None else part.error_code)
        if part is None or code is not ErrorCode.NONE:
            self.note(f"OffsetFetch: {code.name}")
            if await self.moved(code):
                return None
            raise Refused(code)
        book.found(index, part.committed_offset, floor)
        return max(part.committed_offset, 0)

    async def commit(self, index: int, offset: int) -> bool:
        part = offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = offset_commit.OffsetCommitRequest(
            group_id=self.book.name,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[offset_commit.OffsetCommitRequestTopic(name=self.simulation.topic, partitions=[part])],
        )
        try:
            answer = await self.ask(request, OFFSET_COMMIT_VERSION)
        except PeerError:
            raise Ended("a commit had no answer") from None
        return answer is not None and await self._is_taken(answer.topics[0].partitions[0].error_code)

    async def _is_taken(self, number: int) -> bool:
        code = ErrorCode(number)
        if code is ErrorCode.NONE:
            return True
        self.note(f"commit: {code.name}")
        if not await self.moved(code):
            raise Refused(code)
        return False

    async def commit_in_transaction(self, index: int, offset: int) -> bool:
        clients = self.clients
        if self.producer is None:
            self.producer = Producer(f"{self.slot}-{self.book.name}", True)
            await clients._init(self.producer)
        producer = self.producer
        taken = False
        try:
            taken = await self._send_offset(producer, index, offset)
            await self.dawdle()
        except Refused:
            await self._end(producer, False)
            raise
        return await self._end(producer, taken) and taken

    async def _send_offset(self, producer: Producer, index: int, offset: int) -> bool:
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=producer.name,
            group_id=self.book.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=self.simulation.topic, partitions=[part])],
        )
        while True:
            answer = await self.ask_again(request, 5)
            if answer is None:
                continue
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code in _LOST:
                self.note(f"TxnOffsetCommit: {code.name}")
                return False
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                await self.clients._pause()
            elif await self._is_taken(code):
                return True

    async def _end(self, producer: Producer, commit: bool) -> bool:
        """False when nobody knows what became of it: the next look at the group's offsets tells."""
        request = end_txn.EndTxnRequest(
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        try:
            answer = await self.clients._insist(producer.name, request, 5, lambda answer: answer.error_code)
        except Lost:
            await self.clients._init(producer)
            return False
        producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
        return True


class GroupClients(TransactionClients):
    def __init__(self, simulation: Any) -> None:
        super().__init__(simulation)
        self.books = [Book("old", ("classic",)), Book("new", ("consumer",)), Book("both", ("classic", "consumer"))]
        self.topic_id = b""

    async def _begin(self) -> None:
        await super()._begin()
        while not self.topic_id:
            await self._find_topic_id()
        for book in self.books:
            for number in range(SLOTS):
                self._spawn(self._live(book, f"{book.name}{number}", static=number == 0))
            self._spawn(self._look_up(book))

    async def _find_topic_id(self) -> None:
        asked = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=self._simulation.topic)], allow_auto_topic_creation=False
        )
        answer = await self._ask_anybody(asked)
        if answer is not None and answer.topics[0].error_code == 0:
            self.topic_id = bytes(answer.topics[0].topic_id)
        else:
            await self._pause()

    async def _live(self, book: Book, slot: str, static: bool) -> None:
        from simulation.group_members import KINDS

        chance = self._simulation.world.chance
        while self.reading:
            life = KINDS[chance.choice(book.kinds)](self, book, slot, static)
            life.note("begins")
            try:
                await life.live()
                if chance.random() < 0.5:
                    await life.leave()
            except Ended as end:
                life.note(f"ends: {end}")
            await self._pause()

    async def _look_up(self, book: Book) -> None:
        """Somebody who is no member sees the offsets too."""
        who = f"looks-at-{book.name}"
        topics = [
            offset_fetch.OffsetFetchRequestTopics(
                name=self._simulation.topic, partition_indexes=list(range(self._simulation.partitions))
            )
        ]
        group = offset_fetch.OffsetFetchRequestGroup(group_id=book.name, topics=topics)
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True)
        while self.reading:
            broker = await self.coordinator_of(book.name, who, key_type=0)
            try:
                answer = None if broker is None else await self._ask(broker, who, request, OFFSET_FETCH_VERSION)
            except PeerError:
                answer = None
            told = None if answer is None else answer.groups[0]
            if told is not None and told.error_code == 0:
                for part in told.topics[0].partitions:
                    if part.error_code == 0:
                        book.looked_up[part.partition_index] = part.committed_offset
            elif told is not None and ErrorCode(told.error_code) not in MOVED:
                raise Violation(f"{who}: {ErrorCode(told.error_code).name}")
            if told is None or told.error_code:
                self._coordinators.pop(who, None)
            await self._pause()
