"""Followers replicate over real sockets: same bytes, watermarks, divergence, in-sync replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from support.produce import fetch_request, produce_request, records, values
from support.replicanode import ReplicaCluster
from support.wait import eventually


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicaCluster]:
    made = ReplicaCluster(tmp_path, 3, replica_lag_time_max_ms="1000", replica_fetch_wait_max_ms="200")
    yield made
    made.close()


def produce(cluster: ReplicaCluster, leader: int, topic: str, *payloads: bytes, acks: int = -1) -> Any:
    with cluster.nodes[leader].client() as client:
        answer = None
        for payload in payloads:
            response = client.ask(produce_request(topic, records(payload), acks=acks), 9)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == 0, ErrorCode(answer.error_code)
        return answer


def test_followers_hold_the_same_bytes_and_learn_the_watermark(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", *(b"v%d" % n * 100 for n in range(50)))
    cluster.wait_replicated("t", 50)
    leader = cluster.contents(1, "t")
    assert len(leader) > 10_000
    assert cluster.contents(2, "t") == leader
    assert cluster.contents(3, "t") == leader
    assert cluster.log(1, "t").high_watermark == 50
    for broker_id in (2, 3):
        eventually(lambda broker_id=broker_id: cluster.log(broker_id, "t").high_watermark == 50)
        assert cluster.log(broker_id, "t").epochs.entries() == [(0, 0)]


def test_acks_all_waits_for_every_replica_in_sync(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a")
    assert cluster.log(2, "t").log_end_offset == 1
    assert cluster.log(3, "t").log_end_offset == 1


def test_a_diverged_follower_is_cut_to_the_leaders_history(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b")
    cluster.wait_replicated("t", 2)
    # Broker 3 leads alone for a moment and writes what nobody else gets, while 1 and 2 think of another leader.
    apart = cluster.nodes[3]
    apart.call(apart.fetchers.remove, (cluster.nodes[3].partition("t").topic_id, 0))
    apart.call(apart.partition("t").become_leader, 1, (3,), (3,), 1)
    produce(cluster, 3, "t", b"lost 1", b"lost 2", b"lost 3", acks=1)
    cluster.place("t", leader=1, isr=(1, 2), epoch=2, partition_epoch=2)
    produce(cluster, 1, "t", b"kept")
    cluster.wait_replicated("t", 3)
    assert cluster.contents(3, "t") == cluster.contents(1, "t")
    assert cluster.log(3, "t").epochs.entries() == cluster.log(1, "t").epochs.entries() == [(0, 0), (2, 2)]


def test_a_follower_that_stops_leaves_the_isr_and_comes_back(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a")
    leader, silent = cluster.nodes[1], cluster.nodes[3]
    silent.call(silent.fetchers.remove, (silent.partition("t").topic_id, 0))
    produce(cluster, 1, "t", b"b")  # waits until broker 3 is out
    assert leader.partition("t").isr == (1, 2)
    asked = leader.channel.asked[0].topics[0].partitions[0]
    assert [(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs] == [(1, 101), (2, 102)]
    silent.call(silent.fetchers.update, silent.partition("t"))
    eventually(lambda: leader.partition("t").isr == (1, 2, 3))
    assert cluster.log(3, "t").log_end_offset == 2


def test_a_fenced_broker_does_not_join_the_isr(cluster: ReplicaCluster) -> None:
    cluster.fence(3)
    cluster.place("t", leader=1, isr=(1, 2), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b")
    cluster.wait_replicated("t", 2)
    leader = cluster.nodes[1]
    assert leader.partition("t").isr == (1, 2)
    assert leader.channel.asked == []
    cluster.fence()
    produce(cluster, 1, "t", b"c")
    eventually(lambda: leader.partition("t").isr == (1, 2, 3))


def test_a_refused_change_is_given_up_and_proposed_again(cluster: ReplicaCluster) -> None:
    leader = cluster.nodes[1]
    leader.channel.refusals.append(ErrorCode.INELIGIBLE_REPLICA)
    cluster.place("t", leader=1, isr=(1, 2), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a")
    eventually(lambda: leader.partition("t").isr == (1, 2, 3))
    assert len(leader.channel.asked) == 2


def test_a_refusal_that_only_metadata_can_resolve_stays_pending(cluster: ReplicaCluster) -> None:
    leader = cluster.nodes[1]
    leader.channel.refusals.append(ErrorCode.INVALID_UPDATE_VERSION)
    cluster.place("t", leader=1, isr=(1, 2), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b", b"c")
    partition = leader.partition("t")
    eventually(lambda: partition.maximal_isr == (1, 2, 3))
    produce(cluster, 1, "t", b"d")
    assert partition.isr == (1, 2)
    assert len(leader.channel.asked) == 1
    cluster.place("t", leader=1, isr=(1, 2), epoch=0, partition_epoch=5)
    eventually(lambda: partition.isr == (1, 2, 3))


def test_a_follower_behind_the_leaders_start_begins_anew(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b")
    late = cluster.nodes[3]
    late.call(late.fetchers.remove, (late.partition("t").topic_id, 0))
    cluster.place("t", leader=1, isr=(1, 2), epoch=1, partition_epoch=1)
    late.call(late.fetchers.remove, (late.partition("t").topic_id, 0))
    produce(cluster, 1, "t", b"c", b"d", b"e", b"f")
    cluster.nodes[1].call(cluster.log(1, "t").delete_records_before, 5)
    late.call(late.fetchers.update, late.partition("t"))
    eventually(lambda: (cluster.log(3, "t").log_start_offset, cluster.log(3, "t").log_end_offset) == (5, 6))
    eventually(lambda: cluster.log(2, "t").log_start_offset == 5)


def test_a_new_leader_takes_over_without_losing_anything(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", *(b"%d" % n for n in range(20)))
    cluster.place("t", leader=2, isr=(2, 3), epoch=1, partition_epoch=1)
    produce(cluster, 2, "t", b"after")
    cluster.wait_replicated("t", 21)
    assert cluster.contents(1, "t") == cluster.contents(2, "t") == cluster.contents(3, "t")
    with cluster.nodes[2].client() as client:
        found = client.ask(fetch_request("t", 0), 12).responses[0].partitions[0]
        assert values(found.records) == [b"%d" % n for n in range(20)] + [b"after"]
    eventually(lambda: cluster.nodes[2].partition("t").isr == (2, 3, 1))


def test_durable_acknowledgements_mean_flushed_everywhere(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0, flush_messages=1)
    produce(cluster, 1, "t", b"a", b"b")
    for broker_id in (1, 2, 3):
        assert cluster.log(broker_id, "t").flushed_offset == 2


def test_a_consumer_may_read_from_a_follower_up_to_its_watermark(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b")
    eventually(lambda: cluster.log(2, "t").high_watermark == 2)
    with cluster.nodes[2].client() as client:
        found = client.ask(fetch_request("t", 0), 12).responses[0].partitions[0]
        assert values(found.records) == [b"a", b"b"]
        assert client.ask(produce_request("t", records(b"x")), 9).responses[0].partition_responses[0].error_code == int(
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )


def test_a_leader_that_vanishes_is_found_again(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a")
    server = cluster.nodes[1].server
    cluster.nodes[1].call(lambda: [connection.close() for connection in list(server.connections)])
    produce(cluster, 1, "t", b"b")
    cluster.wait_replicated("t", 2)


def test_an_idle_follower_waits_instead_of_asking_in_a_loop(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a")
    eventually(lambda: cluster.log(2, "t").high_watermark == 1)
    sessions = cluster.nodes[1].sessions
    before = {session.id: session.epoch for session in sessions._sessions.values()}
    assert len(before) == 2
    time.sleep(0.5)  # two or three waits of 200 ms
    for session_id, epoch in before.items():
        assert 1 <= sessions.get(session_id).epoch - epoch <= 4


def test_deleted_records_are_reported_once_they_are_gone_everywhere(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b", b"c")
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])],
        timeout_ms=20_000,
    )
    with cluster.nodes[1].client() as client:
        answer = client.ask(request, 2).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert [cluster.log(n, "t").log_start_offset for n in (1, 2, 3)] == [2, 2, 2]


def test_a_deletion_that_a_living_follower_does_not_confirm_times_out(cluster: ReplicaCluster) -> None:
    cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
    produce(cluster, 1, "t", b"a", b"b")
    silent = cluster.nodes[3]
    silent.call(silent.fetchers.remove, (silent.partition("t").topic_id, 0))
    part = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=300)
    with cluster.nodes[1].client() as client:
        assert client.ask(request, 2).topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = ReplicaCluster(tmp_path, 3, replica_selector_class=selector, replica_fetch_wait_max_ms="50")
    try:
        for node in cluster.nodes.values():
            for broker_id, rack in ((1, "x"), (2, "y"), (3, "z")):
                node.image.brokers[broker_id].rack = rack
        cluster.place("t", leader=1, isr=(1, 2, 3), epoch=0, partition_epoch=0)
        produce(cluster, 1, "t", b"a")
        eventually(lambda: cluster.log(3, "t").high_watermark == 1)

        def fetch(broker_id: int, rack: str) -> Any:
            request = fetch_request("t", 0)
            request.rack_id = rack
            with cluster.nodes[broker_id].client() as client:
                return client.ask(request, 12).responses[0].partitions[0]

        assert fetch(1, "z").preferred_read_replica == 3
        assert values(fetch(1, "z").records) == []
        assert values(fetch(3, "z").records) == [b"a"]
        assert (fetch(1, "x").preferred_read_replica, values(fetch(1, "x").records)) == (-1, [b"a"])
        assert fetch(1, "elsewhere").preferred_read_replica == -1
    finally:
        cluster.close()
