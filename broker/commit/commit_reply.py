"""What an OffsetCommit asks for, and the reply that it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.gate.gate import ResourceKind
from pylogd.coordinators.shard.effects import PromisedReply

if TYPE_CHECKING:
    from pylogd.broker.gate.gate import Resource
    from pylogd.coordinators.groups.commits import Commit
    from pylogd.coordinators.groups.groups import GroupState
    from pylogd.coordinators.shard.shard import Shard
    from pylogd.protocol.errors import ErrorCode
    from pylogd.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


def resources(request: OffsetCommitRequest) -> tuple[Resource, ...]:
    return ((ResourceKind.GROUP, request.group_id),)


class CommitReply(PromisedReply):
    """A template learns from it what the next one will look like."""

    __slots__ = ("accepted", "commits", "shard")

    def __init__(self, shard: Shard[GroupState], commits: list[Commit], response: OffsetCommitResponse) -> None:
        super().__init__()
        self.shard = shard
        self.commits = commits
        #: The response when nothing is refused.
        self.accepted = response

    def refuse(self, code: ErrorCode, message: str | None) -> OffsetCommitResponse:
        for commit in self.commits:
            commit.answer.error_code = int(code)
        return self.accepted
