"""One quorum of two Apache Kafka controllers and one of ours: it follows, votes, leads and hands over, and all three
hold the same log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.protocol.messages import describe_quorum as m
from support.broker import Pylogd
from support.daemon import HOST, Daemon
from support.kafka import ApacheKafka
from support.ports import free_ports
from support.rawclient import Client, Closed
from support.wait import eventually

pytestmark = pytest.mark.jvm
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
OURS = 3


class _Member(Daemon):
    """A controller of the static quorum at these ports. Formatted for kraft.version 0: nothing but meta.properties."""

    voters: str

    @property
    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "listeners": f"CONTROLLER://{HOST}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.voters,
            "log.dirs": str(self.data),
        }

    def prepare(self) -> None:
        self.write_properties()
        if not (self.data / "meta.properties").exists():
            self.data.mkdir(parents=True)
            directory_id = f"{self.node_id}" * 21 + "A"
            text = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={self.node_id}\ndirectory.id={directory_id}\n"
            (self.data / "meta.properties").write_text(text)

    def wait_until_ready(self) -> None:
        eventually(lambda: self.assert_alive() or self.described() is not None, timeout_s=120)

    def described(self) -> Any:
        """What it knows of the quorum's partition; None while it does not answer."""
        wanted = m.RequestTopicData(topic_name="__cluster_metadata", partitions=[m.RequestPartitionData()])
        try:
            with Client(self.controller_port) as client:
                return client.ask(m.DescribeQuorumRequest(topics=[wanted])).topics[0].partitions[0]
        except (OSError, Closed):
            return None

    def leads(self) -> bool:
        answer = self.described()
        return answer is not None and answer.error_code == 0 and answer.high_watermark > 0


class KafkaMember(_Member, ApacheKafka):
    pass


class PylogdMember(_Member, Pylogd):
    pass


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[dict[int, _Member]]:
    members: dict[int, _Member] = {}
    ports = free_ports(3)
    for node_id, port in enumerate(ports, 1):
        kind = PylogdMember if node_id == OURS else KafkaMember
        members[node_id] = kind(tmp_path / f"node{node_id}", {}, node_id)
        members[node_id].controller_port = port
    voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in enumerate(ports, 1))
    for member in members.values():
        member.voters = voters
    yield members
    for member in members.values():
        member.kill()


def _all_caught_up(leader: _Member, voters: int) -> bool:
    answer = leader.described()
    if answer is None or answer.error_code:
        return False
    behind = [state for state in answer.current_voters if state.log_end_offset < answer.high_watermark]
    return len(answer.current_voters) == voters and not behind


def test_a_quorum_of_both_makes(quorum: dict[int, _Member]) -> None:
    first, second, ours = quorum[1], quorum[2], quorum[OURS]
    for member in (first, second):
        member.start()
    jvm_leader = eventually(lambda: next((x for x in (first, second) if x.leads()), None), timeout_s=60)
    ours.start()
    eventually(lambda: _all_caught_up(jvm_leader, 3), timeout_s=60)

    # With one JVM controller left nobody is elected without our vote, and sooner or later we are elected ourselves.
    other = second if jvm_leader is first else first
    jvm_leader.kill()
    eventually(lambda: other.leads() or ours.leads(), timeout_s=60)
    while not ours.leads():
        other.kill()
        other.start()
        eventually(lambda: other.leads() or ours.leads(), timeout_s=60)
    jvm_leader.start()
    eventually(lambda: _all_caught_up(ours, 3), timeout_s=60)

    ours.stop()
    eventually(lambda: first.leads() or second.leads(), timeout_s=60)
    ours.start()
    heir = first if first.leads() else second
    eventually(lambda: _all_caught_up(heir, 3), timeout_s=60)
    for member in quorum.values():
        member.kill()
    logs = [(member.data / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes() for member in quorum.values()]
    shared = min(map(len, logs))
    assert shared > 1000
    assert len({log[:shared] for log in logs}) == 1, "the same bytes, whoever wrote them"
