"""How members of the two protocols join, stay and leave."""

from __future__ import annotations

import asyncio
from struct import pack
from typing import Any

from pylogd.coordinators.groups.consumer.migration.embedded import decode_assignment, encode_assignment
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import consumer_group_heartbeat, heartbeat, join_group, leave_group, sync_group
from pylogd.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

from simulation.broker_invariants import Violation
from simulation.group_workload import Ended, GroupClients, Life, Refused

SESSION_MS = 2500
REBALANCE_MS = 3000
BEAT_S = 0.4
_BEGIN_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
_FENCED = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.STALE_MEMBER_EPOCH,
}


class Classic(Life):
    async def live(self) -> None:
        while self.going:
            try:
                joined = await self._join()
                if joined is None or not await self._sync(joined):
                    continue
                while self.going:
                    await self._beat()
                    await self.work()
                    await asyncio.sleep(self.chance.random() * BEAT_S)
            except Refused as refusal:
                self._refused(refusal.code)

    def _refused(self, code: ErrorCode) -> None:
        self.note(f"is told {code.name}")
        self.positions = {}
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise Ended(code.name)
        if code not in _BEGIN_ANEW:
            raise Violation(f"{self.slot} of group {self.book.name}: {code.name}")
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _join(self) -> Any:
        subscription = pack(">h", 1) + encode(ConsumerProtocolSubscription(topics=[self.simulation.topic]), 1)
        request = join_group.JoinGroupRequest(
            group_id=self.book.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol("range", subscription)],
        )
        answer = await self.ask_again(request, 9)
        if answer is None:
            return None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return None
        if code is not ErrorCode.NONE:
            if await self.moved(code):
                return None
            raise Refused(code)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def _sync(self, joined: Any) -> bool:
        partitions = range(self.simulation.partitions)
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            ids = sorted(member.member_id for member in joined.members)
            for number, member_id in enumerate(ids):
                given = {self.simulation.topic: [index for index in partitions if index % len(ids) == number]}
                assignments.append(sync_group.SyncGroupRequestAssignment(member_id, encode_assignment(given, 1)))
        request = sync_group.SyncGroupRequest(
            group_id=self.book.name,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = await self.ask_again(request, 5)
        if answer is None:
            return False
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if await self.moved(code):
                return False
            raise Refused(code)
        mine: list[int] = []
        if answer.assignment:
            for topic in decode_assignment(bytes(answer.assignment)).assigned_partitions:
                mine += topic.partitions
        self.note(f"has {mine} in generation {self.generation}")
        self.book.joins += 1
        self.book.owns(self.identity, self.generation, mine)
        self.positions = dict.fromkeys(mine)
        return True

    async def _beat(self) -> None:
        request = heartbeat.HeartbeatRequest(
            group_id=self.book.name,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = await self.ask_again(request, 4)
        code = ErrorCode.NONE if answer is None else ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE and not await self.moved(code):
            raise Refused(code)

    async def leave(self) -> None:
        """A static member does not: it comes back."""
        if self.instance_id is None and self.member_id:
            self.note("leaves")
            identity = leave_group.MemberIdentity(member_id=self.member_id)
            await self.ask_again(leave_group.LeaveGroupRequest(group_id=self.book.name, members=[identity]), 5)


class Consumer(Life):
    def __init__(self, clients: GroupClients, *args: Any) -> None:
        super().__init__(clients, *args)
        self.member_id = self.chance.randbytes(8).hex()
        self.generation = 0

    async def live(self) -> None:
        while self.going:
            try:
                if await self._beat():
                    continue  # it gave something up: that is told at once
                await self.work()
            except Refused as refusal:
                self.note(f"is told {refusal.code.name}")
                if refusal.code is ErrorCode.FENCED_INSTANCE_ID:
                    raise Ended(refusal.code.name) from None
                if refusal.code not in _FENCED:
                    raise Violation(f"{self.slot} of group {self.book.name}: {refusal.code.name}") from None
                if refusal.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    self.generation = 0
                    self.positions = {}
            await asyncio.sleep(self.chance.random() * BEAT_S)

    def _request(self, epoch: int) -> Any:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.book.name, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    async def _beat(self) -> bool:
        request = self._request(self.generation)
        owned = sorted(self.positions)
        rows = [consumer_group_heartbeat.TopicPartitions(self.clients.topic_id, owned)] if owned else []
        request.topic_partitions = rows
        if self.generation == 0 or self.chance.random() < 0.3:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self.simulation.topic]
        answer = await self.ask_again(request, 1)
        if answer is None:
            return False
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            await self.clients._pause()
            return False
        if code is not ErrorCode.NONE:
            if await self.moved(code):
                return False
            raise Refused(code)
        if answer.member_epoch < self.generation:
            raise Violation(f"{self.slot}: its epoch goes back from {self.generation} to {answer.member_epoch}")
        self.book.joins += self.generation == 0
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            given = [index for row in answer.assignment.topic_partitions for index in row.partitions]
            if given != owned:
                self.note(f"has {given} in epoch {self.generation}")
            self.positions = {index: self.positions.get(index) for index in given}
        self.book.owns(self.identity, self.generation, list(self.positions))
        return any(index not in self.positions for index in owned)

    async def leave(self) -> None:
        self.note("leaves")
        await self.ask_again(self._request(-1 if self.instance_id is None else -2), 1)


KINDS: dict[str, type[Life]] = {"classic": Classic, "consumer": Consumer}
