"""The algebra of majorities: who has won a vote, and what a quorum has in common."""

from __future__ import annotations

from collections.abc import Iterable

#: Smaller than every offset: what is known of a replica that never answered.
UNKNOWN_OFFSET = -1


def majority_size(voters: int) -> int:
    return voters // 2 + 1


def majority_offset(acknowledged: Iterable[int]) -> int:
    """The largest offset that a majority has reached, one entry for each voter; UNKNOWN_OFFSET when no majority has
    answered."""
    ordered = sorted(acknowledged, reverse=True)
    return ordered[len(ordered) // 2] if ordered else UNKNOWN_OFFSET


class Election:
    """The votes of one epoch (or of the question whether there should be one)."""

    __slots__ = ("_votes",)

    def __init__(self, voter_ids: Iterable[int], local_id: int) -> None:
        self._votes: dict[int, bool | None] = dict.fromkeys(voter_ids)
        if local_id in self._votes:
            self._votes[local_id] = True

    def record(self, voter_id: int, granted: bool) -> None:
        """A vote of somebody who is no voter is not counted."""
        if voter_id in self._votes:
            self._votes[voter_id] = granted

    @property
    def granting(self) -> list[int]:
        return sorted(voter_id for voter_id, vote in self._votes.items() if vote)

    @property
    def unrecorded(self) -> list[int]:
        return sorted(voter_id for voter_id, vote in self._votes.items() if vote is None)

    @property
    def won(self) -> bool:
        return len(self.granting) >= majority_size(len(self._votes))

    @property
    def lost(self) -> bool:
        return len(self.granting) + len(self.unrecorded) < majority_size(len(self._votes))
