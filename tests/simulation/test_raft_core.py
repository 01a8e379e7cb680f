"""The Raft core under the simulator: seeds that must pass, and broken cores that the simulator must find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pylogd.controller.raft import fetching, log_view, requests
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.majority import majority_offset
from pylogd.controller.raft.output import HardState, RaftError
from pylogd.controller.raft.raft_node import RaftNode
from support.scale import scaled

from simulation.raft_disk import Disk
from simulation.raft_invariants import Violation
from simulation.raft_simulation import Cluster

SEEDS = scaled(test=300, soak=10_000)
CHUNKS = 10
#: A mutant that survives this many seeds is not found.
MUTANT_SEEDS = 400


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_quorum_survives(chunk: int) -> None:
    committed = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        try:
            committed += len(Cluster(seed).run().invariants.committed)
        except Exception as failure:
            replay = f"make simulate SIMULATION=raft SEED={seed}"
            raise AssertionError(f"seed {seed} fails, replay it with: {replay}") from failure
    # A simulation in which nothing is ever committed would prove nothing.
    assert committed > SEEDS // CHUNKS * 5


def test_the_same_seed_is_the_same_run() -> None:
    def trace(seed: int) -> list[str]:
        lines: list[str] = []
        Cluster(seed, log=lines.append).run()
        return lines

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)


class ForgetfulCluster(Cluster):
    """The vote is not written down."""

    def persist(self, disk: Disk, state: HardState) -> None:
        super().persist(disk, state._replace(voted=None))


class SloppyNode(RaftNode):
    """Says it has what is written, not what is flushed."""

    @property
    def durable(self) -> bool:
        self._flushed_offset = self.log.end_offset
        return True


@contextmanager
def _patched(target: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, value)
        yield


def _commit_without_majority(self: Leader) -> bool:
    reached = max(voter.end_offset for voter in self.voters.values())
    if reached <= self.epoch_start_offset or (self.high_watermark or 0) >= reached:
        return False
    self.high_watermark = reached
    return True


def _commit_with_lagging_replica(self: Leader) -> bool:
    """One voter less than a majority is enough."""
    ordered = sorted((voter.end_offset for voter in self.voters.values()), reverse=True)
    reached = ordered[max(len(ordered) // 2 - 1, 0)]
    if reached <= self.epoch_start_offset or (self.high_watermark or 0) >= reached:
        return False
    self.high_watermark = reached
    return True


def _commit_of_older_epochs(self: Leader) -> bool:
    reached = majority_offset(voter.end_offset for voter in self.voters.values())
    if reached < 0 or (self.high_watermark is not None and reached <= self.high_watermark):
        return False
    self.high_watermark = reached
    return True


def _everything_matches(log: Any, offset: int, epoch: int) -> log_view.Match:
    if offset >= log.start_offset and offset <= log.end_offset:
        return log_view.Match()
    return log_view.match(log, offset, epoch)


def _unbounded_high_watermark(self: RaftNode, offset: int) -> None:
    if self.high_watermark is None or offset > self.high_watermark:
        self.high_watermark = self._out.high_watermark = offset


MUTANTS: dict[str, Any] = {
    "vote not persisted": lambda seed: ForgetfulCluster(seed).run(),
    "acknowledged before it is flushed": lambda seed: Cluster(seed, SloppyNode).run(),
}


def _mutant(name: str, target: Any, attribute: str, value: Any) -> None:
    def run(seed: int) -> None:
        with _patched(target, attribute, value):
            Cluster(seed).run()

    MUTANTS[name] = run


_mutant("committed before a majority has it", Leader, "_advance", _commit_without_majority)
_mutant("high watermark from a lagging replica", Leader, "_advance", _commit_with_lagging_replica)
_mutant("records of older epochs committed by counting", Leader, "_advance", _commit_of_older_epochs)
_mutant("divergence not noticed", fetching, "match", _everything_matches)
_mutant("no truncation on divergence", RaftNode, "truncate", lambda self, offset: None)
_mutant("a high watermark ahead of the log", RaftNode, "advance_high_watermark", _unbounded_high_watermark)
_mutant("any candidate's log is long enough", requests, "_as_long_as_ours", lambda *_: True)
_mutant("a wiped voter votes", requests, "_means_us", lambda *_: True)


@pytest.mark.parametrize("name", MUTANTS)
def test_simulator_finds(name: str) -> None:
    for seed in range(MUTANT_SEEDS):
        try:
            MUTANTS[name](seed)
        except (Violation, RaftError, AssertionError):
            return
    pytest.fail(f"{MUTANT_SEEDS} seeds did not notice: {name}")
