"""Groups of both protocols and transactions under the simulator: seeds that must pass, and broken coordinators that it
must find."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.coordinators.groups.classic.classic_group import ClassicGroup
from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.groups import GroupState
from pylogd.coordinators.groups.offsets import Offsets
from pylogd.coordinators.shard.shard import Shard
from pylogd.coordinators.shard.shards import Shards
from support.scale import scaled

from simulation.group_simulation import GroupSimulation

SEEDS = scaled(test=4, soak=500)
CHUNKS = scaled(test=2, soak=50)
#: A mutant that survives this many seeds is not found.
MUTANT_SEEDS = 12


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_groups_survive(chunk: int) -> None:
    joins = commits = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        simulation = GroupSimulation(seed)
        try:
            simulation.run()
        except BaseException as failure:
            replay = f"cd tests && python -m simulation.group_simulation {seed}"
            raise AssertionError(f"seed {seed} fails, replay it with: {replay}") from failure
        joins += sum(book.joins for book in simulation.clients.books)
        commits += sum(len(book.commits) for book in simulation.clients.books)
    assert joins > SEEDS // CHUNKS * 10
    assert commits > SEEDS // CHUNKS * 50


# -- broken on purpose


def _answer_at_once(self: Shard[Any], offset: int, replies: list[tuple[Any, Any]]) -> None:
    """Replies leave before the followers have what they speak of."""
    self._resolve(replies)


_leadership = Shards._leadership


def _keep_what_was_lost(self: Shards[Any], partition: Any, epoch: int | None) -> None:
    """Whoever leads again goes on with what it knew, whatever became of it in the log meanwhile."""
    shard = self.by_partition.get(partition.index)
    if epoch is not None and shard is not None and shard.partition is partition and shard.active:
        shard.new_epoch(epoch)
    elif epoch is not None:
        _leadership(self, partition, epoch)


def _anybody_commits(self: ClassicGroup, *_: Any, **__: Any) -> None:
    """Also members of generations that are over."""


def _expect_nobody(self: GroupState, effects: Any) -> None:
    """A new coordinator does not watch the members that it finds."""


#: The first ones are quickly found.
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "replies before what they speak of is replicated": (Shard, "_wait_for", _answer_at_once),
    "partitions are given before they are given up": (ConsumerGroup, "has_owner", lambda *_: False),
    "state outlives leadership": (Shards, "_leadership", _keep_what_was_lost),
    "anybody commits": (ClassicGroup, "check_offset_commit", _anybody_commits),
    "a new coordinator expects nobody": (GroupState, "loaded", _expect_nobody),
    "pending offsets are shown": (Offsets, "is_pending", lambda *_: False),
}


@pytest.mark.parametrize("name", list(MUTANTS)[: scaled(test=3, soak=len(MUTANTS))])
def test_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, value = MUTANTS[name]
    monkeypatch.setattr(target, attribute, value)
    for seed in range(MUTANT_SEEDS):
        try:
            GroupSimulation(seed).run()
        except Exception:
            return
    pytest.fail(f"{MUTANT_SEEDS} seeds did not notice: {name}")
