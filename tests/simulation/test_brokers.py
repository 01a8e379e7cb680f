"""Whole brokers under the simulator: seeds that must pass, and broken brokers that the simulator must find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pylogd.broker.fetch import fetch_plan
from pylogd.controller.decide.partition_change import PartitionChange
from pylogd.controller.quorum.driver import QuorumDriver
from pylogd.protocol.errors import ErrorCode
from pylogd.replication.fetcher import Fetcher
from pylogd.replication.partition import Partition
from pylogd.replication.waiters import Waiters
from support.scale import scaled

from simulation.broker_simulation import Simulation, fingerprint

SEEDS = scaled(test=20, soak=500)
CHUNKS = scaled(test=5, soak=50)
#: A mutant that survives this many seeds is not found.
MUTANT_SEEDS = 60
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_cluster_survives(chunk: int) -> None:
    acknowledged = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except BaseException as failure:
            raise AssertionError(f"seed {seed} fails, replay it with: make simulate SEED={seed}") from failure
        acknowledged += len(simulation.clients.acknowledged)
    # A simulation in which nothing is ever acknowledged would prove nothing.
    assert acknowledged > SEEDS // CHUNKS * 20


def test_the_same_seed_is_the_same_run() -> None:
    """In this process, and in others that hash differently."""
    seed = 4
    here = fingerprint(seed)
    assert here != fingerprint(seed + 1)
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "simulation.broker_simulation", str(seed), "--fingerprint"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        there = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=True)
        assert there.stdout.strip() == here


# -- broken on purpose


def _acknowledge_before_followers(self: Partition) -> None:
    """The leader's own log end is the high watermark."""
    if self.is_leader:
        log = self.log
        if log.log_end_offset > log.high_watermark:
            log.high_watermark = log.log_end_offset
            self.waiters.settle(self.waiters.acks, log.high_watermark, ErrorCode.NONE)


_advance = Partition.advance


def _mark_from_fastest_follower(self: Partition) -> None:
    """Whoever is furthest ahead among the followers counts for all of them."""
    _advance(self)
    if self.is_leader and self.followers and len(self.isr) >= self.min_isr:
        fastest = max(self.followers[replica].log_end_offset for replica in self.isr if replica in self.followers)
        mark = min(fastest + 1, self.log.log_end_offset)
        if mark > self.log.high_watermark:
            self.log.high_watermark = mark
            self.waiters.settle(self.waiters.acks, mark, ErrorCode.NONE)


def _no_truncation(self: Fetcher, state: Any, epoch: int, end_offset: int) -> None:
    """A follower that learns where it differs goes on from where it is."""
    self._resume(state, state.partition.log.log_end_offset)


def _acknowledge_failures(self: Waiters, code: ErrorCode) -> None:
    """Waiters of a lost leadership hear that all went well."""
    waiting = [*self.acks]
    self.acks.clear()
    for _, _, waiter, slot in waiting:
        waiter.acknowledged(slot, ErrorCode.NONE)
    self.wake()


def _anybody_may_lead(self: PartitionChange, replica: int) -> bool:
    return self._is_acceptable(replica)


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "acknowledged before the followers have it": (Partition, "advance", _acknowledge_before_followers),
    "high watermark from the fastest follower": (Partition, "advance", _mark_from_fastest_follower),
    "no truncation on divergence": (Fetcher, "_truncate", _no_truncation),
    "divergence not noticed": (fetch_plan, "_diverging_epoch", lambda *_: None),
    "consumers see the log end": (fetch_plan, "CONSUMER", -99),
    "a follower fetches before it has flushed": (Partition, "flush_gates_acks", False),
    "min.insync.replicas ignored": (Partition, "min_isr", 1),
    "a lost leadership acknowledges": (Waiters, "fail", _acknowledge_failures),
    "anybody may lead": (PartitionChange, "_may_lead", _anybody_may_lead),
    "votes and epochs of the quorum are forgotten": (QuorumDriver, "_persist", lambda *_: None),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, value = MUTANTS[name]
    monkeypatch.setattr(target, attribute, value)
    for seed in range(MUTANT_SEEDS):
        try:
            Simulation(seed).run()
        except Exception:
            return
    pytest.fail(f"{MUTANT_SEEDS} seeds did not notice: {name}")
