"""A controller on a real directory: epochs, commits, snapshots, restarts."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from pylogd.controller.quorum.metadata_log import DIRECTORY, MetadataEnvironment, MetadataLog, MetadataLogConfig
from pylogd.controller.quorum.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from pylogd.controller.served_apis import SERVED
from pylogd.controller.service import Timings
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import decode_batches
from pylogd.metadata.snapshot import SnapshotId, replay_snapshot
from pylogd.protocol.api import request_class
from pylogd.protocol.control import ControlType
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import (
    broker_heartbeat,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_quorum,
    incremental_alter_configs,
    metadata_records,
)
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from support.controllers import DIRECTORY_ID, RunningController


def topics(*names: str, partitions: int = 1) -> create_topics.CreateTopicsRequest:
    m = create_topics
    return m.CreateTopicsRequest(
        topics=[m.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


def batches(root: Path) -> list[Any]:
    return [b for path in sorted((root / DIRECTORY).glob("*.log")) for b in decode_batches(path.read_bytes())]


class Follower:
    """A subscriber that replays what it is given."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.next_offset = 0
        self.snapshots: list[SnapshotId] = []

    def load_snapshot(self, data: bytes, snapshot_id: SnapshotId) -> None:
        self.image = ClusterImage()
        replay_snapshot(data, self.image, snapshot_id)
        self.snapshots.append(snapshot_id)
        self.next_offset = snapshot_id.offset

    def committed(self, data: Any) -> None:
        for chunk in data:
            for batch in decode_batches(chunk):
                assert batch.base_offset == self.next_offset, "a gap or a repetition in the committed metadata"
                self.next_offset = batch.last_offset + 1
                if not batch.control:
                    for offset, record in enumerate(batch.records, batch.base_offset):
                        self.image.replay(record, offset)


def run(main: Any) -> None:
    asyncio.run(main)


def test_a_new_log_opens_with_leader_change_voters_and_bootstrap_records(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path):
            pass

    run(main())
    opening, bootstrap = batches(tmp_path)
    assert [r.kind for r in opening.records] == [
        ControlType.LEADER_CHANGE,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    assert opening.records[2].message.voters[0].voter_directory_id == DIRECTORY_ID
    names = [type(r).__name__ for r in bootstrap.records]
    assert names == ["BeginTransactionRecord"] + ["FeatureLevelRecord"] * 6 + ["ConfigRecord", "EndTransactionRecord"]
    assert (bootstrap.records[-2].name, bootstrap.records[-2].value) == ("min.insync.replicas", "1")
    state = (tmp_path / DIRECTORY / "quorum-state").read_text()
    assert (
        state
        == '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_every_start_is_a_new_epoch_on_the_same_state(tmp_path: Path) -> None:
    async def main() -> None:
        images = []
        for epoch in (1, 2, 3):
            async with RunningController(tmp_path) as c:
                assert c.driver.epoch == epoch
                if epoch == 1:
                    await c.register()
                    await c.ask(topics("a", "b", partitions=3))
                images.append(c.controller.state.image.freeze())
        assert images[0] == images[1] == images[2]
        assert len(images[2].topics["b"].partitions) == 3

    run(main())
    later = [b for b in batches(tmp_path) if b.epoch > 1]
    assert [[r.kind for r in b.records] for b in later] == [[ControlType.LEADER_CHANGE]] * 2, "voters are written once"


def test_a_full_disk_refuses_changes_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogd.controller.quorum.driver.RECORDS_PER_BATCH", 1)
    room = [1000]

    async def main() -> None:
        async with RunningController(tmp_path) as c:
            await c.register()
            log = c.driver.log.log
            write = os.pwrite

            def limited(fd: int, *args: Any) -> int:
                if fd == log.active.file.fd:
                    if room[0] == 0:
                        raise OSError(errno.ENOSPC, "No space left on device")
                    room[0] -= 1
                return write(fd, *args)

            monkeypatch.setattr(os, "pwrite", limited)
            end = c.driver.end_offset
            for left, kept in ((0, 0), (1, 1), (2, 2)):
                room[0] = left
                # Records that need not be atomic: those that found room are part of the state.
                records = [(metadata_records.ConfigRecord(2, "t", f"k{n}", "v"), 0) for n in range(4)]
                with pytest.raises(KafkaError, match="is full"):
                    c.controller._append(records, atomic=False)
                end += kept
                assert (c.driver.end_offset, c.controller.state.image.offset) == (end, end - 1)
                answer = await asyncio.wait_for(c.ask(topics("refused")), 30) if left == 0 else None
                assert answer is None or answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            # Who could not be fenced or unfenced is tried again.
            room[0] = 1000
            epoch = await c.register(2, (b"e" * 16,))
            brokers = c.controller.state.image.brokers
            for fence in (True, False):
                heartbeat = broker_heartbeat.BrokerHeartbeatRequest(2, epoch, c.driver.end_offset, fence, False)
                room[0] = 0
                assert (await c.ask(heartbeat)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert brokers[2].fenced is not fence
                room[0] = 1000
                assert (await c.ask(heartbeat)).is_fenced is fence
                assert brokers[2].fenced is fence
            room[0] = 0
            c.controller.broker_gone(2, epoch)
            assert not brokers[2].fenced
            room[0] = 1000
            c.controller._fence_stale()
            assert brokers[2].fenced
            assert (await c.ask(topics("taken"))).topics[0].error_code == 0
            assert not c.failures
            seen.append(c.controller.state.image.freeze())
        async with RunningController(tmp_path) as c:
            seen.append(c.controller.state.image.freeze())

    seen: list[Any] = []
    run(main())
    assert seen[0] == seen[1]
    assert "refused" not in seen[0].topics


def test_a_moved_controller_writes_its_new_endpoint(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path, port=1111):
            pass
        async with RunningController(tmp_path, port=2222) as c:
            assert [e.port for e in c.driver.voters.voters[0].endpoints] == [2222]

    run(main())
    assert [r.kind for r in batches(tmp_path)[-1].records][1:] == [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]


def test_a_log_of_other_voters_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path, node_id=1):
            pass
        with pytest.raises(ValueError, match="voters"):
            async with RunningController(tmp_path, node_id=2):
                pass

    run(main())


def test_the_epoch_never_goes_back_even_when_quorum_state_is_ahead(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path):
            pass
        path = tmp_path / DIRECTORY / "quorum-state"
        path.write_text(QuorumState(epoch=41, leader_id=1).to_json(1))
        async with RunningController(tmp_path) as c:
            assert c.driver.epoch == 42
        path.unlink()
        async with RunningController(tmp_path) as c:
            assert c.driver.epoch == 43, "the log knows the epoch too"

    run(main())


def test_a_vote_outlives_the_power_also_in_a_directory_that_is_new() -> None:
    for seed in range(20):
        files = SimulatedFileSystem(seed)
        files.mkdirs("/data")
        files.sync_everything()
        environment = MetadataEnvironment(files, ManualClock(), None, None, lambda error: None)  # type: ignore[arg-type]
        log = MetadataLog(environment, "/data", MetadataLogConfig())
        write_quorum_state(files, log.directory, QuorumState(3, voted_id=2), 1)
        found = read_quorum_state(files.after_crash(), log.directory)
        assert found is not None
        assert (found.epoch, found.voted_id) == (3, 2)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"data_version":2}', '{"leaderEpoch":1,"data_version":1}', "not json"]
)
def test_a_broken_quorum_state_is_not_guessed_at(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        QuorumState.from_json(text)


def test_quorum_state_of_a_static_quorum() -> None:
    text = QuorumState(3, 1, voters=(1, 2)).to_json(0)
    assert text == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    again = QuorumState.from_json(text)
    assert (again.epoch, again.leader_id, again.voters) == (3, 1, (1, 2))


def test_concurrent_requests_share_commits_and_see_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            await c.register()
            flushes = 0
            plan = c.driver.log.flush_plan

            def counted() -> Any:
                nonlocal flushes
                flushes += 1
                return plan()

            c.driver.log.flush_plan = counted  # type: ignore[method-assign]
            replies = await asyncio.gather(*(c.ask(topics(f"t{i}")) for i in range(50)), c.ask(topics("t7")))
            codes = [reply.topics[0].error_code for reply in replies]
            assert codes == [0] * 50 + [ErrorCode.TOPIC_ALREADY_EXISTS]
            assert flushes <= 3
            assert c.driver.committed_offset == c.driver.end_offset

    run(main())


def test_replies_and_subscribers_wait_for_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            await c.register()
            follower = Follower()
            c.driver.subscribe(follower)
            held: list[tuple[Any, asyncio.Future[None]]] = []
            loop = asyncio.get_running_loop()

            def hold(fn: Any, *args: Any) -> asyncio.Future[None]:
                future = loop.create_future()
                held.append((lambda: fn(*args), future))
                return future

            c.driver._flushes._workers = type("Held", (), {"offload": staticmethod(hold)})()
            first = asyncio.ensure_future(c.ask(topics("a")))
            refused = asyncio.ensure_future(c.ask(topics("a")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert "a" in c.controller.state.image.topics, "decided and appended"
            assert not first.done()
            assert not refused.done(), "a refusal tells of a topic that may yet be lost"
            assert "a" not in follower.image.topics
            job, future = held.pop()
            job()
            future.set_result(None)
            assert (await first).topics[0].error_code == 0
            assert (await refused).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert "a" in follower.image.topics
            c.driver._flushes._workers = c.workers

    run(main())


def test_a_failed_disk_ends_the_controller(tmp_path: Path) -> None:
    async def main() -> None:
        running = RunningController(tmp_path)
        async with running as c:
            await c.register()

            async def broken(fn: Any, *args: Any) -> None:
                raise OSError(5, "Input/output error")

            c.driver._flushes._workers = type("Broken", (), {"offload": staticmethod(broken)})()
            reply = await c.ask(topics("a"))
            assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER
            assert len(c.failures) == 1
            again = await c.ask(topics("b"))
            assert again.topics[0].error_code != 0

    run(main())


def test_what_was_acknowledged_is_there_after_a_crash(tmp_path: Path) -> None:
    async def main() -> None:
        running = RunningController(tmp_path)
        c = await running.__aenter__()
        await c.register()
        await c.ask(topics("kept", partitions=2))
        # No stop: the process is gone. Torn bytes at the end are what a crash in the middle of an append leaves.
        [log] = (tmp_path / DIRECTORY).glob("*.log")
        with log.open("ab") as file:
            file.write(log.read_bytes()[-100:-20])
        async with RunningController(tmp_path) as after:
            assert len(after.controller.state.image.topics["kept"].partitions) == 2
        c.controller.active = False
        c.workers.close()

    run(main())


def test_snapshots_replace_the_log_and_old_ones_go(tmp_path: Path) -> None:
    config = MetadataLogConfig(
        segment_bytes=4096, snapshot_interval_bytes=6000, max_retention_bytes=30_000, snapshot_interval_ms=0
    )

    async def main() -> None:
        async with RunningController(tmp_path, config=config) as c:
            await c.register()
            for i in range(300):
                await c.ask(topics(f"t{i}", partitions=2))
                if i % 2:
                    m = delete_topics
                    await c.ask(m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=f"t{i}")]))
            image = c.controller.state.image.freeze()
        assert not list((tmp_path / DIRECTORY).glob("*.part"))
        kept = sorted(p.name for p in (tmp_path / DIRECTORY).glob("*.checkpoint"))
        assert 1 <= len(kept) < 20
        assert SnapshotId.parse(kept[0]) != SnapshotId(0, 0)
        assert min(int(p.stem) for p in (tmp_path / DIRECTORY).glob("*.log")) > 0, "the log before it is gone"
        async with RunningController(tmp_path, config=config) as c:
            assert c.controller.state.image == image
            follower = Follower()
            c.driver.subscribe(follower)
            assert follower.image == image
            assert follower.snapshots

    run(main())


def test_a_snapshot_by_time_needs_something_new(tmp_path: Path) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with RunningController(tmp_path, clock=clock) as c:
            await c.register()
            assert not c.driver.snapshot_due()
            clock.advance(3_600_000)
            assert c.driver.snapshot_due()
            await c.ask(topics("a"))
            assert c.driver.snapshots.task is not None
            await c.driver.snapshots.task
            clock.advance(3_600_000)
            assert not c.driver.snapshot_due()

    run(main())
    assert len(list((tmp_path / DIRECTORY).glob("*.checkpoint"))) == 2


def test_a_snapshot_whose_records_are_not_committed_is_left_to_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            await c.register()
            writer = c.driver.snapshots
            owed = writer.bytes_since
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lost.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "the lead was lost"))
            c.driver.committed = lambda offset: lost  # type: ignore[method-assign]
            c.driver.start_snapshot(c.controller.state.image)
            assert writer.task is not None
            await writer.task
            assert writer.bytes_since == owed > 0
            assert len(c.driver.log.snapshots) == 1, "the first one"

    run(main())


def test_leftovers_of_a_crashed_snapshot_are_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path):
            pass
        for suffix in ("-0.checkpoint.part", ".checkpoint.deleted"):
            (tmp_path / DIRECTORY / f"00000000000000000009-0000000001{suffix}").write_bytes(b"half")
        async with RunningController(tmp_path):
            names = {p.name for p in (tmp_path / DIRECTORY).iterdir()}
        assert not [name for name in names if name.endswith((".part", ".deleted"))]

    run(main())


def test_heartbeats_fence_and_release(tmp_path: Path) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with RunningController(tmp_path, clock=clock) as c:
            epoch = await c.register()
            image = c.controller.state.image
            clock.advance(9_001)
            c.controller._fence_stale()
            assert image.brokers[1].fenced
            beat = broker_heartbeat.BrokerHeartbeatRequest
            offset = c.driver.committed_offset
            reply = await c.ask(beat(broker_id=1, broker_epoch=epoch, current_metadata_offset=offset))
            assert not reply.is_fenced
            await c.ask(topics("t", partitions=2))
            reply = await c.ask(
                beat(broker_id=1, broker_epoch=epoch, current_metadata_offset=offset, want_shut_down=True)
            )
            assert (reply.should_shut_down, reply.is_fenced) == (False, False)
            assert [p.leader for p in image.topics["t"].partitions] == [-1, -1]
            reply = await c.ask(
                beat(broker_id=1, broker_epoch=epoch, current_metadata_offset=offset, want_shut_down=True)
            )
            assert reply.should_shut_down
            stale = await c.ask(beat(broker_id=1, broker_epoch=epoch - 1))
            assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH

    run(main())


def test_preferred_leaders_get_their_place_back_without_being_asked(tmp_path: Path) -> None:
    """All of them, although one decision takes only a few: the interval is not waited for again."""
    m = metadata_records

    async def main() -> None:
        timings = Timings(idle_interval_ms=0, balance_interval_ms=3_000_000)
        async with RunningController(tmp_path, timings=timings, elections_max=2) as c:
            for broker_id in (1, 2):
                await c.register(broker_id, [bytes([broker_id]) * 16])
            away = {"replicas": [1, 2], "isr": [1, 2], "leader": 2, "directories": [b"\1" * 16, b"\2" * 16]}
            partitions = [(m.PartitionRecord(partition_id=n, topic_id=b"t" * 16, **away), 2) for n in range(5)]
            c.controller._append([(m.TopicRecord(name="t", topic_id=b"t" * 16), 0), *partitions])
            c.controller._balance()
            async with asyncio.timeout(20):
                while any(part.leader != 1 for part in c.controller.state.image.topics["t"].partitions):
                    await asyncio.sleep(0.005)

    run(main())


def test_idle_controllers_write_no_ops(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path, timings=Timings(idle_interval_ms=1)) as c:
            start = c.driver.end_offset
            while c.driver.committed_offset < start + 3:
                await asyncio.sleep(0.001)

    run(main())
    assert type(batches(tmp_path)[-1].records[0]).__name__ == "NoOpRecord"


def test_quorum_and_cluster_descriptions(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            m = describe_quorum

            def request(topic: str, *indexes: int) -> Any:
                partitions = [m.RequestPartitionData(partition_index=index) for index in indexes]
                return m.DescribeQuorumRequest(topics=[m.RequestTopicData(topic_name=topic, partitions=partitions)])

            reply = await c.ask(request("__cluster_metadata", 0))
            partition = reply.topics[0].partitions[0]
            assert (partition.leader_id, partition.leader_epoch) == (1, 1)
            assert partition.high_watermark == c.driver.committed_offset
            assert [(v.replica_id, v.replica_directory_id) for v in partition.current_voters] == [(1, DIRECTORY_ID)]
            assert [(n.node_id, n.listeners[0].port) for n in reply.nodes] == [(1, 9093)]
            for wrong in (request("x", 0), request("__cluster_metadata", 1), request("__cluster_metadata", 0, 1)):
                answer = (await c.ask(wrong)).topics[0].partitions[0]
                assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            brokers = await c.ask(describe_cluster.DescribeClusterRequest(endpoint_type=1))
            assert brokers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE

    run(main())


def test_a_whole_request_that_fails_is_answered_item_by_item(tmp_path: Path) -> None:
    async def main() -> None:
        async with RunningController(tmp_path) as c:
            await c.register()
            reply = await c.ask(topics("a", "b", partitions=6000))
            assert [(t.name, t.error_code) for t in reply.topics] == [
                ("a", ErrorCode.POLICY_VIOLATION),
                ("b", ErrorCode.POLICY_VIOLATION),
            ]
            c.controller.active = False
            reply = await c.ask(topics("a"))
            assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER
            m = incremental_alter_configs
            reply = await c.ask(
                m.IncrementalAlterConfigsRequest(resources=[m.AlterConfigsResource(resource_type=2, resource_name="a")])
            )
            assert reply.responses[0].error_code == ErrorCode.NOT_CONTROLLER
            c.controller.active = True

    run(main())


def test_every_api_answers_at_every_version(tmp_path: Path) -> None:
    """An empty request is a request: each is answered in bytes of its version, whether granted or refused."""

    async def main() -> None:
        async with RunningController(tmp_path) as c:
            await c.register()
            for key, (first, last) in SERVED.items():
                for version in range(first, last + 1):
                    await c.ask(request_class(key)(), version)
            m = describe_quorum
            partitions = [m.RequestPartitionData(partition_index=0)]
            request = m.DescribeQuorumRequest(
                topics=[m.RequestTopicData(topic_name="__cluster_metadata", partitions=partitions)]
            )
            for version in (0, 1, 2):
                reply = await c.ask(request, version)
                assert (reply.error_code, len(reply.nodes)) == (0, 1 if version == 2 else 0)
            codes = [(await c.ask(describe_cluster.DescribeClusterRequest(), v)).error_code for v in (0, 1, 2)]
            mismatch = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            assert codes == [ErrorCode.INVALID_REQUEST, mismatch, mismatch]
            reply = await c.ask(describe_cluster.DescribeClusterRequest(endpoint_type=2), 1)
            assert (reply.error_code, reply.endpoint_type, reply.controller_id) == (0, 2, 1)

    run(main())


def test_a_lead_that_is_lost_in_an_append_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append may be the moment at which the quorum notices that nobody follows: what was decided is gone with it."""

    async def run() -> None:
        async with RunningController(tmp_path) as running:
            controller = running.controller
            append = controller.driver.append

            def lose(records: Any, *, atomic: bool = True) -> int:
                last = append(records, atomic=atomic)
                controller.resign()
                return last

            monkeypatch.setattr(controller.driver, "append", lose)
            monkeypatch.setattr(controller.driver, "hand_over", lambda subscriber: None)
            with pytest.raises(KafkaError) as refusal:
                controller._write_no_op()
            assert refusal.value.code is ErrorCode.NOT_CONTROLLER
            assert controller.state.image.offset == -1

    asyncio.run(run())
