"""Transactions under the simulator: seeds that must pass, and broken coordinators, leaders and logs that it must
find."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.coordinators.transactions.markers import Markers
from pylogd.coordinators.transactions.transactions import TransactionsState
from pylogd.protocol.errors import ErrorCode
from pylogd.storage.log.log import Log
from support.scale import scaled

from simulation.transaction_simulation import TransactionSimulation

SEEDS = scaled(test=6, soak=500)
CHUNKS = scaled(test=3, soak=50)
#: A mutant that survives this many seeds is not found.
MUTANT_SEEDS = 12


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_transactions_survive(chunk: int) -> None:
    committed = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        simulation = TransactionSimulation(seed)
        try:
            simulation.run()
        except BaseException as failure:
            replay = f"cd tests && python -m simulation.transaction_simulation {seed}"
            raise AssertionError(f"seed {seed} fails, replay it with: {replay}") from failure
        committed += sum(len(producer.committed) for producer in simulation.clients.producers)
    assert committed > SEEDS // CHUNKS * 20


# -- broken on purpose


_answered = Markers._answered


def _any_answer_will_do(self: Markers, ending: Any, partition: Any, code: ErrorCode) -> None:
    """A marker that was refused counts as written."""
    _answered(self, ending, partition, ErrorCode.NONE)


def _nothing_is_resumed(self: TransactionsState, effects: Any) -> None:
    """A new coordinator forgets what the last one decided."""
    self._arm(effects)


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a refused marker counts": (Markers, "_answered", _any_answer_will_do),
    "decisions are forgotten by a new coordinator": (TransactionsState, "loaded", _nothing_is_resumed),
    "nothing times out": (TransactionsState, "abort_timed_out", lambda self, effects: None),
    "consumers read what is undecided": (Log, "last_stable_offset", Log.high_watermark),
    "aborted transactions are not told": (Log, "aborted_transactions", lambda *_: []),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, value = MUTANTS[name]
    monkeypatch.setattr(target, attribute, value)
    for seed in range(MUTANT_SEEDS):
        try:
            TransactionSimulation(seed).run()
        except Exception:
            return
    pytest.fail(f"{MUTANT_SEEDS} seeds did not notice: {name}")
