"""Committed metadata becomes logs, leaderships and configs, over restarts, crashes and several directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pylogd.broker.cluster import publisher
from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)
from pylogd.rpc.caller import Caller
from support.brokers import RunningBroker


async def create(broker: RunningBroker, name: str, partitions: int = 1, **configs: str) -> Any:
    m = create_topics
    rows = [m.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = m.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
    reply = await broker.ask(m.CreateTopicsRequest(topics=[topic]))
    assert reply.topics[0].error_code == 0, reply.topics[0].error_message
    return reply.topics[0]


async def delete(broker: RunningBroker, name: str) -> None:
    m = delete_topics
    reply = await broker.ask(m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=name)]))
    assert reply.responses[0].error_code == 0


async def alter(broker: RunningBroker, kind: int, resource: str, name: str, value: str) -> None:
    m = incremental_alter_configs
    row = m.AlterableConfig(name=name, config_operation=0, value=value)
    request = m.IncrementalAlterConfigsRequest(
        resources=[m.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[row])]
    )
    reply = await broker.ask(request)
    assert reply.responses[0].error_code == 0, reply.responses[0].error_message


def leaders(broker: RunningBroker) -> dict[str, int]:
    return {p.name: p.leader_epoch for p in broker.replicas if p.is_leader}


def folders(broker: RunningBroker) -> list[str]:
    return sorted(p.name for path in broker.paths for p in Path(path).iterdir() if p.is_dir())


def test_a_created_topic_is_led_when_the_reply_comes(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            created = await create(broker, "t", 2, retention_ms="1234")
            assert leaders(broker) == {"t-0": 0, "t-1": 0}
            log = broker.replicas.get("t", 1).log
            assert (log.topic_id, log.config.retention_ms) == (created.topic_id, 1234)
            assert broker.replicas.get_by_id(created.topic_id, 0) is broker.replicas.get("t", 0)
            assert folders(broker) == ["t-0", "t-1"]
            m = create_partitions
            await broker.ask(
                m.CreatePartitionsRequest(topics=[m.CreatePartitionsTopic(name="t", count=3, assignments=None)])
            )
            assert leaders(broker) == {"t-0": 0, "t-1": 0, "t-2": 0}

    asyncio.run(main())


def test_deleted_and_recreated_under_the_same_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            first = await create(broker, "t", 2)
            old = broker.replicas.get("t", 0)
            await delete(broker, "t")
            assert len(broker.replicas) == 0
            assert all(name.endswith("-delete") for name in folders(broker))
            assert old.log.offline
            second = await create(broker, "t")
            assert second.topic_id != first.topic_id
            assert broker.replicas.get("t", 0).topic_id == second.topic_id
            assert broker.replicas.get_by_id(first.topic_id, 0) is None

    asyncio.run(main())


def test_many_partitions_do_not_hold_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLICE_SECONDS", 0.0)

    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            await create(broker, "t", 40)
            assert 0 < len(broker.replicas) < 40, "one step per turn of the loop"
            assert len(broker.image.topics["t"].partitions) == 40, "while the image knows them all"
            # Deleted before all of it exists, and created again: what is left is the new topic, whole.
            await delete(broker, "t")
            again = await create(broker, "t", 3)
            await broker.settled()
            assert leaders(broker) == {"t-0": 0, "t-1": 0, "t-2": 0}
            assert {p.topic_id for p in broker.replicas} == {again.topic_id}
            live = [name for name in folders(broker) if not name.endswith("-delete")]
            assert live == ["t-0", "t-1", "t-2"]

    asyncio.run(main())


def test_a_clean_restart_gives_every_leadership_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            await create(broker, "t", 3)
            first_epoch = broker.broker_epoch
        async with RunningBroker(tmp_path) as broker:
            assert broker.broker_epoch > first_epoch
            assert leaders(broker) == {"t-0": 2, "t-1": 2, "t-2": 2}
            partition = broker.image.topics["t"].partitions[0]
            assert (partition.isr, partition.elr, partition.leader_recovery_state) == ((1,), (), 0)

    asyncio.run(main())


def test_after_a_crash_the_last_leader_leads_again_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        broker = RunningBroker(tmp_path)
        await broker.__aenter__()
        await create(broker, "t", 2)
        await broker.crash()
        async with RunningBroker(tmp_path) as broker:
            assert leaders(broker) == {"t-0": 2, "t-1": 2}
            assert broker.image.topics["t"].partitions[0].leader_recovery_state == 1, "it may have lost its end"

    asyncio.run(main())


def test_a_topic_deleted_while_away_is_put_aside(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            await create(broker, "kept")
            await create(broker, "gone")
        stray = Path(broker.paths[0])
        (stray / "nobody-0").mkdir()
        # The same name with the id of a topic that no longer exists.
        marker = stray / "gone-0" / "partition.metadata"
        marker.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAQQ\n")
        async with RunningBroker(tmp_path) as broker:
            assert broker.replicas.get("gone", 0).log.topic_id == broker.image.topics["gone"].id
            names = [name.partition(".")[0] for name in folders(broker) if name.endswith("-stray")]
            assert names == ["gone-0", "nobody-0"]
            assert leaders(broker) == {"kept-0": 2, "gone-0": 2}

    asyncio.run(main())


def test_several_directories_are_filled_evenly_and_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path, directories=2) as broker:
            await create(broker, "t", 4)
            await broker.settled()
            ids = [p.directories[0] for p in broker.image.topics["t"].partitions]
            assert sorted(ids) == sorted([broker.directory_id(0)] * 2 + [broker.directory_id(1)] * 2)
            for index, directory_id in enumerate(ids):
                assert broker.logs.directory_of("t", index).id == directory_id
        async with RunningBroker(tmp_path, directories=2) as broker:
            assert [p.directories[0] for p in broker.image.topics["t"].partitions] == ids

    asyncio.run(main())


def test_a_replica_moved_by_hand_is_reported_where_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path, directories=2) as broker:
            await create(broker, "t")
            await broker.settled()
            home = broker.logs.directory_of("t", 0)
        other = next(path for path in broker.paths if path != home.path)
        Path(home.path, "t-0").rename(Path(other, "t-0"))
        async with RunningBroker(tmp_path, directories=2) as broker:
            assert broker.image.topics["t"].partitions[0].directories[0] == broker.logs.directory_of("t", 0).id
            assert broker.logs.directory_of("t", 0).path == other

    asyncio.run(main())


def test_a_failed_directory_is_told_to_the_controller(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path, directories=2) as broker:
            await create(broker, "t", 2)
            await broker.settled()
            failed = broker.logs.directory_of("t", 0)
            broker.logs.directory_failed(failed, "pulled out")
            broker.replicas.directory_failed(failed.path)
            broker.lifecycle.directory_failed(failed.id)
            while broker.image.topics["t"].partitions[0].leader != -1:
                await asyncio.sleep(0.001)
            assert broker.image.topics["t"].partitions[1].leader == 1
            assert failed.id not in broker.image.brokers[1].directories

    asyncio.run(main())


def test_configs_reach_the_logs(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path, log_retention_ms="777") as broker:
            await create(broker, "plain")
            await create(broker, "own", retention_ms="1")
            configs = {name: broker.replicas.get(name, 0).log for name in ("plain", "own")}
            assert [log.config.retention_ms for log in configs.values()] == [777, 1]
            await alter(broker, 2, "own", "retention.ms", "2")
            await alter(broker, 4, "", "log.retention.ms", "888")
            assert [log.config.retention_ms for log in configs.values()] == [888, 2]
            await alter(broker, 4, "1", "log.retention.ms", "999")
            assert [log.config.retention_ms for log in configs.values()] == [999, 2]
        async with RunningBroker(tmp_path, log_retention_ms="777") as broker:
            assert broker.replicas.get("plain", 0).log.config.retention_ms == 999

    asyncio.run(main())


def test_a_step_that_fails_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            make = broker.logs.create

            def sometimes(topic: str, partition: int, **options: Any) -> Any:
                if partition == 1:
                    raise RuntimeError("no luck")
                return make(topic, partition, **options)

            broker.logs.create = sometimes  # type: ignore[method-assign]
            await create(broker, "t", 3)
            for _ in range(500):  # what follows a failure may come in the next slice of work
                if len(leaders(broker)) == 2:
                    break
                await asyncio.sleep(0.01)
            assert leaders(broker) == {"t-0": 0, "t-2": 0}
            broker.logs.create = make  # type: ignore[method-assign]

    asyncio.run(main())
    assert "no luck" in caplog.text


def test_topics_are_created_on_demand_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningBroker(tmp_path, num_partitions="3") as broker:
            for _ in range(5):
                broker.topic_creation.create(["wanted"], Caller(client_id="client"))
            await asyncio.gather(*broker.topic_creation._tasks)
            assert leaders(broker) == {"wanted-0": 0, "wanted-1": 0, "wanted-2": 0}
            assert not broker.topic_creation._inflight

    asyncio.run(main())


@pytest.mark.parametrize("event", ["config_changed", "controller_changed"])
def test_a_broker_the_controller_forgot_registers_anew(tmp_path: Path, event: str) -> None:
    """Its next heartbeat tells, and these events do not wait for the time of one."""
    from pylogd.protocol.messages.unregister_broker import UnregisterBrokerRequest

    async def main() -> None:
        async with RunningBroker(tmp_path) as broker:
            await create(broker, "t")
            before = broker.broker_epoch
            reply = await broker.ask(UnregisterBrokerRequest(broker_id=1))
            assert reply.error_code == ErrorCode.NONE
            assert 1 not in broker.image.brokers
            getattr(broker.lifecycle, event)()
            while 1 not in broker.image.brokers or broker.image.brokers[1].fenced:
                await asyncio.sleep(0.001)
            assert broker.broker_epoch > before
            await broker.settled()
            assert broker.replicas.get("t", 0).is_leader

    asyncio.run(main())


class Listener:
    """Tells what it does, in so many steps as it is told; the step that fails is one of them."""

    def __init__(self, name: str, said: list[str], steps: int = 0, fails: int | None = None) -> None:
        self.name = name
        self.said = said
        self.steps = steps
        self.fails = fails

    def apply(self, delta: ImageDelta, image: ClusterImage) -> Iterator[partial[None]] | None:
        self.said.append(self.name)
        if self.fails == -1:
            raise RuntimeError("no luck")
        return (partial(self.take, number) for number in range(self.steps))

    def take(self, number: int) -> None:
        if number == self.fails:
            raise RuntimeError("no luck")
        self.said.append(f"{self.name}{number}")


@pytest.mark.parametrize("slice_s", [0.0, 10.0])
def test_listeners_are_told_in_their_order_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, slice_s: float
) -> None:
    """The next one is told when the steps of the one before are done, in however many turns."""
    monkeypatch.setattr(publisher, "SLICE_SECONDS", slice_s)
    said: list[str] = []

    async def main() -> None:
        told = publisher.MetadataPublisher(asyncio.get_running_loop(), LatestImage())
        listeners = [Listener("a", said, 3, 1), Listener("b", said), Listener("c", said, 2, -1), Listener("d", said, 2)]
        await told.start(listeners)
        assert told.idle
        await told.stop()

    asyncio.run(main())
    assert said == ["a", "a0", "a2", "b", "c", "d", "d0", "d1"]
    assert len(caplog.records) == 2


def test_changes_wait_for_those_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes come while the first is applied in slices: none overtakes another."""
    monkeypatch.setattr(publisher, "SLICE_SECONDS", 0.0)
    said: list[str] = []

    async def main() -> None:
        told = publisher.MetadataPublisher(asyncio.get_running_loop(), LatestImage())
        await told.start([Listener("a", said, 2), Listener("b", said, 1)])
        said.clear()
        for broker_id in (1, 2):
            delta = ImageDelta()
            delta.brokers[broker_id] = None
            told._publish(delta)
        assert said == ["a", "a0"], "one step per turn of the loop"
        while not told.idle:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert said == ["a", "a0", "a1", "b", "b0"] * 2


def test_between_changes_the_loop_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody returns steps: many changes that gathered are not told in one go."""
    monkeypatch.setattr(publisher, "SLICE_SECONDS", 0.0)
    said: list[str] = []

    async def main() -> None:
        told = publisher.MetadataPublisher(asyncio.get_running_loop(), LatestImage())
        listeners = [Listener("a", said), Listener("b", said)]
        told._untold.extend((listener, delta) for delta in (ImageDelta(), ImageDelta()) for listener in listeners)
        assert not told._run_slice()
        assert said == ["a", "b"]
        assert told._run_slice()

    asyncio.run(main())
    assert said == ["a", "b"] * 2
