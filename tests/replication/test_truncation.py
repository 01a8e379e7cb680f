"""Where two histories part."""

from __future__ import annotations

import pytest
from pylogd.replication.divergence import out_of_range_offset, truncation_offset


class History:
    """Epochs with their first offsets, and the end of the log."""

    def __init__(self, epochs: dict[int, int], end: int, high_watermark: int = 0) -> None:
        self.epochs = epochs
        self.log_end_offset = end
        self.high_watermark = high_watermark

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        below = [epoch for epoch in self.epochs if epoch <= leader_epoch]
        above = [epoch for epoch in self.epochs if epoch > leader_epoch]
        if not below:
            return -1, -1
        return max(below), self.epochs[min(above)] if above else self.log_end_offset


@pytest.mark.parametrize(
    ("epochs", "end", "leader", "expected"),
    [
        ({0: 0}, 10, (0, 8), 8),  # the leader has less of the same epoch
        ({0: 0}, 10, (0, 12), 10),  # the leader has more: nothing to cut
        ({0: 0, 2: 6}, 10, (0, 8), 6),  # epoch 2 is ours alone, and the leader's epoch 0 goes on
        ({0: 0, 2: 6}, 10, (0, 4), 4),  # epoch 2 is ours alone, and part of epoch 0 too
        (
            {0: 0, 3: 6},
            10,
            (2, 9),
            6,
        ),  # the leader's epoch 2 is unknown here: cut to epoch 0, ask again
        ({5: 20}, 30, (3, 25), 25),  # nothing so old is known here
        ({0: 0}, 10, (-1, 7), 7),  # a leader that does not tell its epoch
        ({0: 0}, 10, (-1, -1), 3),  # a leader that knows nothing: back to the high watermark
    ],
)
def test_the_log_is_cut_where_both_agree(
    epochs: dict[int, int], end: int, leader: tuple[int, int], expected: int
) -> None:
    assert truncation_offset(History(epochs, end, high_watermark=3), *leader) == expected


@pytest.mark.parametrize(
    ("end", "leader", "expected"),
    [
        (10, (0, 7), (7, False)),  # an unclean leader is behind us
        (10, (12, 20), (12, True)),  # the leader has deleted what we need
        (10, (5, 20), (10, False)),  # it has moved on meanwhile
        (10, (10, 20), (10, False)),
    ],
)
def test_an_offset_out_of_range(end: int, leader: tuple[int, int], expected: tuple[int, bool]) -> None:
    assert out_of_range_offset(end, *leader) == expected
