from __future__ import annotations

from pathlib import Path

import pytest
from pylogd.runtime.files import FileSystem
from pylogd.storage.checkpoint_file import CheckpointError
from pylogd.storage.log.leader_epochs import EpochCache


@pytest.fixture
def epochs(tmp_path: Path) -> EpochCache:
    return EpochCache(FileSystem(), str(tmp_path / "leader-epoch-checkpoint"))


def fill(epochs: EpochCache, *entries: tuple[int, int]) -> EpochCache:
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def test_an_epoch_is_assigned_once(epochs: EpochCache) -> None:
    assert epochs.latest == -1
    assert epochs.assign(2, 6)
    assert not epochs.assign(2, 7)
    assert epochs.assign(3, 9)
    assert epochs.entries() == [(2, 6), (3, 9)]
    with pytest.raises(ValueError, match="invalid"):
        epochs.assign(-1, 10)


@pytest.mark.parametrize(
    ("new", "left"),
    [
        ((5, 30), [(1, 10), (2, 20), (4, 25), (5, 30)]),
        ((5, 25), [(1, 10), (2, 20), (5, 25)]),  # nothing was written in epoch 4
        ((5, 15), [(1, 10), (5, 15)]),
        ((2, 30), [(1, 10), (2, 30)]),
        ((3, 40), [(1, 10), (2, 20), (3, 40)]),
        ((4, 22), [(1, 10), (2, 20), (4, 22)]),
        ((0, 5), [(0, 5)]),
    ],
)
def test_entries_that_break_the_order_give_way(
    epochs: EpochCache, new: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    fill(epochs, (1, 10), (2, 20), (4, 25)).assign(*new)
    assert epochs.entries() == left


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (2, 25)), (3, (2, 25)), (4, (4, 99)), (5, (-1, -1))],
)
def test_end_offset_for(epochs: EpochCache, epoch: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for(epoch, 99) == (-1, -1)
    assert fill(epochs, (1, 10), (2, 20), (4, 25)).end_offset_for(epoch, 99) == answer


def test_epochs_by_offset_and_neighbours(epochs: EpochCache) -> None:
    fill(epochs, (1, 10), (2, 20), (4, 25))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 24, 25, 100)] == [None, 1, 1, 2, 2, 4, 4]
    assert [epochs.previous_epoch(epoch) for epoch in (1, 2, 3, 4, 9)] == [None, 1, 2, 2, 4]
    assert [epochs.start_offset(epoch) for epoch in (1, 3, 4)] == [10, None, 25]


@pytest.mark.parametrize(
    ("end", "left"), [(100, [1, 2, 4]), (26, [1, 2, 4]), (25, [1, 2]), (20, [1]), (11, [1]), (10, []), (0, [])]
)
def test_truncate_from_end(epochs: EpochCache, end: int, left: list[int]) -> None:
    fill(epochs, (1, 10), (2, 20), (4, 25)).flush()
    epochs.truncate_from_end(end)
    assert [epoch for epoch, _ in epochs.entries()] == left
    assert epochs.dirty == (len(left) < 3)


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (9, [(1, 10), (2, 20), (4, 25)]),
        (10, [(1, 10), (2, 20), (4, 25)]),
        (15, [(1, 15), (2, 20), (4, 25)]),
        (20, [(2, 20), (4, 25)]),
        (24, [(2, 24), (4, 25)]),
        (90, [(4, 90)]),
    ],
)
def test_truncate_from_start(epochs: EpochCache, start: int, left: list[tuple[int, int]]) -> None:
    fill(epochs, (1, 10), (2, 20), (4, 25)).truncate_from_start(start)
    assert epochs.entries() == left


def test_the_table_survives_on_disk(epochs: EpochCache) -> None:
    fill(epochs, (1, 10), (2, 20))
    assert epochs.dirty
    epochs.flush()
    assert not epochs.dirty
    assert FileSystem().read_bytes(epochs.path) == b"0\n2\n1 10\n2 20\n"
    again = EpochCache(FileSystem(), epochs.path)
    again.load()
    assert again.entries() == [(1, 10), (2, 20)]
    assert not again.dirty
    again.clear()
    again.flush()
    assert FileSystem().read_bytes(epochs.path) == b"0\n0\n"


def test_a_bad_table_is_an_error(epochs: EpochCache) -> None:
    Path(epochs.path).write_bytes(b"0\n1\n1 x\n")
    with pytest.raises(CheckpointError):
        epochs.load()
