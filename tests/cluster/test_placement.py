"""Replicas and leaders move: reassignment, preferred and unclean election, a failed log directory, topics that go."""

from __future__ import annotations

import signal

from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import elect_leaders
from support.loaded_cluster import Load, LoadedCluster, ask, check, start_move
from support.produce import produce_request, records
from support.rawclient import Client
from support.wait import eventually

PREFERRED, UNCLEAN = 0, 1


def elect(cluster: LoadedCluster, topic: str, kind: int) -> int:
    wanted = elect_leaders.TopicPartitions(topic=topic, partitions=[0])
    request = elect_leaders.ElectLeadersRequest(election_type=kind, topic_partitions=[wanted], timeout_ms=10_000)
    answer = ask(cluster, request, 2)
    results = answer.replica_election_results
    return answer.error_code or (results[0].partition_result[0].error_code if results else 0)


def test_a_partition_moves_to_other_brokers_under_load(cluster: LoadedCluster) -> None:
    cluster.create("moving", 1, 2)
    load = Load(cluster, "moving")
    load.wait_for(200)
    start_move(cluster, "moving", [3, 2])
    eventually(lambda: cluster.state("moving") == (3, {2, 3}) or cluster.state("moving")[1] == {2, 3}, timeout_s=60)
    load.wait_for(200)
    acknowledged = load.stop()
    assert cluster.consume("moving", len(acknowledged)) == acknowledged
    assert cluster.bytes_of(3, "moving") == cluster.bytes_of(2, "moving")
    eventually(lambda: not (cluster.nodes[1].data / "moving-0").exists())


def test_the_preferred_leader_gets_its_place_back(cluster: LoadedCluster) -> None:
    preferred = next(n for n in cluster.nodes if n != cluster.active_controller())
    cluster.create("preferred", preferred, *(n for n in cluster.nodes if n != preferred))
    load = Load(cluster, "preferred")
    load.wait_for(100)
    cluster.nodes[preferred].restart()
    cluster.wait_in_sync("preferred")
    assert cluster.state("preferred")[0] != preferred
    assert elect(cluster, "preferred", PREFERRED) == 0
    eventually(lambda: cluster.state("preferred")[0] == preferred)
    assert elect(cluster, "preferred", PREFERRED) == ErrorCode.ELECTION_NOT_NEEDED
    check(cluster, load)


def test_without_a_replica_in_sync_only_an_unclean_election_gives_a_leader(cluster: LoadedCluster) -> None:
    active = cluster.active_controller()
    first, second = (n for n in cluster.nodes if n != active)
    cluster.create("unclean", first, second)
    with Client(cluster.nodes[first].port) as client:
        answer = client.ask(produce_request("unclean", records(b"kept")), 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
    # The follower goes, the leader writes alone, and then the leader goes too.
    cluster.nodes[second].kill()
    cluster.wait_in_sync("unclean", first)
    with Client(cluster.nodes[first].port) as client:
        answer = client.ask(produce_request("unclean", records(b"lost"), acks=1), 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
        refused = client.ask(produce_request("unclean", records(b"refused")), 9).responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    # The follower comes back while the leader cannot answer it, and never joins the ISR.
    cluster.signal(first, signal.SIGSTOP)
    cluster.nodes[second].start()
    cluster.nodes[first].kill()
    eventually(lambda: cluster.state("unclean")[0] == -1)
    assert elect(cluster, "unclean", UNCLEAN) == 0
    eventually(lambda: cluster.state("unclean")[0] == second)
    cluster.nodes[first].start()
    cluster.wait_in_sync("unclean", first, second)
    assert cluster.bytes_of(first, "unclean") == cluster.bytes_of(second, "unclean")
    assert b"kept" in cluster.bytes_of(first, "unclean")
    assert b"lost" not in cluster.bytes_of(first, "unclean")


def test_a_deleted_topic_leaves_every_broker(cluster: LoadedCluster) -> None:
    cluster.create("doomed")
    load = Load(cluster, "doomed")
    load.wait_for(100)
    load.stop()
    cluster.admin.delete_topics(["doomed"])["doomed"].result(30)
    for node in cluster.nodes.values():
        eventually(lambda node=node: not list(node.data.glob("doomed-*")))


def test_a_partition_catches_up_from_nothing(cluster: LoadedCluster) -> None:
    cluster.create("backlog", 1, 2)
    load = Load(cluster, "backlog")
    load.wait_for(2000)
    start_move(cluster, "backlog", [1, 2, 3])
    eventually(lambda: cluster.state("backlog")[1] == {1, 2, 3}, timeout_s=60)
    check(cluster, load)
