"""Replica placement: even, over racks, never led from a fenced broker."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylogd.controller.decide.placement import Placer, UsableBroker, place
from pylogd.protocol.errors import ErrorCode, KafkaError
from support.controllers import new_state


def test_leaders_and_replicas_are_even() -> None:
    state = new_state(4)
    placed = place(state, 40, 2)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(r for replicas in placed for r in replicas).values()) == {20}


def test_replicas_of_a_partition_are_on_different_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    for replicas in place(new_state(5, racks=racks), 50, 3):
        assert sorted(racks[r] for r in replicas) == ["a", "b", "c"]


def test_fenced_brokers_follow_but_do_not_lead() -> None:
    placed = place(new_state(3, fenced=[1]), 30, 3)
    assert {replicas[0] for replicas in placed} == {0, 2}
    assert all(sorted(replicas) == [0, 1, 2] for replicas in placed)


def test_brokers_that_are_leaving_get_nothing() -> None:
    state = new_state(3)
    state.heartbeats.begin_shutdown(1, 5)
    assert {r for replicas in place(state, 20, 2) for r in replicas} == {0, 2}


@pytest.mark.parametrize(
    ("brokers", "fenced", "replicas", "message"),
    [
        (2, [], 3, "cannot be reached because only 2 broker"),
        (2, [0, 1], 1, "All brokers are currently fenced"),
        (2, [], 0, "must be positive"),
    ],
)
def test_impossible(brokers: int, fenced: list[int], replicas: int, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        place(new_state(brokers, fenced=fenced), 1, replicas)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    st.integers(0, 1 << 30),
    st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 30),
    st.data(),
)
def test_any_cluster(seed: int, described: list[tuple[str | None, bool]], partitions: int, data: st.DataObject) -> None:
    brokers = [UsableBroker(i, rack, fenced) for i, (rack, fenced) in enumerate(described)]
    alive = {b.id for b in brokers if not b.fenced}
    placer = Placer(Random(seed), brokers)
    replicas = data.draw(st.integers(1, len(brokers)))
    if not alive:
        with pytest.raises(KafkaError):
            placer.check(replicas)
        return
    placer.check(replicas)
    for _ in range(partitions):
        placed = placer.place(replicas)
        assert len(set(placed)) == len(placed) == replicas
        assert placed[0] in alive
