"""Shards: speculative state and committed replies, on a real log and a real partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.coordinators.shard.marker import Marker
from pylogd.coordinators.shard.record_pairs import CoordinatorRecord
from pylogd.coordinators.shard.shard import Shard
from pylogd.coordinators.shard.shards import Shards
from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.metadata.registrations import Topic
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records
from pylogd.replication.partition import Partition
from pylogd.replication.replicas import Replicas
from pylogd.runtime.clock import Clock
from pylogd.runtime.workers import InlineWorkers
from pylogd.storage.log.log import Log
from support.logs import new_log, read_all

TOPIC_ID = bytes(range(16))


class Numbers:
    """Numbers by name; those of a transaction are pending."""

    classes = {1: (records.OffsetCommitKey, records.OffsetCommitValue)}

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.started = 0

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if key.API_KEY not in self.classes:
            return
        if value is None:
            self.values.pop(key.group, None)
        elif producer_id >= 0:
            self.pending.setdefault(producer_id, {})[key.group] = value.offset
        else:
            self.values[key.group] = value.offset
            self.places[key.group] = offset

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        pending = self.pending.pop(producer_id, {})
        if committed:
            self.values.update(pending)

    def loaded(self, effects: Effects) -> None:
        self.started += 1

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        """Not about numbers."""


def set_(name: str, value: int, reply: Any = None) -> Callable[[Effects], None]:
    def event(effects: Effects) -> None:
        effects.write(records.OffsetCommitKey(group=name), records.OffsetCommitValue(offset=value), 4)
        if reply is not None:
            effects.answer(reply, f"{name} is {value}")

    return event


class World:
    """A node with one internal partition; brokers 2 and 3 may follow."""

    def __init__(self, directory: Path, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        self.log: Log = new_log(directory)
        self.replicas = Replicas(1, loop)
        image = ClusterImage()
        image.topics["numbers"] = image.topics_by_id[TOPIC_ID] = Topic("numbers", TOPIC_ID)
        host: Any = SimpleNamespace(loop=loop, clock=Clock(), workers=InlineWorkers(loop))
        self.shards: Shards[Numbers] = Shards(
            host, LatestImage(image), self.replicas, "numbers", lambda shard: Numbers(), **options
        )
        self.partition: Partition = self.replicas.add("numbers", 0, TOPIC_ID, self.log)

    async def lead(self, *isr: int, epoch: int = 1) -> Shard[Numbers]:
        self.partition.become_leader(epoch, isr or (1,), isr or (1,))
        return await self.active()

    async def active(self) -> Shard[Numbers]:
        while True:
            try:
                return self.shards.ready(0)
            except KafkaError as refusal:
                if refusal.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
            await asyncio.sleep(0.001)

    def ask(self, event: Callable[[Reply], Any], **options: Any) -> Reply:
        reply = Reply(lambda code, message: code.name)
        self.shards.ready(0).submit(event(reply), reply, **options)
        return reply

    def set(self, name: str, value: int, **options: Any) -> Reply:
        return self.ask(lambda reply: set_(name, value, reply), **options)

    def get(self, name: str) -> Reply:
        state = self.shards.ready(0).state
        return self.ask(lambda reply: lambda effects: effects.answer(reply, state.values.get(name)), writes=False)

    def fetched(self, offset: int, replica: int = 2) -> None:
        self.partition.follower_fetched(replica, -1, offset, 0, 0)


async def settled(reply: Reply) -> Any:
    while not reply.resolved:
        await asyncio.sleep(0.001)
    return reply.response


def play(scene: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine."""

    def test(tmp_path: Path) -> None:
        async def run() -> None:
            await scene(tmp_path)

        asyncio.run(run())

    test.__name__, test.__doc__ = scene.__name__, scene.__doc__
    return test


@play
async def test_replies_wait_for_the_watermark_reads_included(directory: Path) -> None:
    world = World(directory)
    await world.lead(1, 2)
    written, read = world.set("a", 1), world.get("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = world.get("a")
    assert world.log.log_end_offset == 1
    assert [reply.resolved for reply in (written, read, later)] == [False] * 3
    world.fetched(1)
    assert [reply.response for reply in (written, read, later)] == ["a is 1", 1, 1]
    now = world.get("a")
    assert now.response == 1


@play
async def test_events_of_one_turn_share_a_batch(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead()
    replies = [world.set(name, number) for number, name in enumerate("abc")]
    assert shard.state.values == {"a": 0, "b": 1, "c": 2}
    assert [await settled(reply) for reply in replies] == ["a is 0", "b is 1", "c is 2"]
    (header,) = read_all(world.log)
    assert (header.record_count, header.partition_leader_epoch) == (3, 1)
    assert shard.state.places == {"a": 0, "b": 1, "c": 2}


class Setting:
    """An event that many requests share: it sets a name to what it is given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def decide(self, effects: Effects, reply: Any, given: int) -> None:
        if given < 0:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        set_(self.name, given, reply)(effects)


def repeated(world: World, *given: int) -> list[Reply]:
    event = Setting("a")
    replies = [Reply(lambda code, message: code.name) for _ in given]
    for number, reply in zip(given, replies, strict=True):
        world.shards.ready(0).submit_repeated(event, number, reply)
    return replies


@play
async def test_repeated_events_share_a_batch_and_each_has_its_answer(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead(1, 2)
    replies = repeated(world, 1, -1, 2)
    # Whatever comes next sees what they did.
    read = world.get("a")
    more = repeated(world, 3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert shard.state.places == {"a": 2}
    assert not any(reply.resolved for reply in (*replies, read, *more))
    world.fetched(3)
    answers = [reply.response for reply in (*replies, read, *more)]
    assert answers == ["a is 1", "FENCED_INSTANCE_ID", "a is 2", 2, "a is 3"]
    (header,) = read_all(world.log)
    assert header.record_count == 3


@play
async def test_repeated_events_are_refused_with_everything_else(directory: Path) -> None:
    world = World(directory, reload_pause_ms=1)
    await world.lead(1, 2)
    world.log.config.min_insync_replicas = 2
    world.partition.become_leader(1, (1,), (1, 2), 1)
    refused = repeated(world, 1, 2)
    assert [await settled(reply) for reply in refused] == ["COORDINATOR_NOT_AVAILABLE"] * 2
    await world.lead(1, 2, epoch=2)
    lost = repeated(world, 1)
    world.partition.become_follower(3, 2)
    assert await settled(lost[0]) == "NOT_COORDINATOR"


@play
async def test_what_comes_behind_an_append_that_fails_leaves_nothing(directory: Path) -> None:
    world = World(directory, reload_pause_ms=1)
    await world.lead()
    first = [world.set("a", 1), *repeated(world, 2)]
    world.log.offline = True
    behind = world.set("a", 3, producer=(7, 0))
    assert [reply.response for reply in (*first, behind)] == ["NOT_COORDINATOR"] * 3
    world.log.offline = False
    shard = await world.active()
    assert shard.state.pending == {}
    assert shard.state.values == {}


@play
async def test_lost_leadership_refuses_what_is_not_answered(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead(1, 2)
    fired: list[str] = []
    written = world.set("a", 1)
    parked = world.ask(lambda reply: lambda effects: effects.after("t", 1, lambda later: fired.append("timer")))
    await asyncio.sleep(0)
    world.partition.become_follower(2, 2, (1, 2), (1, 2))
    assert (written.response, parked.response) == ("NOT_COORDINATOR", "NOT_COORDINATOR")
    with pytest.raises(KafkaError) as refusal:
        world.shards.ready(0)
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError):
        shard.submit(set_("a", 2))
    await asyncio.sleep(0.01)
    assert fired == []


@play
async def test_a_new_leader_has_what_the_log_says(directory: Path) -> None:
    world = World(directory)
    before = await world.lead()
    for number in range(5):
        world.set(f"n{number % 3}", number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    world.set("gone", 1)
    await settled(
        world.ask(
            lambda reply: (
                lambda effects: (
                    effects.write(records.OffsetCommitKey(group="gone"), None),
                    effects.answer(reply, "gone"),
                )
            )
        )
    )
    world.partition.become_follower(2, 2)
    world.partition.become_leader(3, (1,), (1,))
    after = await world.active()
    assert after is not before
    assert after.state.values == before.state.values == {"n0": 3, "n1": 4, "n2": 2}
    assert after.state.places == before.state.places


@play
async def test_the_same_leader_in_a_new_epoch_keeps_its_state(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead(1, 2)
    written = world.set("a", 1)
    await asyncio.sleep(0)
    world.partition.become_leader(2, (1, 2), (1, 2))
    assert world.shards.ready(0) is shard
    assert not written.resolved
    world.fetched(1)
    assert written.response == "a is 1"


@play
async def test_an_append_that_fails_rebuilds_the_state(directory: Path) -> None:
    world = World(directory, reload_pause_ms=1)
    shard = await world.lead()
    await settled(world.set("kept", 1))
    world.log.offline = True
    lost = world.set("kept", 2)
    assert await settled(lost) == "NOT_COORDINATOR"
    with pytest.raises(KafkaError) as refusal:
        shard.submit(set_("x", 1))
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.log.offline = False
    await world.active()
    assert (await settled(world.get("kept"))) == 1


@play
async def test_an_event_that_breaks_rebuilds_the_state(directory: Path) -> None:
    world = World(directory, reload_pause_ms=1)
    shard = await world.lead()

    def breaks(effects: Effects) -> None:
        set_("a", 1)(effects)
        raise ZeroDivisionError

    bystanders = [world.ask(lambda reply: lambda effects: None), world.set("b", 1), *repeated(world, 2)]
    logging.disable(logging.CRITICAL)
    try:
        assert world.ask(lambda reply: breaks).response == "UNKNOWN_SERVER_ERROR"
    finally:
        logging.disable(logging.NOTSET)
    # Nobody else did anything wrong: they may ask again.
    assert [reply.response for reply in bystanders] == ["NOT_COORDINATOR"] * 3
    assert not shard.active
    await world.active()
    assert await settled(world.get("a")) is None
    assert world.log.log_end_offset == 0


@play
async def test_a_refusal_changes_nothing(directory: Path) -> None:
    world = World(directory)
    await world.lead()

    def refuses(effects: Effects) -> None:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)

    assert world.ask(lambda reply: refuses).response == "FENCED_INSTANCE_ID"
    assert world.shards.ready(0).active


@play
async def test_too_few_replicas_refuse_before_anything_changes(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead(1, 2)
    world.log.config.min_insync_replicas = 2
    world.partition.become_leader(1, (1,), (1, 2), 1)
    refused = world.set("a", 1)
    assert refused.response == "COORDINATOR_NOT_AVAILABLE"
    assert shard.state.values == {}
    assert world.get("a").response is None
    # An event that may or may not write is refused only if it does; the timers it has set are set.
    perhaps = lambda reply: lambda effects: (effects.after("session", 60_000, set_("b", 1)), set_("a", 1)(effects))  # noqa: E731
    assert world.ask(perhaps, writes=False).response == "COORDINATOR_NOT_AVAILABLE"
    assert shard.state.values == {}
    assert "session" in shard.timers
    # A timer that wants to write waits for them.
    shard.timers.set("t", 0, set_("a", 5))
    await asyncio.sleep(0.01)
    assert shard.state.values == {}
    assert "t" in shard.timers


@play
async def test_what_does_not_commit_in_time_is_refused_but_stays(directory: Path) -> None:
    world = World(directory, commit_timeout_ms=10)
    await world.lead(1, 2)
    assert await settled(world.set("a", 1)) == "COORDINATOR_NOT_AVAILABLE"
    world.fetched(1)
    assert world.get("a").response == 1


@play
async def test_records_of_a_transaction_have_a_batch_of_their_own(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead()
    world.set("a", 1)
    assert await settled(world.set("a", 2, producer=(7, 3))) == "a is 2"
    assert shard.state.values == {"a": 1}
    plain, transactional = read_all(world.log)
    assert (plain.producer_id, plain.is_transactional) == (-1, False)
    assert (transactional.producer_id, transactional.producer_epoch, transactional.is_transactional) == (7, 3, True)
    reply = Reply(lambda code, message: code.name)
    shard.end_transaction(Marker(7, 3, coordinator_epoch=0, commit=True), reply, "ended")
    assert await settled(reply) == "ended"
    assert shard.state.values == {"a": 2}
    world.partition.become_follower(2, 2)
    world.partition.become_leader(3, (1,), (1,))
    assert (await world.active()).state.values == {"a": 2}


@play
async def test_a_record_that_no_batch_can_hold_is_refused(directory: Path) -> None:
    world = World(directory)
    await world.lead()
    world.log.config.max_message_bytes = 1000

    def large(reply: Reply) -> Callable[[Effects], None]:
        value = records.OffsetCommitValue(metadata="x" * 2000)
        return lambda effects: effects.write(records.OffsetCommitKey(group="a"), value, 4)

    assert world.ask(large).response == "UNKNOWN_SERVER_ERROR"
    assert world.shards.ready(0).active
    for number in range(100):
        world.set("a", number)
    assert await settled(world.get("a")) == 99
    assert all(header.length <= 1000 for header in read_all(world.log))


def put(*sizes: int) -> Callable[[Reply], Callable[[Effects], None]]:
    """Write records of about these sizes."""

    def event(effects: Effects) -> None:
        for size in sizes:
            value = records.OffsetCommitValue(metadata="x" * size)
            effects.write(records.OffsetCommitKey(group="a"), value, 4)

    return lambda reply: lambda effects: (event(effects), effects.answer(reply, "done"))[0]


@play
async def test_records_that_no_batch_can_hold_together_cost_nobody_else_an_error(directory: Path) -> None:
    world = World(directory, reload_pause_ms=1)
    await world.lead()
    for sizes in ((600, 600), (600, 2000)):
        world.log.config.max_message_bytes = 1000
        parked = world.ask(lambda reply: lambda effects: None)
        logging.disable(logging.CRITICAL)
        try:
            assert world.ask(put(*sizes)).response == "UNKNOWN_SERVER_ERROR"
        finally:
            logging.disable(logging.NOTSET)
        assert parked.response == "NOT_COORDINATOR"
        await world.active()
    assert world.log.log_end_offset == 0


@play
async def test_an_append_that_fails_is_the_fault_of_those_in_it(directory: Path) -> None:
    world = World(directory, reload_pause_ms=1)
    await world.lead()
    parked = world.ask(lambda reply: lambda effects: None)
    written = world.ask(put(600))
    world.log.update_config(replace(world.log.config, max_message_bytes=500))
    assert await settled(written) == "UNKNOWN_SERVER_ERROR"
    assert parked.response == "NOT_COORDINATOR"


@play
async def test_a_batch_may_be_filled_to_the_last_byte(directory: Path) -> None:
    world = World(directory)
    await world.lead()
    assert await settled(world.ask(put(*[30] * 100))) == "done"
    (header,) = read_all(world.log)
    world.log.config.max_message_bytes = header.length
    assert await settled(world.ask(put(*[30] * 100))) == "done"
    assert [each.record_count for each in read_all(world.log)] == [100, 100]


@play
async def test_unknown_records_are_left_alone(directory: Path) -> None:
    world = World(directory)
    shard = await world.lead()
    shard.submit(lambda effects: effects.write(records.GroupMetadataKey(group="g"), records.GroupMetadataValue(), 3))
    await settled(world.set("a", 1))
    world.partition.become_follower(2, 2)
    world.partition.become_leader(3, (1,), (1,))
    assert (await world.active()).state.values == {"a": 1}


@play
async def test_timers(directory: Path) -> None:
    """Pushed back, replaced and cancelled by name."""
    world = World(directory)
    shard = await world.lead()
    fired: list[str] = []

    def arm(effects: Effects) -> None:
        effects.after("pushed", 1, lambda later: fired.append("too early"))
        effects.after("cancelled", 1, lambda later: fired.append("cancelled"))
        effects.after("sooner", 60_000, lambda later: fired.append("too late"))

    shard.submit(arm)

    def change(effects: Effects) -> None:
        effects.after("pushed", 15, lambda later: fired.append("pushed"))
        effects.cancel("cancelled")
        effects.after("sooner", 1, lambda later: fired.append("sooner"))

    shard.submit(change)
    while len(fired) < 2:
        await asyncio.sleep(0.001)
    assert fired == ["sooner", "pushed"]
    assert "pushed" not in shard.timers
