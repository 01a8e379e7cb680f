"""Controllers that elect one of them: what survives a failover, what is discarded, who may vote."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pylogd.controller.quorum.metadata_log import DIRECTORY, MetadataLogConfig
from pylogd.metadata import feature_levels
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import (
    add_raft_voter,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_topics,
    describe_quorum,
    remove_raft_voter,
    update_features,
    vote,
)
from support.controllers import CLUSTER_ID
from support.quorums import Member, Quorum, directory_id


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def topic(name: str) -> Any:
    m = create_topics
    return m.CreateTopicsRequest(topics=[m.CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


async def register(quorum: Quorum, member: Member) -> None:
    m = broker_registration
    reply = await quorum.ask(
        member,
        m.BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes(range(16)),
            listeners=[m.Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
            features=[
                m.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[b"d" * 16],
        ),
    )
    assert reply.error_code == 0
    beat = broker_heartbeat.BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=reply.broker_epoch, current_metadata_offset=reply.broker_epoch
    )
    assert not (await quorum.ask(member, beat)).is_fenced


def topics_of(member: Member) -> set[str]:
    return set(member.controller.state.image.topics)


def test_a_voter_with_a_full_disk_catches_up_when_it_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path)
        for node_id in quorum.ids:
            await quorum.start(node_id)
        leader = await quorum.active()
        await register(quorum, leader)
        full = next(member for member in quorum.running.values() if member is not leader)
        log = full.driver.log.log
        write, refused = os.pwrite, []

        def limited(fd: int, *args: Any) -> int:
            if fd == log.active.file.fd:
                refused.append(fd)
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, *args)

        monkeypatch.setattr(os, "pwrite", limited)
        assert (await quorum.ask(leader, topic("meanwhile"))).topics[0].error_code == 0
        await eventually(lambda: len(refused) > 2)
        assert "meanwhile" not in topics_of(full)
        monkeypatch.undo()
        await eventually(lambda: "meanwhile" in topics_of(full))
        assert not quorum.failures
        await quorum.close()

    run(main())


@pytest.mark.parametrize("dynamic", [False, True])
def test_three_controllers_elect_one_and_the_others_take_over(tmp_path: Path, dynamic: bool) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path, dynamic=dynamic)
        for node_id in quorum.ids:
            await quorum.start(node_id)
        names: set[str] = set()
        told: dict[int, int | None] = {}
        for turn in range(3):
            leader = await quorum.active()
            if turn == 0:
                await register(quorum, leader)
            name = f"topic-{turn}"
            reply = await quorum.ask(leader, topic(name))
            assert reply.topics[0].error_code == 0
            names.add(name)
            gone, epoch = leader.driver.node_id, leader.driver.epoch
            told.clear()
            for member in quorum.running.values():
                driver = member.driver
                driver.leader_listeners[:] = [lambda driver=driver: told.update({driver.node_id: driver.leader_id})]  # type: ignore[misc]
            # The others have all of it before it is their turn, or they would not be elected.
            await quorum.stop(gone)
            heir = await quorum.active()
            assert heir.driver.epoch > epoch
            assert topics_of(heir) == names
            for id_ in quorum.running:
                await eventually(lambda id_=id_, heir=heir: told.get(id_) == heir.driver.node_id)
            await quorum.start(gone)
            await eventually(lambda gone=gone: topics_of(quorum.running[gone]) == names)
        await quorum.close()
        assert not quorum.failures

    run(main())


def test_a_leader_that_was_cut_off_forgets_what_it_could_not_commit(tmp_path: Path) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path)
        for node_id in quorum.ids:
            await quorum.start(node_id)
        old = await quorum.active()
        await register(quorum, old)
        await quorum.ask(old, topic("kept"))
        quorum.cut_off = {old.driver.node_id}
        lost = asyncio.ensure_future(quorum.ask(old, topic("lost")))
        await eventually(lambda: "lost" in topics_of(old))
        new = await quorum.active()
        await quorum.ask(new, topic("new"))
        reply = await lost
        assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER, "it resigned when nobody fetched any more"
        await eventually(lambda: topics_of(old) == {"kept"})
        quorum.cut_off = set()
        await eventually(lambda: topics_of(old) == topics_of(new))
        assert "lost" not in topics_of(new)
        reply = await quorum.ask(old, topic("x"))
        assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        await quorum.close()
        assert not quorum.failures

    run(main())


def test_a_late_controller_starts_from_the_snapshot(tmp_path: Path) -> None:
    config = MetadataLogConfig(
        segment_bytes=4096, snapshot_interval_bytes=4000, max_retention_bytes=12_000, snapshot_interval_ms=0
    )

    async def main() -> None:
        quorum = Quorum(tmp_path, config=config)
        await quorum.start(1)
        await quorum.start(2)
        leader = await quorum.active()
        await register(quorum, leader)
        for number in range(150):
            await quorum.ask(leader, topic(f"t{number}"))
        await eventually(lambda: leader.driver.log.log.log_start_offset > 0)
        late = await quorum.start(3)
        await eventually(lambda: topics_of(late) == topics_of(leader))
        assert late.driver.log.log.log_start_offset > 0, "it fetched a snapshot, not the log from the beginning"
        await quorum.stop(3)
        again = await quorum.start(3)
        await eventually(lambda: topics_of(again) == topics_of(leader))
        await quorum.close()
        assert not quorum.failures
        assert not list((tmp_path / "node3" / DIRECTORY).glob("*.part"))

    run(main())


def test_voters_come_and_go(tmp_path: Path) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path, 1, dynamic=True)
        first = await quorum.start(1)
        assert first.controller.active, "alone it is active at once"
        await quorum.start(2)
        await eventually(lambda: quorum.running[2].driver.committed_offset > 0)
        m = add_raft_voter
        listener = m.Listener(name="CONTROLLER", host="localhost", port=2)
        request = m.AddRaftVoterRequest(CLUSTER_ID, 1000, 2, directory_id(2), [listener])
        while (reply := await quorum.ask(first, request)).error_code == ErrorCode.REQUEST_TIMED_OUT:
            await asyncio.sleep(0.01)  # it lags behind until it has fetched the end of the log
        assert (reply.error_code, reply.error_message) == (0, None)
        assert first.driver.voter_ids == (1, 2)
        again = await quorum.ask(first, request)
        assert again.error_code == ErrorCode.DUPLICATE_VOTER
        await quorum.start(3, auto_join=True)
        await eventually(lambda: first.driver.voter_ids == (1, 2, 3))
        remove = remove_raft_voter.RemoveRaftVoterRequest
        await eventually(lambda: first.driver.committed_offset == first.driver.end_offset)  # one change at a time
        wrong = await quorum.ask(first, remove(CLUSTER_ID, 2, directory_id(9)))
        assert wrong.error_code == ErrorCode.VOTER_NOT_FOUND
        reply = await quorum.ask(first, remove(CLUSTER_ID, 1, directory_id(1)))
        assert reply.error_code == 0
        heir = await quorum.active()
        assert heir.driver.node_id in (2, 3)
        assert heir.driver.voter_ids == (2, 3)
        await quorum.close()
        assert not quorum.failures

    run(main())


def test_a_voter_that_moves_tells_the_leader(tmp_path: Path) -> None:
    """UpdateRaftVoter: the voters in the log have its new address, and it is found there when it is needed."""

    async def main() -> None:
        quorum = Quorum(tmp_path, dynamic=True)
        for node_id in quorum.ids:
            await quorum.start(node_id)
        active = await quorum.active()
        moved, other = (node_id for node_id in quorum.ids if node_id != active.driver.node_id)
        await quorum.stop(moved)
        await quorum.start(moved, port=40 + moved)
        voters = active.driver.node.voters
        await eventually(lambda: active.driver.node.voters.node(moved, "CONTROLLER").port == 40 + moved)
        assert voters.node(moved, "CONTROLLER").port == moved
        await eventually(lambda: quorum.running[other].driver.committed_offset == active.driver.end_offset)
        # With the leader gone, neither of the two is elected without being reached by the other.
        await quorum.stop(active.driver.node_id)
        heir = await quorum.active()
        assert heir.driver.node_id in (moved, other)
        await quorum.close()
        assert not quorum.failures

    run(main())


def test_a_wiped_voter_has_no_vote(tmp_path: Path) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path, dynamic=True)
        await quorum.start(1)
        m = vote
        partition = m.RequestPartitionData(
            replica_epoch=7,
            replica_id=2,
            replica_directory_id=directory_id(2),
            voter_directory_id=b"the old disk id!",
            last_offset_epoch=6,
            last_offset=100,
        )
        topics = [m.RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])]
        reply = await quorum.ask(quorum.running[1], m.VoteRequest(CLUSTER_ID, 1, topics))
        answer = reply.topics[0].partitions[0]
        assert (answer.error_code, answer.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
        partition.voter_directory_id = directory_id(1)
        reply = await quorum.ask(quorum.running[1], m.VoteRequest(CLUSTER_ID, 1, topics))
        assert reply.topics[0].partitions[0].vote_granted
        foreign = await quorum.ask(quorum.running[1], m.VoteRequest("another cluster", 1, topics))
        assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        await quorum.close()

    run(main())


def test_only_the_leader_describes_the_quorum(tmp_path: Path) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path)
        for node_id in quorum.ids:
            await quorum.start(node_id)
        leader = await quorum.active()
        m = describe_quorum
        wanted = m.RequestTopicData(topic_name="__cluster_metadata", partitions=[m.RequestPartitionData()])
        request = m.DescribeQuorumRequest(topics=[wanted])
        for member in quorum.running.values():
            answer = (await quorum.ask(member, request)).topics[0].partitions[0]
            if member is leader:
                await eventually(lambda: len(leader.driver.replicas()[0]) == 3)  # type: ignore[index]
                assert answer.leader_id == leader.driver.node_id
                assert [state.replica_id for state in answer.current_voters] == [1, 2, 3]
            else:
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await quorum.close()

    run(main())


def test_a_static_quorum_becomes_a_dynamic_one(tmp_path: Path) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path)
        for node_id in quorum.ids:
            await quorum.start(node_id)
        leader = await quorum.active()
        m = update_features
        update = m.FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        for node_id in quorum.ids:
            registration = controller_registration.ControllerRegistrationRequest(
                controller_id=node_id,
                features=[
                    controller_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
                ],
            )
            assert (await quorum.ask(leader, registration)).error_code == 0
        refused = await quorum.ask(leader, m.UpdateFeaturesRequest(feature_updates=[update]))
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION, "the voters have not told their directories yet"
        async with asyncio.timeout(20):
            while (await quorum.ask(leader, m.UpdateFeaturesRequest(feature_updates=[update]))).error_code:
                await asyncio.sleep(0.05)
        for member in quorum.running.values():
            await eventually(lambda member=member: member.driver.kraft_version == 1)
            keys = [(voter.voter_id, voter.voter_directory_id) for voter in member.driver.voters.voters]
            assert keys == [(node_id, directory_id(node_id)) for node_id in quorum.ids]
        reply = await quorum.ask(
            leader, remove_raft_voter.RemoveRaftVoterRequest(CLUSTER_ID, 1 + leader.driver.node_id % 3, bytes(16))
        )
        assert reply.error_code == ErrorCode.INVALID_REQUEST
        gone = leader.driver.node_id
        await quorum.stop(gone)
        await quorum.active()
        await quorum.start(gone)
        await eventually(lambda: quorum.running[gone].driver.kraft_version == 1)
        await quorum.close()
        assert not quorum.failures

    run(main())


def test_voters_without_pre_votes_are_asked_for_their_vote_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        quorum = Quorum(tmp_path)
        quorum.without_pre_vote = True
        for node_id in quorum.ids:
            await quorum.start(node_id)
        await quorum.active()
        await quorum.close()

    run(main())
