"""Who founds a cluster and who joins one: the decision as a table, and unformatted nodes meeting over real sockets."""

from __future__ import annotations

import pytest
from pylogd.broker.cluster.joining import Answer, decide

FORMATTED = Answer("the-cluster", 7)


@pytest.mark.parametrize(
    ("me", "answers", "expected"),
    [
        # Somebody has a cluster: join it, whoever else is silent.
        (1, [Answer("", 1), FORMATTED, None], "the-cluster"),
        # A wiped voter with the lowest id never founds a second cluster.
        (1, [Answer("", 1), FORMATTED, FORMATTED], "the-cluster"),
        (1, [Answer("", 1), None, Answer("", 3)], None),
        (1, [Answer("", 1), None, None], None),
        # All are there and have nothing: the lowest id founds, the others wait for it.
        (1, [Answer("", 1), Answer("", 2), Answer("", 3)], ""),
        (2, [Answer("", 1), Answer("", 2), Answer("", 3)], None),
        # A node that is not listed never founds.
        (1, [Answer("", 2), Answer("", 3)], None),
        (1, [], None),
        # Two nodes with one id: nobody can tell who is meant.
        (1, [Answer("", 1), Answer("", 1), Answer("", 3)], None),
    ],
)
def test_decide(me: int, answers: list[Answer | None], expected: str | None) -> None:
    assert decide(me, answers) == expected
