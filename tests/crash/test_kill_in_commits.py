"""kill -9 in the middle of offset commits: what was acknowledged is there after the restart, and nothing that was never
sent."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from pylogd.protocol.messages import find_coordinator, offset_commit, offset_fetch
from support.admin import Admin
from support.daemon import Daemon
from support.rawclient import Client, Closed
from support.scale import scaled
from support.wait import eventually

GROUPS = 20
COMMITTERS = 4


class Committer:
    """Commits rising offsets for its groups until the connection breaks."""

    def __init__(self, port: int, groups: list[str], start: int) -> None:
        self.client = Client(port)
        self.groups = groups
        self.offset = start
        self.sent: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.offset += 1
                for group in self.groups:
                    self.sent[group] = self.offset
                    if self.client.ask(commit(group, self.offset), 8).topics[0].partitions[0].error_code == 0:
                        self.acknowledged[group] = self.offset
        except (OSError, Closed):
            self.client.socket.close()


def commit(group: str, offset: int) -> offset_commit.OffsetCommitRequest:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])


def committed(port: int, groups: list[str]) -> dict[str, int]:
    topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    wanted = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[topic]) for group in groups]

    def fetched() -> dict[str, int] | None:
        with Client(port) as client:
            answer = client.ask(offset_fetch.OffsetFetchRequest(groups=wanted), 8)
        if any(group.error_code for group in answer.groups):
            return None
        return {group.group_id: group.topics[0].partitions[0].committed_offset for group in answer.groups}

    return eventually(fetched)


def test_acknowledged_commits_survive(new_broker: Callable[..., Daemon]) -> None:
    chance = random.Random(3)
    broker = new_broker({"offsets.topic.num.partitions": "3"})
    Admin(broker.bootstrap).create("t")
    groups = [f"g{number}" for number in range(GROUPS)]

    def coordinated() -> bool:
        with Client(broker.port) as client:
            answer = client.ask(find_coordinator.FindCoordinatorRequest(coordinator_keys=groups), 4)
        return all(each.error_code == 0 for each in answer.coordinators)

    eventually(coordinated)
    assert committed(broker.port, groups) == dict.fromkeys(groups, -1)
    start = 0
    for _ in range(scaled(test=4, soak=40)):
        committers = [Committer(broker.port, groups[n::COMMITTERS], start) for n in range(COMMITTERS)]
        enough = chance.randrange(20, 200)
        eventually(lambda: min(each.offset for each in committers) >= start + enough)  # noqa: B023
        broker.kill()
        for each in committers:
            each.thread.join(30)
        broker.start()
        found = committed(broker.port, groups)
        for each in committers:
            for group in each.groups:
                assert each.acknowledged[group] <= found[group] <= each.sent[group]
        start = max(each.offset for each in committers)
