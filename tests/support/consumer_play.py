"""How plays of the new consumer protocol begin (see group_transcript, consumer_transcript)."""

from __future__ import annotations

from typing import Any

from support import group_transcript


def check(script: str, **config: Any) -> None:
    """Groups assign whenever there is a reason to, unless the script is about just that."""
    group_transcript.check(script, **{"group_consumer_assignment_interval_ms": 0, **config})


# Two members; the second waits for what the first has to give up.
PAIR = """
    > topic t 4
    > a = beat g a 0 topics=t
    write member g a (t)
    write epoch g 2
    write target g a [t:0.1.2.3]
    write target g epoch 2
    write current g a 0->2 stable [t:0.1.2.3]
    a: a epoch 2 [t:0.1.2.3]
    > b = beat g b 0 topics=t
    write member g b (t)
    write epoch g 3
    write target g a [t:0.1]
    write target g b [t:2.3]
    write target g epoch 3
    write current g b 0->3 unreleased []
    b: b epoch 3 []
"""
