"""The cache of fetch sessions: who gets a place, who loses it."""

from __future__ import annotations

import random

import pytest
from pylogd.broker.fetch.fetch_sessions import EVICTION_MS, FetchSessions, FetchTarget, next_epoch
from pylogd.protocol.messages.fetch import FetchPartition
from pylogd.runtime.clock import ManualClock


def targets(count: int) -> list[FetchTarget]:
    return [FetchTarget("t", bytes(16), False, FetchPartition(partition=n)) for n in range(count)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(2, clock, random.Random(1))


def test_epochs_count_up_and_wrap() -> None:
    assert [next_epoch(n) for n in (-1, 0, 1, 0x7FFFFFFF)] == [-1, 1, 2, 1]


def test_young_sessions_keep_their_place(sessions: FetchSessions, clock: ManualClock) -> None:
    first, second = sessions.create(targets(1), False, False), sessions.create(targets(1), False, False)
    assert first
    assert second
    assert sessions.create(targets(100), False, False) == 0
    clock.advance(EVICTION_MS)
    assert sessions.create(targets(100), False, False) == 0
    clock.advance(1)
    assert sessions.create(targets(100), False, False) != 0
    assert sessions.get(first) is None
    assert sessions.get(second) is not None


def test_use_keeps_a_session_alive_but_not_from_larger_ones(sessions: FetchSessions, clock: ManualClock) -> None:
    small, large = sessions.create(targets(2), False, False), sessions.create(targets(9), False, False)
    for _ in range(3):
        clock.advance(EVICTION_MS // 2)
        for session_id in (small, large):
            session = sessions.get(session_id)
            assert session is not None
            sessions.touch(session)
    assert sessions.create(targets(1), False, False) == 0
    assert sessions.create(targets(3), False, False) != 0
    assert sessions.get(small) is None
    assert sessions.get(large) is not None
    assert sessions.evictions == 1


def test_a_follower_takes_a_consumers_place(sessions: FetchSessions) -> None:
    consumers = [sessions.create(targets(50), False, False) for _ in range(2)]
    assert sessions.create(targets(1), False, True) != 0
    assert sum(sessions.get(session_id) is not None for session_id in consumers) == 1
    assert sessions.create(targets(1), False, True) != 0
    assert sessions.create(targets(99), False, False) == 0
    assert sessions.create(targets(99), False, True) == 0


def test_without_slots_there_are_no_sessions(clock: ManualClock) -> None:
    assert FetchSessions(0, clock, random.Random(1)).create(targets(1), False, True) == 0
